"""SOMNet, the paper's method: core/ put together. Every ablation of the paper is a field of its config."""

from dataclasses import replace
from typing import Any

import torch
from sklearn.cluster import KMeans
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.memory import SelfOrganizingMemory, prototypical_score
from somnet.core.schedule import algorithm_1, curriculum
from somnet.core.types import Bag, Inspection, Losses, Phase, Sighting
from somnet.core.weighting import (
    area_score,
    bag_feature,
    initial_weights,
    keep_top,
    normalise,
    roi_weight,
)
from somnet.errors import DataError
from somnet.methods.base import BagPass, Method
from somnet.nn.backbones import Network


class SomNet(Method):
    """Bags of ROIs, weighted by a self-organizing memory (Algorithm 1)."""

    summed = frozenset({"som_key", "d_value", "r_value"})  # Eq. 9

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.somnet
        memory = self.settings.memory
        self.memory = SelfOrganizingMemory(memory.side, network.width, classes, memory.radius)
        self.features: Tensor | None = None  # (n, F) of whole images, for the initialisation of the memory

    def plan(self) -> tuple[Phase, ...]:
        """Algorithm 1."""
        return self._algorithm_1(self.config.train.epochs)

    def _algorithm_1(self, epochs: int) -> tuple[Phase, ...]:
        """Algorithm 1 in the first `epochs` of all."""
        train, settings, memory = self.config.train, self.settings, self.settings.memory
        init_epochs = min(max(1, round(settings.init_share * train.epochs)), max(1, epochs - 1))
        joint_epochs = epochs - init_epochs
        weighting = settings.weighting
        memory_lr = {} if memory.kmeans else {"keys": memory.key_lr, "d": memory.d_lr, "r": memory.r_lr}
        return algorithm_1(
            init_epochs=init_epochs,
            memory_epochs=0 if memory.kmeans else memory.init_epochs,
            joint_epochs=joint_epochs,
            keep=curriculum(weighting.keep_first, weighting.keep_last, weighting.keep_step, joint_epochs),
            init_lr={"network": train.lr * settings.init_lr},
            memory_lr=memory_lr,
            joint_lr={"network": train.lr * settings.joint_lr, **memory_lr},
            images_per_bag=settings.images_per_bag,
        )

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """The memory starts from image features; K-means clusters the bag features anew before each joint epoch."""
        if phase.name == "init-memory":
            self.features = torch.cat([self.network.image_features(_images(bag)) for bag in bag_pass(1)])
            self.memory.start_from(self.features, generator)
        elif phase.name == "joint":
            self.features = None
            if self.settings.memory.kmeans:
                self._cluster(phase, bag_pass)

    def step(self, bag: Bag, phase: Phase) -> Losses:
        """The losses of each line of Algorithm 1."""
        if phase.name == "init-memory":
            assert self.features is not None
            images = self.features[bag.index]  # (B, G, F)
            losses = self.memory.losses(bag_feature(initial_weights(bag.mask)[..., 0], images), bag.label)
            self.sighting = self._with_memory(Sighting())
            return losses
        if phase.name == "init-cnn":
            return {"cls": classification_loss(self.network.classifier(self._initial_features(bag)), bag.label)}
        x = self._bag_features(bag, phase)  # (B, F)
        losses = {"cls": classification_loss(self.network.classifier(x), bag.label)}
        if self.settings.memory.kmeans:
            self.memory.find(x)
        else:
            losses |= self.memory.losses(x.detach() if self.settings.memory.detach else x, bag.label)
        assert self.sighting is not None
        self.sighting = self._with_memory(self.sighting)
        return losses

    def _with_memory(self, sighting: Sighting) -> Sighting:
        assert self.memory.nearest is not None
        cosines, slots = self.memory.nearest
        return replace(sighting, slots=slots, cosines=cosines, memory_side=self.memory.side)

    def after_step(self) -> None:
        """Eq. 5 and 7."""
        self.memory.project(self.of_all)

    def param_groups(self) -> list[dict[str, Any]]:
        """The CNN, and the memory by plain SGD."""
        plain_sgd = {"momentum": 0.0, "weight_decay": 0.0}
        memory = {"keys": self.memory.keys, "d": self.memory.d, "r": self.memory.r}
        groups = ({"name": name, "params": [parameter], **plain_sgd} for name, parameter in memory.items())
        return [*super().param_groups(), *groups]

    def weigh(self, rois: Tensor, bag: Bag) -> dict[str, Tensor]:
        """Eq. 10 for ROI features (B, N, F): weight, and the slot and scores that it is made of, each (B, N)."""
        use = self.settings.weighting
        label = bag.label[:, None].expand(rois.shape[:2])  # (B, N)
        slot, d, r = self.memory.scores(rois, label)
        area = area_score(bag.boxes, bag.mask).flatten(1)  # (B, N)
        one = torch.ones_like(d)
        prototypical = prototypical_score(d if use.d_score else one, r if use.r_score else one)
        weight = roi_weight(prototypical, area if use.a_score else one)
        return {"weight": weight * self._usable(bag), "slot": slot, "d": d, "r": r, "a": area}

    def kept_weights(self, rois: Tensor, bag: Bag, keep: float) -> Tensor:
        """The largest share `keep` of a bag's weights, normalised (B, N)."""
        return self._kept(self.weigh(rois, bag)["weight"], bag, keep)

    def _kept(self, weight: Tensor, bag: Bag, keep: float) -> Tensor:
        return normalise(keep_top(weight, self._usable(bag), keep))

    def _usable(self, bag: Bag) -> Tensor:
        """Mask (B, N) of the ROIs that may get weight."""
        mask = bag.mask.clone()
        if not self.settings.weighting.rois:
            mask[..., 1:] = False
        return mask.flatten(1)

    def _initial_features(self, bag: Bag) -> Tensor:
        """Bag features (B, F) with w-bar: the mean of the bag's images."""
        images = self.network.image_features(_images(bag)).view(*bag.index.shape, -1)  # (B, G, F)
        return bag_feature(initial_weights(bag.mask)[..., 0], images)

    def _bag_features(self, bag: Bag, phase: Phase) -> Tensor:
        """Bag features (B, F) with the memory's weights, the largest share `phase.keep` of them."""
        rois = self.network.roi_features(_images(bag), bag.boxes.flatten(0, 1))  # (I, P, F)
        rois = rois.reshape(len(bag.label), -1, rois.shape[-1])  # (B, N, F)
        with torch.no_grad():  # weights are constants of the step
            assert phase.keep is not None
            weight = self.weigh(rois, bag)["weight"]  # (B, N)
            present = bag.mask[..., 0]  # (B, G)
            score = weight.view(bag.mask.shape).amax(dim=2)  # (B, G) an image is as good as its best ROI
            self.sighting = Sighting(rows=bag.index[present], scores=score[present])
        return bag_feature(self._kept(weight, bag, phase.keep), rois)

    def _cluster(self, phase: Phase, bag_pass: BagPass) -> None:
        """SOMNet+K-means: centres of the current bag features, D and R as exact ratios."""
        first = phase.anneal[0] == 0.0  # there are no clusters yet to weigh by
        parts = [
            (self._initial_features(bag) if first else self._bag_features(bag, phase), bag.label)
            for bag in bag_pass(phase.images_per_bag)
        ]
        features = normalize(torch.cat([x for x, _ in parts]), dim=1)  # cosine, as in Eq. 2
        slots = len(self.memory.keys)
        if len(features) < slots:
            raise DataError(
                f"K-means needs at least as many bags as slots, but there are {len(features)} bags for {slots} slots: "
                "set a smaller somnet.memory.side"
            )
        fit = KMeans(slots, n_init=1, max_iter=50, random_state=self.config.seed).fit(features.cpu().numpy())
        labels = torch.cat([label for _, label in parts]).cpu()
        self.memory.set_clusters(torch.from_numpy(fit.cluster_centers_), torch.from_numpy(fit.labels_).long(), labels)

    @torch.no_grad()
    def inspect(self, bag: Bag) -> Inspection:
        """Judge single images by memory and classifier together; docs/scores.md explains the scores.

        The memory chooses an image's regions, the classifier judges them: the best one is the kept ROI in which it
        believes the given label most, and label_score is that belief. background_score compares the weight of the
        whole image with the largest one.
        """
        return self._inspect(bag)

    @property
    def memory_network(self) -> Network:
        """The network whose features the memory knows."""
        return self.network

    def _inspect(self, bag: Bag) -> Inspection:
        network = self.memory_network
        rois = network.roi_features(_images(bag), bag.boxes[:, 0])  # (I, P, F)
        seen = self.weigh(rois, bag)
        weight = seen["weight"]  # (I, P)
        kept = self._kept(weight, bag, self.settings.weighting.keep_last)  # (I, P)
        cosine = cosine_similarity(rois, self.memory.keys[seen["slot"]], dim=-1)  # (I, P)
        believed = network.classifier(rois).softmax(dim=-1)  # (I, P, C)
        label = bag.label[:, None, None].expand(*kept.shape, 1)  # (I, P, 1)
        of_label = believed.gather(2, label).squeeze(2) * self._usable(bag)  # (I, P)
        label_score, best = (of_label * (kept > 0)).max(dim=1)  # (I,)
        return Inspection(
            probabilities=torch.einsum("ip,ipc->ic", kept, believed),
            label_score=label_score,
            background_score=weight[:, 0] / weight.amax(dim=1),
            weights=kept,
            best=best,
            details={
                **{name: seen[name] for name in ("slot", "d", "r", "a")},
                "similarity": cosine,
                "believed": of_label,
            },
        )


def _images(bag: Bag) -> Tensor:
    assert bag.images is not None
    return bag.images
