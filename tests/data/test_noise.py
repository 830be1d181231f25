"""Noise recipes: what can be asked for, and exact shares of wrong labels."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from somnet.data.noise import NoiseRecipe, draw_labels, parse_noise
from somnet.errors import ConfigError


def noisy_labels(
    recipe: NoiseRecipe, count: int = 200, classes: int = 4, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """True labels, training images (the first three quarters), given labels, foreign images."""
    labels = np.arange(count) % classes
    train = np.arange(count) < 3 * count // 4
    return labels, train, *draw_labels(labels, train, classes, recipe, np.random.default_rng(seed))


# --- reading a recipe


def test_a_recipe_is_read() -> None:
    assert parse_noise("flip=0.4,open=0.1,paste=some/where,seed=7") == NoiseRecipe(
        flip=0.4, open=0.1, paste=Path("some/where"), seed=7
    )
    assert parse_noise(" asymmetric = .25 ") == NoiseRecipe(asymmetric=0.25)
    assert parse_noise("flip=0.33,asymmetric=0.56,open=0.11,foreign=x").scenes() == Path("x")  # all, to rounding


def test_the_home_folder_may_be_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert parse_noise("paste=~/photos").paste == Path("/home/me/photos")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "flip, asymmetric, open, paste, paste_test, foreign, seed"),
        ("flip", "flip=0.4"),
        ("flip=", "flip=0.4"),
        ("paste=", "paste=DIR"),
        ("flip=0.4,", "flip=0.4"),
        ("flip=0,4", "'4'"),
        ("flips=0.4", "'flips=0.4'"),
        ("flip=0.1,flip=0.2", "at most once"),
        ("flip=many", "a number from 0 to 1"),
        ("flip=1.5", "a number from 0 to 1"),
        ("flip=-0.1", "a number from 0 to 1"),
        ("flip=nan", "a number from 0 to 1"),
        ("flip=0.6,asymmetric=0.5", "exceed all images"),
        ("open=0.1", "foreign=DIR or paste=DIR"),
        ("flip=0.1,foreign=x", "leave out foreign"),
        ("seed=1.5", "a whole number"),
        ("seed=-1", "from 0 on"),
    ],
)
def test_a_bad_recipe_says_what_to_write(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_noise(text)
    assert told in str(error.value)


# --- which labels


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 1.0])
def test_flips_have_an_exact_share_and_never_keep_the_label(share: float) -> None:
    labels, train, given_labels, foreign = noisy_labels(NoiseRecipe(flip=share))
    assert (given_labels != labels)[train].sum() == round(share * 150)
    assert (given_labels == labels)[~train].all()
    assert not foreign.any()


def test_flips_are_even_over_the_other_classes() -> None:
    labels, _, given_labels, _ = noisy_labels(NoiseRecipe(flip=1.0), count=16_000)
    for label in range(4):
        mine = (labels == label) & (given_labels != labels)
        counts = np.bincount(given_labels[mine], minlength=4)  # (C,)
        assert counts[label] == 0
        assert np.delete(counts, label) == pytest.approx([1000] * 3, rel=0.12)  # 3.8 standard deviations


def test_flips_fall_on_all_classes_alike() -> None:
    labels, train, given_labels, _ = noisy_labels(NoiseRecipe(flip=0.4), count=16_000)
    counts = np.bincount(labels[(given_labels != labels) & train], minlength=4)
    assert counts == pytest.approx([1200] * 4, rel=0.12)


def test_asymmetric_noise_goes_to_the_next_class() -> None:
    labels, train, given_labels, _ = noisy_labels(NoiseRecipe(asymmetric=0.4))
    wrong = given_labels != labels
    assert wrong.sum() == 60
    assert not wrong[~train].any()
    assert (given_labels[wrong] == (labels[wrong] + 1) % 4).all()
    assert set(labels[wrong]) == {0, 1, 2, 3}  # the last one goes to the first


def test_kinds_of_noise_share_the_images_among_them() -> None:
    recipe = NoiseRecipe(flip=0.2, asymmetric=0.3, open=0.5, paste=Path("x"))
    labels, train, given_labels, foreign = noisy_labels(recipe)
    assert foreign.sum() == 75
    assert (given_labels != labels).sum() == 75
    assert (foreign ^ (given_labels != labels))[train].all()  # an image has one kind of noise


def test_one_class_alone_cannot_be_flipped() -> None:
    labels, _, given_labels, _ = noisy_labels(NoiseRecipe(flip=0.4, asymmetric=0.4), classes=1)
    assert (given_labels == labels).all()


shares = st.floats(0, 1, allow_subnormal=False)


@settings(max_examples=200)
@given(
    labels=st.lists(st.integers(-1, 6), max_size=60),
    train=st.data(),
    parts=st.tuples(shares, shares, shares, shares),
    seed=st.integers(0, 2**32),
)
def test_draw_labels_holds_for_any_labels(
    labels: list[int], train: st.DataObject, parts: tuple[float, float, float, float], seed: int
) -> None:
    given_labels = np.array(labels, np.int64)
    mask = np.array(train.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels))), bool)
    mask &= given_labels >= 0  # what has no label is never trained on
    whole = sum(parts) or 1.0
    flip, asymmetric, opened = (part / whole for part in parts[:3])
    recipe = NoiseRecipe(flip, asymmetric, opened, paste=Path("x"))
    noisy, foreign = draw_labels(given_labels, mask, 7, recipe, np.random.default_rng(seed))
    again, foreign_again = draw_labels(given_labels, mask, 7, recipe, np.random.default_rng(seed))
    assert (noisy == again).all()
    assert (foreign == foreign_again).all()
    wrong = noisy != given_labels
    assert not (wrong | foreign)[~mask].any()
    assert not (wrong & foreign).any()
    assert ((noisy >= 0) & (noisy < 7))[mask].all()
    assert abs(foreign.sum() - opened * mask.sum()) <= 1
    assert abs(wrong.sum() - (flip + asymmetric) * mask.sum()) <= 1
    assert Counter(given_labels) == Counter(labels)  # the input is left alone
