"""SOMNet+, the default method: SOMNet's bags of full-size regions, and early learning holds wrong labels off.

What is left of SOMNet and of ideas beyond it after each had to beat its control (docs/results.md):

1. A bag is two images of a class, each seen in two views drawn from those that every method gets: the image, its
   regions, random crops, all at full size. The classifier is linear, so the logits of the bag feature, the mean of all
   its views, are the mean of their logits. The label must be explained by them together: a view that shows nothing of
   the class need not, as it must when views are trained on one by one, and a wrong label weighs half.
2. Pairs keep wrong labels off, and single images tell near classes apart. So bags are pairs for the first third of the
   joint epochs, while early learning goes on, and single images afterwards.
3. Each image i keeps a moving average t_i of what the network predicts for its views v,

       p_i = mean of p(x_v) over v,  t_i <- beta t_i + (1 - beta) p_i,

   and ELR's term is added for each image, by its share s_i of the bag:

       L = L_cls + L_memory + strength * mean over bags of sum_i s_i log(1 - <t_i, p_i>).

   Its gradient keeps the prediction where t_i has it: labels which contradict what was learnt early are not memorised,
   and where t_i agrees with the label it says the same. While the CNN is initialised, single views have the term too.
4. SOMNet's memory learns along, without a gradient into the network: it knows the prototypes of each class and scores
   regions by Eq. 10. With `weigh` its weights of the image and its regions make the bag, as in SOMNet; then
   p_i = sum_r w_r p(x_r) / s_i, with s_i = sum_r w_r.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from somnet.config import Config
from somnet.core.losses import classification_loss
from somnet.core.schedule import INIT_MEMORY, JOINT
from somnet.core.types import BagBatch, Phase
from somnet.core.weighting import bag_feature, initial_weights
from somnet.methods.base import Inspection, Step, of_label
from somnet.methods.elr import early_learning, moving_target
from somnet.methods.sample_table import SampleTable
from somnet.methods.settings import Count, MethodSettings, Momentum, Share, Strength
from somnet.methods.somnet import SomNet
from somnet.methods.somnet_settings import SomnetSettings
from somnet.nn.backbones import Network

UNSEEN = 1e-6  # probability of each class, for an image that was never used


class SomnetPlusSettings(MethodSettings):
    """SOMNet's bags, and early-learning regularisation of what they say of each image."""

    strength: Strength = 3.0  # of the early-learning term; 0 is none
    beta: Momentum = 0.7  # of the moving average of predictions
    views: Count = 2  # of each image that a joint step sees
    paired: Share = 1 / 3  # of the joint epochs, in which bags hold somnet.images_per_bag images; then single ones
    weigh: bool = False  # True: bags of the image and its regions by the memory's weights, as in SOMNet


class SomNetPlus(SomNet):
    """Bags of full-size regions with an early-learning term, and SOMNet's memory.

    State: the memory, and one target per image, N x 16 numbers (see SampleTable).
    """

    settings: SomnetSettings  # of SOMNet
    plus: SomnetPlusSettings

    def __init__(self, config: Config, network: Network, labels: Tensor, classes: int) -> None:
        super().__init__(config, network, labels, classes)
        self.plus = config.of(SomnetPlusSettings)
        self.targets = SampleTable(len(labels), classes)

    def plan(self) -> tuple[Phase, ...]:
        """Algorithm 1; unless the memory weighs, joint epochs draw views, of pairs first and then of single images."""
        phases, plus = super().plan(), self.plus
        if plus.weigh:
            return phases
        first = sum(phase.name != JOINT for phase in phases)  # joint phases are the last
        alone = first + round(plus.paired * (len(phases) - first))  # a joint phase is an epoch

        def with_views(place: int, phase: Phase) -> Phase:
            images = phase.images_per_bag if place < alone else 1
            return replace(phase, views=plus.views, passes=plus.views, regions=False, images_per_bag=images)

        return tuple(with_views(place, phase) if place >= first else phase for place, phase in enumerate(phases))

    def step(self, batch: BagBatch, phase: Phase) -> Step:
        """Bags of drawn views, and the memory along with them; what the memory weighs is SOMNet's."""
        if phase.name == INIT_MEMORY or (phase.name == JOINT and self.plus.weigh):
            return super().step(batch, phase)
        share = initial_weights(batch.mask)[..., 0]  # (B, G) s_i
        features = self.network.image_features(batch.images).view(*share.shape, phase.views, -1)  # (B, G, V, F)
        x, used = bag_feature(share, features.mean(dim=2)), share > 0  # (B, F)
        of_memory = self.memory_step(x.detach(), batch.label) if phase.name == JOINT else Step({})
        losses = {"cls": classification_loss(self.network.classifier(x), batch.label)} | of_memory.losses
        p = self.network.classifier(features[used]).softmax(dim=2).mean(dim=1)  # (i, C)
        taken = replace(of_memory, losses=losses)
        return self._with_early_term(taken, batch.rows[used], p, share[used], len(batch.label))

    def joint_step(self, batch: BagBatch, rois: Tensor, kept: Tensor, weight: Tensor) -> Step:
        """Eq. 11, and the early-learning term of what is kept of each image."""
        taken = super().joint_step(batch, rois, kept, weight)
        of_image = kept.view(batch.mask.shape)  # (B, G, P)
        share = of_image.sum(dim=2)  # (B, G) s_i
        used = share > 0
        p = self.network.classifier(rois).softmax(dim=2).view(*batch.mask.shape, -1)[used]  # (i, P, C)
        p = torch.einsum("ip,ipc->ic", of_image[used] / share[used][:, None], p)  # (i, C)
        return self._with_early_term(taken, batch.rows[used], p, share[used], len(batch.label))

    def _with_early_term(self, taken: Step, rows: Tensor, p: Tensor, share: Tensor, bags: int) -> Step:
        """A step, with the term for predictions p (i, C) of some images, each of which has a share of its bag (i,)."""
        target = moving_target(self.targets.get(rows), p, self.plus.beta)
        losses = dict(taken.losses)
        if self.plus.strength:
            losses["early"] = self.plus.strength * (share * early_learning(p, target)).sum() / bags
        scores = of_label(_normalised(target), self.labels.to(rows.device)[rows])
        observed = replace(taken.observed, rows=rows, scores=scores)
        return Step(losses, observed, {**taken.pending, "rows": rows, "target": target})

    def after_step(self, pending: Mapping[str, Tensor]) -> None:
        """The targets move along; Eq. 5 and 7."""
        if "target" in pending:
            self.targets.put(pending["rows"], pending["target"])
        super().after_step(pending)

    @torch.no_grad()
    def inspect(self, batch: BagBatch) -> Inspection:
        """As SOMNet; label_score: the mean of the label's probability in its best region and in the moving average."""
        seen = super().inspect(batch)
        average = _normalised(self.targets.get(batch.rows[:, 0]))  # (I, C)
        label_score = (seen.label_score + of_label(average, batch.label)) / 2
        return replace(seen, probabilities=average, label_score=label_score)


def _normalised(target: Tensor) -> Tensor:
    """Probabilities (I, C) that sum to 1: a target sums to less after few epochs."""
    positive = target + UNSEEN
    return positive / positive.sum(dim=1, keepdim=True)
