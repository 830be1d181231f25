"""DivideMix: the division, the targets and the losses by hand."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from somnet.core.types import BagBatch, Phase
from somnet.errors import ExportError
from somnet.exports.network import export
from somnet.methods.divide_mix import DivideMix, balance, clean_probability, mean_of, sharpen, targets
from somnet.nn.joined import JoinedNetwork
from somnet.runs.run import Run
from somnet.training.train import train

if TYPE_CHECKING:
    from tests.conftest import Tiny, Toy

    MakeToy = Callable[..., Toy]


MUCH_NOISE = {"train.epochs": 8, "divide_mix.unlabelled": 25.0}


def divide_mix(made: "Toy") -> DivideMix:
    assert isinstance(made.method, DivideMix)
    return made.method


def test_low_losses_are_clean() -> None:
    losses = torch.tensor([0.1, 0.2, 0.15, 0.12, 3.0, 2.8, 3.2, 0.18])
    assert clean_probability(losses, seed=0).round().tolist() == [1, 1, 1, 1, 0, 0, 0, 1]


@pytest.mark.parametrize("losses", [[0.7], [0.7, 0.7, 0.7]])
def test_losses_that_are_all_the_same_are_clean(losses: list[float]) -> None:
    assert clean_probability(torch.tensor(losses), seed=0).tolist() == [1.0] * len(losses)


def test_two_losses_are_enough() -> None:
    assert clean_probability(torch.tensor([0.1, 4.0]), seed=0).round().tolist() == [1, 0]


def test_sharpening_by_hand() -> None:
    assert sharpen(torch.tensor([[0.6, 0.4]]), 0.5)[0].tolist() == pytest.approx([0.36 / 0.52, 0.16 / 0.52])
    assert sharpen(torch.tensor([[0.6, 0.4]]), 1.0)[0].tolist() == pytest.approx([0.6, 0.4])


def test_targets_by_hand() -> None:
    label, clean = torch.tensor([0, 0]), torch.tensor([0.8, 0.3])
    own, both = torch.tensor([[0.5, 0.5]] * 2), torch.tensor([[0.1, 0.9]] * 2)
    found = targets(label, clean, own, both, threshold=0.5, temperature=1.0)
    assert found[0].tolist() == pytest.approx([0.8 + 0.2 * 0.5, 0.2 * 0.5])  # refined
    assert found[1].tolist() == pytest.approx([0.1, 0.9])  # guessed


def test_mean_of_the_chosen() -> None:
    values = torch.tensor([1.0, 5.0, 9.0])
    assert float(mean_of(values, torch.tensor([True, False, True]))) == 5.0
    assert float(mean_of(values, torch.tensor([False] * 3))) == 0.0


def test_balance_by_hand() -> None:
    even, quarter = torch.tensor([[0.2, 0.8], [0.8, 0.2]]), torch.tensor([[0.25, 0.75]])
    assert float(balance(even)) == pytest.approx(0.0, abs=1e-6)
    assert float(balance(quarter)) == pytest.approx(-0.5 * math.log(0.5) - 0.5 * math.log(1.5))


def two_views(made: "Toy", second: torch.Tensor | None = None) -> BagBatch:
    """All images, each with two views; the second one is the same, unless given."""
    batch = made.batches(1)[0]
    views = torch.stack([batch.images, batch.images if second is None else second], dim=1)  # (I, 2, ...)
    return replace(batch, images=views.flatten(0, 1))


@pytest.mark.parametrize(("epochs", "init", "mix"), [(1, 1, 0), (2, 1, 1), (5, 1, 4), (20, 2, 18)])
def test_two_views_through_two_networks_take_four_passes(toy: "MakeToy", epochs: int, init: int, mix: int) -> None:
    plan = toy("divide-mix", **{"train.epochs": epochs}).method.plan()
    assert [(phase.name, phase.views) for phase in plan] == [("init", 1)] + [("mix", 2)] * mix
    assert plan[0].epochs == init
    assert all(phase.passes == len(phase.lr) * phase.views for phase in plan)


def test_the_networks_differ_from_the_start(toy: "MakeToy") -> None:
    method, images = divide_mix(toy("divide-mix")), toy("divide-mix").batches(1)[0].images
    with torch.no_grad():
        assert not torch.equal(method.network.part(0, images), method.network.part(1, images))
    assert all(p.requires_grad for module in method.network.modules_of(1) for p in module.parameters())


def test_both_networks_are_tested_together(toy: "MakeToy") -> None:
    made = toy("divide-mix")
    method, images = divide_mix(made), made.batches(1)[0].images
    with torch.no_grad():
        _, bias = method.network.modules_of(1)[1].parameters()
        bias.copy_(torch.tensor([0.0, 0.0, 50.0]))  # the second is sure of class 2
        together, apart = method.eval().predict(images), [method.network.part(k, images) for k in (0, 1)]
    assert torch.allclose(together, apart[0] + apart[1], atol=1e-5)
    assert together.argmax(dim=1).tolist() == [2] * 10


def test_the_weight_of_unlabelled_images_rises(toy: "MakeToy") -> None:
    method = divide_mix(toy("divide-mix", **MUCH_NOISE, **{"divide_mix.ramp_share": 0.5}))
    stretches = [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)]
    weights = [method._weight(Phase("mix", 1, {}, anneal=stretch)) for stretch in stretches]
    assert weights == [0.0, 12.5, 25.0, 25.0]


def test_images_are_divided_by_their_losses(toy: "MakeToy") -> None:
    made = toy("divide-mix", **{"train.epochs": 8})
    method = divide_mix(made)
    with torch.no_grad():
        for number, preferred in ((0, 0), (1, 1)):
            weight, bias = method.network.modules_of(number)[1].parameters()
            weight.zero_()
            bias.copy_(5.0 * torch.eye(3)[preferred])  # finds its class right, the others wrong
        method.eval().prepare(method.plan()[-1], made.bag_pass, torch.Generator().manual_seed(0))
    assert method.clean[:, 0].round().tolist() == [1.0] * 5 + [0.0] * 5
    assert method.clean[:, 1].round().tolist() == [0.0] * 5 + [1.0] * 4 + [0.0]
    assert method.metrics() == {"labelled/first": 4.0, "labelled/second": 5.0}  # by the other one's view
    with torch.no_grad():
        score = method.inspect(made.batches(1)[0]).label_score
    assert score.tolist() == pytest.approx(method.clean.mean(dim=1).tolist())


@pytest.mark.parametrize(("clean", "absent"), [(1.0, "unlabelled"), (0.0, "labelled")])
def test_a_set_may_be_empty(toy: "MakeToy", clean: float, absent: str) -> None:
    made = toy("divide-mix", **MUCH_NOISE)
    method, phase = divide_mix(made), Phase("mix", 1, {}, anneal=(0.5, 1.0))
    method.clean.fill_(clean)
    losses = method.step(two_views(made), phase).losses
    assert set(losses) == {"labelled", "unlabelled", "balance"}
    assert float(losses[absent].detach()) == 0.0
    assert all(math.isfinite(float(loss.detach())) for loss in losses.values())
    assert all(float(loss.detach()) > 0 for name, loss in losses.items() if name != absent)


@pytest.mark.parametrize(("unlabelled", "seen"), [(0.0, [20, 6]), (25.0, [20, 20])])
@pytest.mark.parametrize("network", [0, 1])
def test_unlabelled_images_are_learnt_only_if_they_have_a_weight(
    toy: "MakeToy", network: int, unlabelled: float, seen: list[int]
) -> None:
    made = toy("divide-mix", **{**MUCH_NOISE, "divide_mix.unlabelled": unlabelled})
    method = divide_mix(made)
    method.clean.fill_(0.0)
    method.clean[:3, 1 - network] = 1.0  # three images are labelled in this network's eyes, none in the other's
    passes = list[int]()
    method.network.tail.parts[network].register_forward_pre_hook(lambda _, inputs: passes.append(len(inputs[0])))
    losses = method.step(two_views(made), Phase("mix", 1, {}, anneal=(0.5, 1.0))).losses
    assert passes == seen  # two views of all images for the guess, then those that it learns
    assert (float(losses["unlabelled"].detach()) > 0) == (unlabelled > 0)


def test_guesses_are_the_mean_over_the_views(toy: "MakeToy") -> None:
    made = toy("divide-mix")
    method, batch = divide_mix(made), made.batches(1)[0]
    other = batch.images.flip(0)
    with torch.no_grad():
        found = method.eval()._guess(1, two_views(made, other))
        by_hand = sum(method.network.part(1, images).softmax(dim=1) / 2 for images in (batch.images, other))
    assert torch.allclose(found, by_hand, atol=1e-6)  # type: ignore[arg-type]


def test_pixels_are_mixed_as_numbers(toy: "MakeToy") -> None:
    made = toy("divide-mix", **{"train.epochs": 8, "model.freeze": "none"})
    method, batch = divide_mix(made), two_views(made)
    seen = []
    method.network.tail.parts[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    pixels = torch.randint(0, 256, batch.images.shape, dtype=torch.uint8)
    losses = method.train().step(replace(batch, images=pixels), method.plan()[-1]).losses
    assert all(math.isfinite(float(loss.detach())) for loss in losses.values())
    normal = method.network.normalise(pixels)
    guessed, mixed = seen
    assert torch.allclose(guessed, normal)
    assert not torch.allclose(mixed, normal)
    assert mixed.amin() >= normal.amin() - 1e-4  # a mean of two images does not leave their range
    assert mixed.amax() <= normal.amax() + 1e-4


@pytest.mark.slow
def test_a_run_is_read_predicted_and_exported_with_both_networks(data: Path, tiny: "Tiny", tmp_path: Path) -> None:
    trained = train(data, tiny.config("divide-mix", **{"train.epochs": 6}), out=tmp_path / "run", workers=0).path
    run = Run(trained)
    assert isinstance(run.model, JoinedNetwork)
    assert run.evaluate(data, device="cpu", workers=0).top1 == pytest.approx(run.summary["test"]["top1"])
    image = next((data / "test").rglob("*.png"))
    [seen] = run.predict(image, device="cpu", evidence=True)
    [plain] = run.predict(image, device="cpu")
    assert seen.labels == plain.labels
    assert seen.probabilities == pytest.approx(plain.probabilities, abs=1e-5)
    assert seen.evidence is not None
    with pytest.raises(ExportError, match="onnx"):
        export(run, "timm", tmp_path / "timm")
    pytest.importorskip("onnxscript")
    assert (
        export(run, "onnx", tmp_path / "onnx") / "model.onnx"
    ).is_file()  # its logits are compared while it is written
