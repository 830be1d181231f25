"""MLNT: Li et al., "Learning to Learn from Noisy Labeled Data", 2019."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import normalize

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.types import BagBatch, Phase
from somnet.methods.base import BagPass, Method, Step
from somnet.methods.entropy import divergence
from somnet.methods.settings import Count, MethodSettings, Momentum, Rate, Share, Strength
from somnet.nn.average import follow, warm_momentum
from somnet.nn.backbones import Network

INIT, META = "init", "meta"  # phases


class MlntSettings(MethodSettings):
    """Meta-learning: after a step on wrong labels the network must still agree with its teacher."""

    copies: Count = 2  # of the batch with synthetic labels, per step; the paper takes 10, at five times the cost
    neighbours: Count = 10  # of an image, whose labels it may be given
    inner_lr: Rate = 0.02  # of the step on wrong labels
    teacher: Momentum = 0.99  # momentum of the moving average
    strength: Strength = 1.0  # of the meta loss
    lr: Rate = 1.0  # of the network in the meta phase, relative to train.lr
    init_share: Share = 0.15  # of the epochs by cross entropy alone


def nearest(features: Tensor, count: int) -> Tensor:
    """The `count` most similar other images (I, count) of each image of a batch, by the cosine of features (I, F)."""
    unit = normalize(features, dim=1)
    similarity = (unit @ unit.T).fill_diagonal_(-math.inf)  # (I, I)
    return similarity.topk(min(count, len(features) - 1), dim=1).indices


def synthetic_labels(label: Tensor, neighbours: Tensor) -> Tensor:
    """The labels (I,) of a batch, a random half of them replaced by the label of a random neighbour (I, count)."""
    chosen = torch.randperm(len(label), device=label.device)[: len(label) // 2]
    which = torch.randint(neighbours.shape[1], (len(chosen),), device=label.device)
    changed = label.clone()
    changed[chosen] = label[neighbours[chosen, which]]
    return changed


class Mlnt(Method):
    """After a gradient step on wrong labels the network must still agree with its teacher, a mean of its past.

    A step takes cross entropy on the given labels, and for each synthetic labelling of the batch KL(teacher || p) of
    the network theta' = theta - inner_lr grad CE(synthetic). Neighbours, whose labels are the synthetic ones, are those
    of a fixed checkpoint: the network as it was when the meta phase began. The result is the teacher.

    Deviations from the paper: first order (the inner gradient is a constant of the step); few copies instead of 10;
    one iteration, without the second one that filters by the first one's network; the teacher starts as a plain mean,
    since 0.99 takes hundreds of steps to forget its start; its term has full weight from the first meta step on.
    A step costs 1 + copies passes with gradient, as many further backward passes, and a forward pass each of teacher
    and checkpoint. State: both of these; none per sample.
    """

    weighted = frozenset({"cls"})
    divisible = False  # neighbours are sought in the whole batch

    steps: Tensor  # of the teacher so far

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.settings = config.of(MlntSettings)
        self.teacher = network.twin()
        self.checkpoint = network.twin()  # whose features say who is near
        self.register_table("steps", torch.zeros((), dtype=torch.int64))

    def plan(self) -> tuple[Phase, ...]:
        """Cross entropy, then cross entropy and the meta loss."""
        train, settings = self.config.train, self.settings
        init = max(1, round(settings.init_share * train.epochs))
        lr = {"network": train.lr}
        later = {"network": train.lr * settings.lr}
        return (
            Phase(INIT, init, lr),
            Phase(META, train.epochs - init, later, anneal=(0.0, 1.0), passes=1.0 + self.settings.copies),
        )

    def train(self, mode: bool = True) -> "Mlnt":
        """Teacher and checkpoint are not trained: they stay in evaluation mode."""
        super().train(mode)
        self.teacher.eval()
        self.checkpoint.eval()
        return self

    def prepare(self, phase: Phase, bag_pass: BagPass, generator: torch.Generator) -> None:
        """The network that begins the meta phase is the checkpoint."""
        if phase.name == META:
            self.checkpoint.load_state_dict(self.network.twin().state_dict())

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Cross entropy; in the second phase the meta loss too."""
        logits = self.predict(batch.images)  # (I, C)
        losses = {"cls": classification_loss(logits, batch.label, batch.bag_weight())}
        if phase.name == META and len(batch.label) > 1:  # a single image has no neighbour
            losses["meta"] = self._meta_loss(batch, logits) * self.settings.strength
        return Step(losses)

    def _meta_loss(self, batch: BagBatch, logits: Tensor) -> Tensor:
        settings = self.settings
        weights = {name: w for name, w in self.network.named_parameters() if w.requires_grad}
        with torch.no_grad():
            neighbours = nearest(self.checkpoint.image_features(batch.images), settings.neighbours)
            teacher = self.teacher(batch.images)  # (I, C)
        total = torch.zeros((), device=logits.device)
        for _ in range(settings.copies):
            wrong = classification_loss(logits, synthetic_labels(batch.label, neighbours))
            gradients = torch.autograd.grad(wrong, list(weights.values()), retain_graph=True)
            moved = {
                name: weight - settings.inner_lr * gradient
                for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
            }
            total = total + divergence(teacher, functional_call(self.network, moved, (batch.images,)))
        return total / settings.copies

    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """The teacher follows."""
        self.steps += 1
        follow(self.teacher.tail, self.network.tail, self._momentum())
        follow(self.teacher.classifier, self.network.classifier, self._momentum())

    def _momentum(self) -> float:
        return warm_momentum(self.settings.teacher, int(self.steps))

    def leave(self, phase: Phase, bag_pass: BagPass) -> None:
        """In the end the teacher is the network."""
        if phase.name == META:
            self.network.tail.load_state_dict(self.teacher.tail.state_dict())
            self.network.classifier.load_state_dict(self.teacher.classifier.state_dict())
