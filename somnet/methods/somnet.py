"""SOMNet, the paper's method: core/ put together. Its settings, with every ablation of the paper, stand beside it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from somnet.config import Config
from somnet.core.losses import classification_loss, scale_gradient
from somnet.core.memory import SelfOrganizingMemory, prototypical_score
from somnet.core.schedule import INIT_CNN, INIT_MEMORY, JOINT, Stage, algorithm_1, curriculum
from somnet.core.types import BagBatch, Phase
from somnet.core.weighting import area_score, bag_feature, initial_weights, keep_top, normalise, roi_weight
from somnet.methods.base import BagPass, Inspection, Method, Observation, Step
from somnet.methods.somnet_inspection import inspect_rois
from somnet.methods.somnet_kmeans import cluster
from somnet.methods.somnet_settings import SomnetSettings
from somnet.nn.backbones import Network
from somnet.system.transfer import send


class SomNet(Method):
    """Bags of ROIs, weighted by a self-organizing memory (Algorithm 1)."""

    summed = frozenset({"som_key", "d_value", "r_value"})  # Eq. 9
    weighted = frozenset({"cls"})

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(SomnetSettings)
        memory = self.settings.memory
        self.memory = SelfOrganizingMemory(memory.side, network.width, classes, memory.radius)
        self.full_size = self.settings.full_size
        self.features = torch.zeros(0)  # (n, P, F) of ROIs at full size, or of whole images, in main memory

    def plan(self) -> tuple[Phase, ...]:
        """Algorithm 1."""
        train, settings = self.config.train, self.settings
        memory, weighting = settings.memory, settings.weighting
        init = min(max(1, round(settings.init_share * train.epochs)), max(1, train.epochs - 1))
        joint = train.epochs - init
        return algorithm_1(
            Stage(init, {"network": train.lr * settings.init_lr}),
            Stage(0 if memory.kmeans else memory.init_epochs, memory.rates()),
            Stage(joint, {"network": train.lr * settings.joint_lr, **memory.rates(memory.joint_lr)}),
            keep=curriculum(weighting.keep_first, weighting.keep_last, weighting.keep_step, joint),
            images_per_bag=settings.images_per_bag,
            regions=1 + self.config.views.proposals if self.full_size else 0,
        )

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """The memory starts from features of ROIs; K-means clusters the bag features before each joint epoch."""
        self.features = torch.zeros(0)
        if phase.name == INIT_MEMORY:
            self.features, real = self._first_rois(bag_pass)  # (n, P, F), (n, P)
            self.memory.start_from(self.features, generator, real)
        elif phase.name == JOINT and self.settings.memory.kmeans:
            keep = None if phase.anneal[0] == 0.0 else phase.keep  # at first there are no clusters to weigh by
            weighed = ((self.weighed_rois(batch, keep), batch.label) for batch in bag_pass(phase.images_per_bag))
            bags = ((bag_feature(kept, rois), label) for (rois, kept, _), label in weighed)
            cluster(self.memory, bags, self.config.seed)

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """The losses of each line of Algorithm 1."""
        if phase.name == INIT_CNN:
            logits = self.network.classifier(self._image_bags(batch))  # (B, C)
            return Step({"cls": classification_loss(logits, batch.label, batch.bag_weight())})
        if phase.name == INIT_MEMORY:
            features, bags, device = self.features[batch.rows], batch.in_memory, self.memory.keys.device  # (B, G, P, F)
            mask = bags.mask[..., : features.shape[2]]  # (B, G, P)
            label = bags.label[:, None, None].expand(mask.shape)[mask]
            return self.memory_step(send(features[mask], device), send(label, device))
        return self.joint_step(batch, *self.weighed_rois(batch, phase.keep))

    def joint_step(self, batch: BagBatch, rois: Tensor, kept: Tensor, weight: Tensor) -> Step:
        """Eq. 11 for ROI features (B, N, F), the weights that make the bag (B, N), and those of all ROIs (B, N)."""
        x = bag_feature(kept, rois)  # (B, F)
        losses = {"cls": classification_loss(self.network.classifier(x), batch.label, batch.bag_weight())}
        present = batch.in_memory.mask[..., 0]  # (B, G)
        real = send(present.flatten().nonzero().squeeze(1), weight.device)  # (I,)
        score = weight.view(batch.mask.shape).amax(dim=2).flatten()[real]  # (I,) an image is as good as its best ROI
        seen = x.detach() if self.settings.memory.detach else scale_gradient(x, batch.whole or len(x))
        of_memory = self.memory_step(seen, batch.label)
        observed = replace(of_memory.observed, rows=batch.rows[present], scores=score)
        return Step(losses | of_memory.losses, observed, of_memory.pending)

    def memory_step(self, x: Tensor, label: Tensor) -> Step:
        """Eq. 9 for bag features (B, F) and their labels (B,)."""
        cosines, slots = self.memory.nearest(x)  # (B, 2) each
        observed = Observation(slots=slots, cosines=cosines, memory_side=self.memory.side)
        if self.settings.memory.kmeans:  # clusters are not trained
            return Step({}, observed)
        losses = self.memory.losses(x, label, slots[:, 0])
        return Step(losses, observed, {"slot": slots[:, 0], "label": label})

    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """Eq. 5 and 7."""
        if "slot" in pending:
            rows = self.memory.changed(pending["slot"], pending["label"])
            self.memory.restore(*(send(some, self.memory.keys.device) for some in rows))

    def param_groups(self) -> list[dict[str, Any]]:
        """The CNN, and the memory by plain SGD."""
        plain_sgd = {"momentum": 0.0, "weight_decay": 0.0}
        memory = {"keys": self.memory.keys, "d": self.memory.d, "r": self.memory.r}
        groups = ({"name": name, "params": [parameter], **plain_sgd} for name, parameter in memory.items())
        return [*super().param_groups(), *groups]

    def held_bytes(self) -> int:
        """Features of the memory's initialisation."""
        return 4 * self.network.width * self._regions()

    def weigh(self, rois: Tensor, batch: BagBatch) -> dict[str, Tensor]:
        """Eq. 10 for ROI features (B, N, F): weight, and the slot and scores that it is made of, each (B, N)."""
        use = self.settings.weighting
        label = batch.label[:, None].expand(rois.shape[:2])  # (B, N)
        slot, d, r = self.memory.scores(rois, label)
        area = area_score(batch.boxes, batch.mask).flatten(1)  # (B, N)
        one = torch.ones_like(d)
        prototypical = prototypical_score(d if use.d_score else one, r if use.r_score else one)
        weight = roi_weight(prototypical, area if use.a_score else one)
        usable = self._usable(batch)
        return {"weight": weight * usable, "usable": usable, "slot": slot, "d": d, "r": r, "a": area}

    def kept_weights(self, weight: Tensor, batch: BagBatch, keep: float) -> Tensor:
        """The largest share `keep` of a bag's weights (B, N), normalised."""
        return normalise(keep_top(weight, self._usable(batch), keep))

    def _usable(self, batch: BagBatch) -> Tensor:
        """Mask (B, N) of the ROIs that may get weight."""
        mask = batch.mask.clone()
        if not self.settings.weighting.rois:
            mask[..., 1:] = False
        return mask.flatten(1)

    def _first_rois(self, bag_pass: BagPass) -> tuple[Tensor, Tensor]:
        """What the memory starts from: features (n, P, F) of ROIs at full size, else of whole images; which are real.

        They are written where they stay, in main memory: of a million images there is no room for a second copy.
        """
        regions = self._regions()
        n, done = len(self.labels), 0
        features, real = torch.zeros(n, regions, self.network.width), torch.zeros(n, regions, dtype=torch.bool)
        for batch in bag_pass(1):
            some = slice(done, done + len(batch.label))
            features[some] = self.network.roi_features(batch.images, batch.boxes[:, 0, :regions]).cpu()
            real[some] = batch.in_memory.mask[:, 0, :regions]
            done = some.stop
        return features, real

    def _regions(self) -> int:
        """How many ROIs of an image the memory starts from."""
        return 1 + self.config.views.proposals if self.full_size else 1

    def _image_bags(self, batch: BagBatch) -> Tensor:
        """Bag features (B, F) with w-bar: the mean of the bag's images."""
        images = self.network.image_features(batch.images).view(*batch.rows.shape, -1)  # (B, G, F)
        return bag_feature(initial_weights(batch.mask)[..., 0], images)

    def weighed_rois(self, batch: BagBatch, keep: float | None) -> tuple[Tensor, Tensor, Tensor]:
        """ROI features (B, N, F); the share `keep` of their weights, None: w-bar; and all weights (B, N)."""
        rois = self.network.roi_features(batch.images, batch.boxes.flatten(0, 1))  # (I, P, F)
        rois = rois.reshape(len(batch.label), -1, rois.shape[-1])  # (B, N, F)
        with torch.no_grad():  # weights are constants of the step
            weight = initial_weights(batch.mask).flatten(1) if keep is None else self.weigh(rois, batch)["weight"]
            return rois, self.kept_weights(weight, batch, keep or 1.0), weight

    @torch.no_grad()
    def inspect(self, batch: BagBatch) -> Inspection:
        """Single images, judged by memory and classifier together."""
        rois = self.network.roi_features(batch.images, batch.boxes[:, 0])  # (I, P, F)
        weighed = self.weigh(rois, batch)
        kept = self.kept_weights(weighed["weight"], batch, self.settings.weighting.keep_last)  # (I, P)
        similarity = cosine_similarity(rois, self.memory.keys[weighed["slot"]], dim=-1)  # (I, P)
        return inspect_rois(weighed, kept, similarity, self.network.classifier(rois).softmax(dim=-1), batch.label)
