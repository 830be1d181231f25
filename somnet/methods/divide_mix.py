"""DivideMix: Li et al., "DivideMix: Learning with Noisy Labels as Semi-supervised Learning", 2020."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.types import BagBatch, Losses, Phase
from somnet.methods.base import BagPass, Inspection, Method, Step
from somnet.methods.settings import MethodSettings, Rate, Share, Strength
from somnet.nn.backbones import Network
from somnet.nn.roi import random_boxes

INIT, MIX = "init", "mix"  # phases
VIEWS = 2  # random crops of an image that are averaged
TINY = 1e-8  # keeps the logarithm of a class finite that a whole batch excludes


class DivideMixSettings(MethodSettings):
    """Two networks, each of which divides the data for the other."""

    init_share: Share = 0.1  # of the epochs by cross entropy
    threshold: Share = 0.5  # probability of a clean label from which on an image is labelled
    temperature: Rate = 0.5  # of the sharpening
    mix: Rate = 0.5  # of the Beta distribution of MixUp
    unlabelled: Strength = 1.0  # weight of the unlabelled images' loss
    smallest_crop: Share = 0.6  # of the side, of the crops that augment


def clean_probability(losses: Tensor, seed: int) -> Tensor:
    """How likely each of n losses belongs to the lower of two Gaussians; 1 where there are no two to tell apart."""
    scaled = losses - losses.min()
    if scaled.max() <= 0:
        return torch.ones_like(losses)
    points = (scaled / scaled.max()).double().cpu().numpy()[:, None]  # (n, 1)
    mixture = GaussianMixture(2, tol=1e-2, reg_covar=5e-4, random_state=seed).fit(points)
    lower = int(mixture.means_.argmin())
    return torch.from_numpy(mixture.predict_proba(points)[:, lower]).to(losses)


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """p^(1/T), normalised: below 1, a temperature makes distributions choose."""
    powers = p ** (1 / temperature)
    return powers / powers.sum(dim=-1, keepdim=True)


def targets(label: Tensor, clean: Tensor, own: Tensor, both: Tensor, threshold: float, temperature: float) -> Tensor:
    """Labels (I, C) to learn from, sharpened.

    An image with a clean label keeps a share `clean` of it, the rest is what the network itself predicts; of any other
    image it is what both networks predict.
    """
    given = one_hot(label, own.shape[1])
    refined = clean[:, None] * given + (1 - clean[:, None]) * own  # (I, C)
    return sharpen(torch.where(clean[:, None] > threshold, refined, both), temperature)


def mean_of(values: Tensor, chosen: Tensor) -> Tensor:
    """Mean of the chosen values; 0 where none is."""
    return (values * chosen).sum() / chosen.sum().clamp(min=1)


def balance(p: Tensor) -> Tensor:
    """KL(uniform || mean of p) of predictions (I, C): no class may take all images."""
    classes = p.shape[1]
    return -(p.mean(dim=0).clamp(min=TINY) * classes).log().mean()


class DivideMix(Method):
    """Two networks, each of which tells the other what labels to trust; the rest is learnt as if unlabelled.

    Before each epoch a mixture of two Gaussians is fitted to the losses of either network. Where network 2 thinks a
    label clean, network 1 learns it, refined by its own view; elsewhere it learns what both guess. All is mixed up.

    Deviations from the paper: both networks take their steps on the same batches, which hold labelled and unlabelled
    images as they come; the augmentations are crops of the feature map, so that they exist for cached maps too; MixUp
    mixes the inputs, pixels or cached maps. At test time the contract knows one network, so the first is used alone,
    where the paper adds the logits of both. An odd pass of the budget is not spent.
    State: two probabilities per image; the second network.
    """

    divisible = False  # images are mixed with others of the batch

    clean: Tensor  # (n, 2) probability that a label is clean, as each network sees it

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(DivideMixSettings)
        self.second = network.twin().requires_grad_(True)
        self.second.classifier.reset_parameters()  # else both would see the same
        nn.init.zeros_(self.second.classifier.bias)
        self.register_buffer("clean", torch.ones(len(labels), 2))

    @property
    def networks(self) -> dict[str, Network]:
        """Both networks by the names of their parameter groups."""
        return {"network": self.network, "second": self.second}

    def plan(self) -> tuple[Phase, ...]:
        """A warm-up, then one phase per epoch, each of which divides again. A budget of 1 is enough for one network."""
        train, settings = self.config.train, self.settings
        if train.epochs == 1:
            return (Phase(INIT, 1, {"network": train.lr}, anneal=(0.0, 1.0)),)
        epochs = train.epochs // 2  # for two networks
        init = max(1, round(settings.init_share * epochs))
        lr = dict.fromkeys(self.networks, train.lr)
        mix = epochs - init
        return (
            Phase(INIT, init, lr, passes=2.0),
            *(Phase(MIX, 1, lr, anneal=(i / mix, (i + 1) / mix), passes=2.0) for i in range(mix)),
        )

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """Divide the images by their losses."""
        if phase.name != MIX:
            return
        rows, losses = [], []
        for batch in bag_pass(1):
            each = [cross_entropy(net(batch.images), batch.label, reduction="none") for net in self.networks.values()]
            losses.append(torch.stack(each, dim=1))  # (I, 2)
            rows.append(batch.rows[:, 0])
        seed = int(torch.randint(2**31, (), generator=generator))
        of_both = torch.cat(losses)  # (n, 2)
        self.clean[torch.cat(rows)] = torch.stack([clean_probability(of_both[:, k], seed) for k in (0, 1)], dim=1)

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """The losses of the networks that the phase trains, summed."""
        if phase.name == INIT:
            logits = [net(batch.images) for name, net in self.networks.items() if name in phase.lr]
            return Step({"cls": torch.stack([classification_loss(z, batch.label) for z in logits]).sum()})
        images = batch.images.float()  # pixels too: 0 to 255
        with torch.no_grad():
            guesses = [self._views(net, images).softmax(dim=2).mean(dim=1) for net in self.networks.values()]  # (I, C)
        both = torch.stack(guesses).mean(dim=0)
        losses: Losses = defaultdict(lambda: images.new_zeros(()))
        for number, network in enumerate(self.networks.values()):
            clean = self.clean[batch.rows[:, 0], 1 - number]  # what the other one thinks
            for name, loss in self._losses(network, images, batch.label, clean, guesses[number], both).items():
                losses[name] = losses[name] + loss
        return Step(dict(losses))

    def _losses(
        self, network: Network, images: Tensor, label: Tensor, clean: Tensor, own: Tensor, both: Tensor
    ) -> Losses:
        settings = self.settings
        target = targets(label, clean, own, both, settings.threshold, settings.temperature)  # (I, C)
        share = float(torch.distributions.Beta(settings.mix, settings.mix).sample())
        share = max(share, 1 - share)  # an image stays more itself than its partner
        partner = torch.randperm(len(images), device=images.device)
        logits = self._views(network, share * images + (1 - share) * images[partner])  # (I, V, C)
        target = (share * target + (1 - share) * target[partner])[:, None]  # (I, 1, C)
        p = logits.softmax(dim=2)
        labelled = clean > settings.threshold  # (I,)
        cross = -(target * logits.log_softmax(dim=2)).sum(dim=2).mean(dim=1)  # (I,)
        squared = (p - target).square().mean(dim=(1, 2))  # (I,)
        return {
            "labelled": mean_of(cross, labelled),
            "unlabelled": settings.unlabelled * mean_of(squared, ~labelled),
            "balance": balance(p.flatten(0, 1)),
        }

    def _views(self, network: Network, images: Tensor) -> Tensor:
        """Logits (I, V, C) of random crops of the feature map."""
        boxes = random_boxes(VIEWS * len(images), self.settings.smallest_crop, images.device)
        rois = network.roi_features(images, boxes.view(-1, VIEWS, 4))  # (I, V, F)
        return network.classifier(rois)  # type: ignore[no-any-return]

    def metrics(self) -> dict[str, float]:
        """How many images each network gets as labelled."""
        counts = (self.clean > self.settings.threshold).sum(dim=0).flip(0).tolist()
        return {f"labelled/{name}": float(count) for name, count in zip(self.networks, counts, strict=True)}

    def param_groups(self) -> list[dict[str, Any]]:
        """One parameter group per network."""
        second = [*self.second.tail.parameters(), *self.second.classifier.parameters()]
        return [*super().param_groups(), {"name": "second", "params": second}]

    def inspect(self, batch: BagBatch) -> Inspection:
        """label_score: the probability that the label is clean, the mean of both networks' views."""
        return replace(super().inspect(batch), label_score=self.clean[batch.rows[:, 0]].mean(dim=1))
