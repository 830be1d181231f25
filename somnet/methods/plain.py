"""Cross entropy on the given labels: the paper's baselines "ResNet50" and "ResNet50+ROI"."""

from somnet.core.losses import classification_loss
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import Method, Observation, Step, of_label

TRAIN = "train"  # the phase


class Plain(Method):
    """Image-level cross entropy: every label is trusted."""

    def plan(self) -> tuple[Phase, ...]:
        """One phase, the learning rate falling along a cosine to 0."""
        train = self.config.train
        return (Phase(TRAIN, train.epochs, {"network": train.lr}, anneal=(0.0, 1.0)),)

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy of whole images."""
        logits = self.predict(batch.images)
        label_score = of_label(logits.detach().softmax(dim=1), batch.label)  # (I,)
        losses = {"cls": classification_loss(logits, batch.label)}
        return Step(losses, Observation(rows=batch.rows[:, 0], scores=label_score))


class PlainRoi(Plain):
    """Every proposal is one more image with the label of its own: proposals as augmentation."""

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy of whole images and of all their proposals, each ROI with the same weight."""
        rois = self.network.roi_features(batch.images, batch.boxes.flatten(0, 1))  # (I, P, F)
        mask = batch.mask.flatten(0, 1)  # (I, P)
        logits = self.network.classifier(rois[mask])  # (R, C)
        label = batch.label[:, None].expand(mask.shape)[mask]  # (R,)
        return Step({"cls": classification_loss(logits, label)})

    def count(self, batch: BagBatch) -> int:
        """The mean is over ROIs."""
        return int(batch.mask.sum())
