"""The ablation SOMNet+K-means: clusters of the bag features in place of the trained memory."""

from collections.abc import Iterable

import torch
from sklearn.cluster import KMeans
from torch import Tensor
from torch.nn.functional import normalize

from somnet.core.memory import SelfOrganizingMemory
from somnet.errors import DataError


def cluster(memory: SelfOrganizingMemory, bags: Iterable[tuple[Tensor, Tensor]], seed: int) -> None:
    """Fill the memory with the centres of bag features, and D and R with exact ratios of their labels.

    `bags` are batches of features (B, F) and labels (B,).
    """
    features, labels = map(torch.cat, zip(*bags, strict=True))
    slots = len(memory.keys)
    if len(features) < slots:
        raise DataError(
            f"K-means needs at least as many bags as slots, but there are {len(features)} bags for {slots} slots: "
            "set a smaller somnet.memory.side"
        )
    points = normalize(features, dim=1).cpu().numpy()  # cosine, as in Eq. 2
    fit = KMeans(slots, n_init=1, max_iter=50, random_state=seed).fit(points)
    memory.set_clusters(torch.from_numpy(fit.cluster_centers_), torch.from_numpy(fit.labels_).long(), labels.cpu())
