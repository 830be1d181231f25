"""What judgements of some labels tell about others, by hand and by brute force."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from somnet.methods import review
from somnet.methods.review import (
    ALIKE,
    LEVEL,
    STEEP,
    Judgements,
    Scored,
    find_axes,
    learn,
    most_telling,
    scored_labels,
)

NONE = np.zeros(0, np.int64)


def scored(odds: list[float], description: NDArray[np.floating], label: list[int] | None = None) -> Scored:
    """Labels of which nothing but the odds and what is alike is known."""
    count = len(odds)
    labels = np.zeros(count, np.int64) if label is None else np.array(label)
    return Scored(np.array(odds), np.zeros((count, 2)), labels, description.astype(np.float16))


def judgements(rows: list[int], right: list[bool]) -> Judgements:
    return Judgements(np.array(rows), np.array(right))


def test_the_covariance_by_hand() -> None:
    """Two images of one label with the cosine 0.6, and one like the first with another label."""
    three = scored([0, 0, 0], np.array([[1, 0], [0.6, 0.8], [1, 0]]), [0, 0, 1])
    k = three.covariance(three)
    assert k[0, 1] == pytest.approx(LEVEL**2 + 2 * np.exp(-0.4 * STEEP) * ALIKE**2, abs=1e-2)
    assert k[0, 2] == pytest.approx(LEVEL**2 + ALIKE**2, abs=1e-2)
    assert np.diag(k) == pytest.approx(three.variance(), abs=1e-2)


def test_one_judgement_by_hand() -> None:
    """g = w v (1 - sigma(g)) for an image with even odds; another one follows by K / v. w = 1 / 1.03 if it is wrong."""
    two = scored([0, 1], np.array([[1, 0], [0, 1]]))
    v, both = LEVEL**2 + 2 * ALIKE**2, LEVEL**2 + 2 * ALIKE**2 * np.exp(-STEEP)
    for right, weight, sign in ((True, 1.0, 1), (False, 1 / 1.03, -1)):
        g = 1.0
        for _ in range(200):
            g = 0.9 * g + 0.1 * weight * v * (1 - expit(g))
        learnt = learn(two, judgements([0], [right])).odds
        assert learnt == pytest.approx([sign * g, 1 + sign * g * both / v], abs=1e-3)


def test_pictures_that_are_dropped_though_their_labels_are_right_teach_little() -> None:
    """Six with odds of e^8 tell a ninetieth of what they would tell otherwise; one in doubt tells nearly all."""
    many = scored([8.0] * 6 + [0.0, 3.0], np.eye(8))
    dropped = learn(many, judgements(list(range(6)), [False] * 6)).odds
    assert abs(dropped[6:] - [0.0, 3.0]).max() < 1
    doubted = learn(many, judgements([6], [False])).odds
    assert doubted[7] < 2.5


def test_no_judgement_changes_nothing_and_what_was_known_changes_little() -> None:
    some = scored([3.0, -2.0], np.eye(2))
    assert learn(some, Judgements(NONE, NONE.astype(bool))) is some
    sure = scored([12.0, 0.0], np.eye(2))
    assert learn(sure, judgements([0], [True])).odds == pytest.approx([12, 0], abs=1e-3)


def test_confusions_are_learnt_from_a_few_that_are_alike() -> None:
    """Of the images with label 0 those of the second kind are wrong; the others, and those of label 1, are not."""
    rng = np.random.default_rng(0)
    kind, label = np.arange(300) % 3, np.where(np.arange(300) % 3 == 2, 1, 0)
    features = np.eye(3)[kind] + 0.1 * rng.normal(size=(300, 3))
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    wrong = kind == 1
    before = scored([2.0] * 300, unit, label.tolist())
    rows = np.arange(24)
    after = learn(before, Judgements(rows, ~wrong[rows])).odds[24:]
    assert after[wrong[24:]].max() < 0 < after[~wrong[24:]].min()


def brute_force_gain(some: Scored, chosen: list[int], row: int) -> float:
    """The information of one more judgement, from the covariance conditioned on all the chosen at once."""
    k = some.covariance(some)
    v = np.diag(k).copy()
    noise: list[float] = []
    for place, one in enumerate(chosen):
        own = _conditioned(k, chosen[:place], noise)
        p = expit(some.odds[one] / np.sqrt(1 + np.pi * own[one] / 8))
        noise.append(1 / (p * (1 - p)))
    v = _conditioned(k, chosen, noise)
    p = expit(some.odds[row] / np.sqrt(1 + np.pi * v[row] / 8))
    return float(np.log1p(v[row] * p * (1 - p)) / 2)


def _conditioned(k: NDArray[np.float64], chosen: list[int], noise: list[float]) -> NDArray[np.float64]:
    if not chosen:
        return np.diag(k)
    inner = k[np.ix_(chosen, chosen)] + np.diag(noise)
    left: NDArray[np.float64] = np.diag(k - k[:, chosen] @ np.linalg.solve(inner, k[chosen]))
    return left


def test_each_choice_tells_most_after_those_before_it() -> None:
    rng = np.random.default_rng(1)
    unit = rng.normal(size=(40, 4))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    some = scored(rng.normal(scale=3, size=40).tolist(), unit, rng.integers(0, 2, 40).tolist())
    judged = np.array([5, 6])
    candidate = np.arange(40) % 4 != 0
    candidate[judged] = False
    chosen = most_telling(some, judged, candidate, count=6).tolist()
    assert len(set(chosen)) == 6
    assert all(candidate[chosen])
    for place in range(6):
        before = [5, 6, *chosen[:place]]
        gains = [
            brute_force_gain(some, before, row) if candidate[row] and row not in before else -1 for row in range(40)
        ]
        assert gains[chosen[place]] == pytest.approx(max(gains), rel=1e-4)


def test_of_copies_one_is_asked_for_and_never_more_than_there_are() -> None:
    copies = scored([0.0] * 6, np.repeat(np.eye(3), 2, axis=0))
    everything = np.ones(6, bool)
    assert {row // 2 for row in most_telling(copies, NONE, everything, count=3).tolist()} == {0, 1, 2}
    assert sorted(most_telling(copies, NONE, everything).tolist()) == list(range(6))
    assert most_telling(copies, np.arange(2), ~everything).tolist() == []


def test_many_judgements_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "MOST_JUDGED", 4)
    many = Judgements(np.arange(10, 20), np.arange(10) % 2 == 0).some(seed=0)
    assert len(many.rows) == 4
    assert (many.right == (many.rows % 2 == 0)).all()


def test_numbers_are_standardised_and_odd_ones_cut() -> None:
    score = np.append(np.linspace(0.1, 0.9, 199), 0.0)
    found = scored_labels(score, score, np.full(200, 0.5), np.zeros(200, np.int64), np.zeros((200, 2), np.float16))
    assert expit(found.odds) == pytest.approx(score, abs=1e-9)
    assert np.abs(found.facts[:, 0]).max() < 4
    assert (found.facts[:, 1] == 0).all()


def test_descriptions_keep_what_is_alike() -> None:
    rng = np.random.default_rng(0)
    kind = np.arange(60) % 3
    unit = np.eye(3, 20)[kind] + 0.05 * rng.normal(size=(60, 20))
    unit = (unit / np.linalg.norm(unit, axis=1, keepdims=True)).astype(np.float32)
    described = find_axes(unit, seed=0).describe(unit).astype(np.float64)
    cosine = described @ described.T
    assert np.diag(cosine) == pytest.approx(1, abs=1e-2)
    assert cosine[kind[:, None] == kind].min() > 0.5 > 0 > cosine[kind[:, None] != kind].max()
