"""WANN: neighbourhoods, reliability and vote by hand, and the vote as the network's classifier."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from somnet.methods import wann
from somnet.methods.wann import Wann, WannSettings, WeightedVote, neighbourhood_sizes, vote

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def classifier_of(label: Tensor, width: int, classes: int, smallest: int, largest: int) -> WeightedVote:
    return WeightedVote(label, width, classes, WannSettings(smallest=smallest, largest=largest))


def test_neighbourhood_sizes_by_hand() -> None:
    near = torch.tensor(
        [
            [0, 1, 1, 1, 0, 0, 0],  # one of one: k = 1
            [1, 0, 0, 1, 1, 1, 1],  # two of three: k = 3
            [1, 1, 0, 0, 0, 1, 1],  # three of five: k = 5
            [1, 1, 1, 1, 1, 0, 0],  # never
            [2, 1, 0, 1, 0, 2, 2],  # one vote each of three: the first class wins, k = 3
        ]
    )
    label = torch.zeros(5, dtype=torch.int64)
    assert neighbourhood_sizes(near, label, 3, 1, 7).tolist() == [1, 3, 5, 7, 3]
    assert neighbourhood_sizes(near, label, 3, 3, 5).tolist() == [5, 3, 5, 5, 3]  # the largest need not find it
    assert neighbourhood_sizes(near, label, 3, 11, 51).tolist() == [7] * 5  # there are no more


def test_the_vote_by_hand() -> None:
    """Image 0 has k = 1, image 1 has 2, image 2 has 4: reliabilities 1, 1/2 and 1/4."""
    label, size = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 4])
    shares = vote(torch.tensor([[0, 1, 2], [1, 0, 2], [2, 1, 0]]), label, size, 3)
    assert shares[0].tolist() == pytest.approx([1, 0, 0])  # the nearest alone
    assert shares[1].tolist() == pytest.approx([2 / 3, 1 / 3, 0])  # two of them
    assert shares[2].tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7])  # all


def points() -> tuple[Tensor, Tensor]:
    """Three clouds, of which every fifth image has another's label; the scales of the features differ."""
    generator = torch.Generator().manual_seed(0)
    true = torch.arange(90) % 3
    features = torch.randn(90, 4, generator=generator) + 3 * torch.eye(4)[true]
    label = torch.where(torch.arange(90) % 5 == 0, (true + 1) % 3, true)
    return features * torch.tensor([1.0, 100.0, 0.01, 1.0]) + 7, label


def by_the_book(features: Tensor, label: Tensor, query: Tensor, smallest: int, largest: int) -> Tensor:
    """The vote (Q, 3), image by image."""
    mean, spread = features.mean(dim=0), features.std(dim=0, correction=0)
    trees = NearestNeighbors(n_neighbors=largest + 1).fit((features - mean) / spread)

    def near(x: Tensor) -> list[list[int]]:
        found: list[list[int]] = trees.kneighbors((x - mean) / spread)[1].tolist()
        return found

    size = []
    for image, others in enumerate(near(features)):
        votes = [int(label[other]) for other in others if other != image]
        wins = (k for k in range(smallest, largest, 2) if max(range(3), key=votes[:k].count) == label[image])
        size.append(next(wins, largest))
    shares = torch.zeros(len(query), 3)
    for number, images in enumerate(near(query)):
        for image in images[: size[images[0]]]:
            shares[number, label[image]] += 1 / size[image]
    return shares / shares.sum(dim=1, keepdim=True)


def test_the_vote_is_that_of_a_slow_reading_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    features, label = points()
    query = features[:40] + 0.3 * torch.randn(40, 4, generator=torch.Generator().manual_seed(1)) * features.std(dim=0)
    classifier = classifier_of(label, 4, 3, 5, 15)
    trust = classifier.fit(features)
    assert set(classifier.size.tolist()) > {5, 15}
    expected = by_the_book(features, label, query, 5, 15)
    assert torch.allclose(classifier(query).softmax(dim=1), expected, atol=1e-4)
    wrong = torch.arange(90) % 5 == 0
    assert float(trust[wrong].mean()) < 0.2 < 0.6 < float(trust[~wrong].mean())
    monkeypatch.setattr(wann, "CELLS", 200)  # two images at a time
    again = classifier_of(label, 4, 3, 5, 15)
    assert torch.allclose(again.fit(features), trust)
    assert torch.allclose(again(query), classifier(query), atol=1e-6)


def test_an_image_has_no_vote_on_itself() -> None:
    """Two pairs, each of them with one label: the other image of a pair decides, and it says no."""
    features = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    classifier = classifier_of(torch.tensor([0, 1, 2, 2]), 1, 3, 1, 1)
    assert classifier.fit(features).tolist() == [0, 0, 1, 1]


def test_a_feature_that_is_always_the_same_does_no_harm() -> None:
    classifier = classifier_of(torch.tensor([0, 0, 1, 1]), 2, 2, 1, 3)
    classifier.fit(torch.tensor([[0.0, 9.0], [0.1, 9.0], [5.0, 9.0], [5.1, 9.0]]))
    assert classifier(torch.tensor([[0.2, 9.0], [4.9, 9.0]])).argmax(dim=1).tolist() == [0, 1]
    assert torch.isfinite(classifier(torch.tensor([[0.2, 3.0]]))).all()


@torch.no_grad()
def test_the_network_votes(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("wann", **{"wann.smallest": 1, "wann.largest": 5})
    tail = {name: tensor.clone() for name, tensor in made.method.network.tail.state_dict().items()}
    with torch.enable_grad():
        made.trainer(tmp_path).run()
    method = made.method.eval()
    assert isinstance(method, Wann)
    assert all(torch.equal(tail[name], tensor) for name, tensor in method.network.tail.state_dict().items())
    features = method.network.image_features(made.maps)
    fresh = classifier_of(torch.from_numpy(made.labels), method.network.width, 3, 1, 5)
    trust = fresh.fit(features.half())
    assert torch.equal(method.predict(made.maps), fresh(features))
    seen = method.inspect(made.batches(1)[0])
    assert torch.allclose(seen.label_score, trust)
    assert trust.tolist() == [1.0] * 9 + [0.0]  # the last one is alone in its class
    evidence = method.network.evidence(made.maps)  # (n, C, H, W)
    cell = method.network.maps(made.maps)[:, :, 1, 0]
    assert torch.allclose(evidence[:, :, 1, 0], fresh(cell), atol=1e-6)
