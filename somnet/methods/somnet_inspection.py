"""SOMNet's scores of single images, from the ROIs that its memory weighs; docs/scores.md explains the scores."""

from collections.abc import Mapping

from torch import Tensor

from somnet.methods.base import Inspection

TINY = 1e-12  # keeps a quotient finite


def inspect_rois(
    weighed: Mapping[str, Tensor], kept: Tensor, similarity: Tensor, probabilities: Tensor, label: Tensor
) -> Inspection:
    """Memory and classifier together: the memory chooses an image's regions, the classifier judges them.

    `weighed` is Eq. 10 with its factors, `kept` the normalised weights that are left of it, `similarity` the cosine to
    the nearest key, each (I, P); `probabilities` (I, P, C) those of the classifier, the image itself being the first
    region. The best region is the kept one in which the given label (I,) is most probable, and label_score is that
    probability. background_score is how probable the label is in the whole image, as a share of that.
    """
    of_label = probabilities.gather(2, label[:, None, None].expand(*kept.shape, 1)).squeeze(2)  # (I, P)
    label_score, best = (of_label * (kept > 0)).max(dim=1)  # (I,)
    return Inspection(
        probabilities=probabilities[:, 0],
        label_score=label_score,
        background_score=(of_label[:, 0] / label_score.clamp(min=TINY)).clamp(max=1),
        weights=kept,
        best=best,
        details={
            **{name: weighed[name] for name in ("slot", "d", "r", "a")},
            "similarity": similarity,
            "believed": of_label * weighed["usable"],
        },
    )
