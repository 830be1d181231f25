"""DivideMix: Li et al., "DivideMix: Learning with Noisy Labels as Semi-supervised Learning", 2020."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.types import BagBatch, Losses, Phase
from somnet.methods.base import BagPass, Inspection, Method, Step
from somnet.methods.mixup import mix_up, soft_cross_entropy
from somnet.methods.settings import MethodSettings, Rate, Share, Strength
from somnet.nn.backbones import Network
from somnet.nn.joined import JoinedNetwork
from somnet.system.transfer import send

INIT, MIX = "init", "mix"  # phases
NETWORKS = ("first", "second")  # their parameter groups
VIEWS = 2  # of an image, over which guesses are averaged
TINY = 1e-8  # keeps the logarithm of a class finite that a whole batch excludes


class DivideMixSettings(MethodSettings):
    """Two networks, each of which divides the data for the other."""

    init_share: Share = 0.1  # of the epochs by cross entropy
    threshold: Share = 0.5  # probability of a clean label from which on an image is labelled
    temperature: Rate = 0.5  # of the sharpening
    mix: Rate = 0.5  # of the Beta distribution of MixUp
    unlabelled: Strength = 0.0  # weight of the unlabelled images' loss: 0 for web images, 25 and more for much noise
    ramp_share: Share = 0.05  # of the epochs that mix, in which that weight rises to its full value


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
    label clean, network 1 learns it, refined by its own view; elsewhere it learns what both guess. All is mixed up. The
    logits of both are added, while training is watched and in the end. As in the authors' code for Clothing1M and
    WebVision unlabelled images have no loss of their own by default: they are only partners in mixtures.

    Deviations from the paper: both networks take their steps on the same batches, which hold labelled and unlabelled
    images as they come, each with a mixing of its own; MixUp mixes the inputs, pixels or cached maps; views are drawn
    like those of all methods, not by the authors' augmentation; the weight of unlabelled images rises once per epoch.
    The warm-up has no penalty of sure predictions, which the authors use for Clothing1M and not for WebVision.
    An epoch that mixes takes 4 passes, of two views through two networks, and as many without gradient for the guesses.
    State: two probabilities per image; the second network.
    """

    divisible = False  # images are mixed with others of the batch

    network: JoinedNetwork
    clean: Tensor  # (n, 2) probability that a label is clean, as each network sees it

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, JoinedNetwork(network), labels, classes)
        self.settings = config.of(DivideMixSettings)
        self.register_table("clean", torch.ones(len(labels), 2))

    def plan(self) -> tuple[Phase, ...]:
        """A warm-up, then one phase per epoch, each of which divides again."""
        train, lr = self.config.train, dict.fromkeys(NETWORKS, self.config.train.lr)
        init = max(1, round(self.settings.init_share * train.epochs))
        mix = train.epochs - init
        stretches = ((i / mix, (i + 1) / mix) for i in range(mix))
        return (
            Phase(INIT, init, lr, passes=2.0, anneal=(0.0, 0.0 if mix else 1.0)),
            *(Phase(MIX, 1, lr, anneal=stretch, views=VIEWS, passes=2.0 * VIEWS) for stretch in stretches),
        )

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """Divide the images by their losses."""
        if phase.name != MIX:
            return
        rows, losses = [], []
        for batch in bag_pass(1):
            logits = [self.network.part(number, batch.images) for number in (0, 1)]
            each = [cross_entropy(z, batch.label, reduction="none") for z in logits]
            losses.append(torch.stack(each, dim=1))  # (I, 2)
            rows.append(batch.rows[:, 0])
        seed = int(torch.randint(2**31, (), generator=generator))
        of_both = torch.cat(losses).cpu()  # (n, 2)
        self.clean[torch.cat(rows)] = torch.stack([clean_probability(of_both[:, k], seed) for k in (0, 1)], dim=1)

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """The losses of the networks that the phase trains, summed."""
        if phase.name == INIT:
            logits = [self.network.part(k, batch.images) for k, name in enumerate(NETWORKS) if name in phase.lr]
            return Step({"cls": torch.stack([classification_loss(z, batch.label) for z in logits]).sum()})
        with torch.no_grad():
            guesses = [self._guess(number, batch) for number in (0, 1)]  # (I, C)
        both = torch.stack(guesses).mean(dim=0)
        losses: Losses = defaultdict(lambda: both.new_zeros(()))
        for number, own in enumerate(guesses):
            clean = self.clean[batch.rows[:, 0], 1 - number]  # what the other one thinks
            known = send(clean, own.device)
            target = targets(batch.label, known, own, both, self.settings.threshold, self.settings.temperature)
            for name, loss in self._losses(number, batch, target, clean, self._weight(phase)).items():
                losses[name] = losses[name] + loss
        return Step(dict(losses))

    def _guess(self, number: int, batch: BagBatch) -> Tensor:
        """Probabilities (I, C) by one network, the mean over an image's views."""
        p = self.network.part(number, batch.images).softmax(dim=1)  # (I * V, C)
        return p.view(len(batch.label), -1, self.classes).mean(dim=1)

    def _weight(self, phase: Phase) -> float:
        """Of the unlabelled images: it rises with the epochs that mix, from 0."""
        return self.settings.unlabelled * min(1.0, phase.anneal[0] / self.settings.ramp_share)

    def _losses(self, number: int, batch: BagBatch, target: Tensor, clean: Tensor, unlabelled_weight: float) -> Losses:
        views = len(batch.images) // len(batch.label)
        labelled = (clean > self.settings.threshold).repeat_interleave(views)  # (I * V,)
        mixed, target = mix_up(batch.images, target.repeat_interleave(views, dim=0), self.settings.mix)
        if self.settings.unlabelled == 0 and labelled.any():
            chosen = send(labelled.nonzero().squeeze(1), mixed.device)  # a mask of the device would be waited for
            mixed, target, labelled = mixed[chosen], target[chosen], labelled[labelled]
        labelled = send(labelled, mixed.device)
        logits = self.network.part(number, mixed)  # (I * V, C), or of the labelled only
        p = logits.softmax(dim=1)
        squared = (p - target).square().mean(dim=1)  # (I * V,)
        return {
            "labelled": mean_of(soft_cross_entropy(logits, target), labelled),
            "unlabelled": unlabelled_weight * mean_of(squared, ~labelled),
            "balance": balance(p),
        }

    def metrics(self) -> dict[str, float]:
        """How many images each network gets as labelled."""
        counts = (self.clean > self.settings.threshold).sum(dim=0).flip(0).tolist()
        return {f"labelled/{name}": float(count) for name, count in zip(NETWORKS, counts, strict=True)}

    def first_features(self, inputs: Tensor) -> Tensor:
        """Of the first network: at the start both have the same."""
        return self.network.features_of(0, inputs)

    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of each network."""
        modules = ((name, *self.network.modules_of(number)) for number, name in enumerate(NETWORKS))
        return [group for name, tail, classifier in modules for group in self.network_groups(name, tail, classifier)]

    def inspect(self, batch: BagBatch) -> Inspection:
        """label_score: the probability that the label is clean, the mean of both networks' views."""
        clean = self.clean[batch.rows[:, 0]].mean(dim=1)
        return replace(super().inspect(batch), label_score=send(clean, batch.label.device))
