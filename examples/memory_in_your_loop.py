"""The paper's memory in a training loop of your own: somnet/core needs torch and nothing else.

Features of 3 classes, and of a fourth kind that stands in all of them with wrong labels. The memory clusters what it
sees; a slot where all classes meet discriminates none of them, so its features get little weight.
"""

import torch
from torch.nn.functional import normalize

from somnet.core.losses import total_loss
from somnet.core.memory import SelfOrganizingMemory, prototypical_score
from somnet.core.weighting import bag_feature, keep_top, normalise

CLASSES, WIDTH, COUNT = 3, 32, 1200
generator = torch.Generator().manual_seed(0)
centres = normalize(torch.randn(CLASSES + 1, WIDTH, generator=generator), dim=1)
label = torch.randint(CLASSES, (COUNT,), generator=generator)
noise = torch.rand(COUNT, generator=generator) < 0.3
shown = torch.where(noise, CLASSES, label)  # the last centre is the noise
features = centres[shown] + 0.15 * torch.randn(COUNT, WIDTH, generator=generator)  # yours: from any network

memory = SelfOrganizingMemory(side=4, width=WIDTH, classes=CLASSES, radius=1)
memory.start_from(features, generator)
optimizer = torch.optim.SGD(
    [
        {"params": [memory.keys], "lr": 0.5},
        {"params": [memory.d], "lr": 0.01},
        {"params": [memory.r], "lr": 0.001},
    ]
)
for epoch in range(10):
    for rows in torch.randperm(COUNT, generator=generator).split(32):
        x, y = features[rows], label[rows]
        _, slots = memory.nearest(x)  # Eq. 2: winner and runner-up
        loss = total_loss(memory.losses(x, y, slots[:, 0]))  # Eq. 9; add your own loss here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        memory.project(slots[:, 0], y)  # Eq. 5 and 7
    print(f"epoch {epoch}: mean cosine to the winner {float(memory.nearest(features)[0][:, 0].mean()):.3f}")

slot, d, r = memory.scores(features, label)
weight = prototypical_score(d, r)  # Eq. 10, without an area score
print(
    f"mean weight of right labels {float(weight[~noise].mean()):.4f}, of wrong ones {float(weight[noise].mean()):.4f}"
)

bags = features.view(-1, 10, WIDTH)  # (B, N, F) ten ROIs each; the best 40 % make the bag's feature
kept = normalise(keep_top(weight.view(-1, 10), torch.ones(len(bags), 10, dtype=torch.bool), share=0.4))
print(f"bag features {tuple(bag_feature(kept, bags).shape)}, of weights that sum to {float(kept[0].sum()):.3f}")
