"""Cross entropy on the given labels: the paper's baselines "ResNet50" and "ResNet50+ROI"."""

from somnet.core.losses import classification_loss
from somnet.core.types import Bag, Losses, Phase, Sighting
from somnet.methods.base import Method


class Plain(Method):
    """Image-level cross entropy: every label is believed."""

    def plan(self) -> tuple[Phase, ...]:
        """One phase, the learning rate falling along a cosine to 0."""
        train = self.config.train
        return (Phase("train", train.epochs, {"network": train.lr}, anneal=(0.0, 1.0)),)

    def step(self, bag: Bag, phase: Phase) -> Losses:
        """Cross entropy of whole images."""
        assert bag.images is not None
        logits = self.predict(bag.images)
        of_label = logits.detach().softmax(dim=1).gather(1, bag.label[:, None])  # (I, 1)
        self.sighting = Sighting(rows=bag.index[:, 0], scores=of_label[:, 0])
        return {"cls": classification_loss(logits, bag.label)}


class PlainRoi(Plain):
    """Every proposal is one more image with the label of its own: proposals as augmentation."""

    def step(self, bag: Bag, phase: Phase) -> Losses:
        """Cross entropy of whole images and of all their proposals, each ROI with the same weight."""
        assert bag.images is not None
        rois = self.network.roi_features(bag.images, bag.boxes.flatten(0, 1))  # (I, P, F)
        mask = bag.mask.flatten(0, 1)  # (I, P)
        logits = self.network.classifier(rois[mask])  # (R, C)
        label = bag.label[:, None].expand(mask.shape)[mask]  # (R,)
        return {"cls": classification_loss(logits, label)}

    def count(self, bag: Bag) -> int:
        """The mean is over ROIs."""
        return int(bag.mask.sum())
