"""Cross entropy on the given labels: the paper's baselines "ResNet50" and "ResNet50+ROI"."""

from somnet.core.losses import classification_loss
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import Method, Observation, Step, of_label
from somnet.system.transfer import send

TRAIN = "train"  # the phase


class Plain(Method):
    """Image-level cross entropy: every label is trusted."""

    weighted = frozenset({"cls"})

    def plan(self) -> tuple[Phase, ...]:
        """One phase, the learning rate falling along a cosine to 0."""
        train = self.config.train
        return (Phase(TRAIN, train.epochs, {"network": train.lr}, anneal=(0.0, 1.0)),)

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy of whole images."""
        logits = self.predict(batch.images)
        label_score = of_label(logits.detach().softmax(dim=1), batch.label)  # (I,)
        losses = {"cls": classification_loss(logits, batch.label, batch.bag_weight())}
        return Step(losses, Observation(rows=batch.rows[:, 0], scores=label_score))


class PlainRoi(Plain):
    """Every proposal is one more image with the label of its own: proposals as augmentation."""

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy of whole images and of all their proposals, each ROI with the same weight."""
        rois = self.network.roi_features(batch.images, batch.boxes.flatten(0, 1))  # (I, P, F)
        mask = batch.in_memory.mask.flatten(0, 1)  # (I, P)
        real = send(mask.flatten().nonzero().squeeze(1), rois.device)  # (R,); a mask of a device would be waited for
        label = batch.label[:, None].expand(mask.shape).flatten()[real]  # (R,)
        logits = self.network.classifier(rois.flatten(0, 1)[real])  # (R, C)
        of_image = batch.bag_weight()
        weight = None if of_image is None else of_image[:, None].expand(mask.shape).flatten()[real]  # (R,)
        return Step({"cls": classification_loss(logits, label, weight)})

    def count(self, batch: BagBatch) -> int:
        """The mean is over ROIs."""
        return int(batch.mask.sum())
