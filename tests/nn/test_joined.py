"""Two networks as one: exactly the sum of their logits."""

import pytest
import torch

from somnet.config import ModelConfig
from somnet.errors import ExportError
from somnet.nn.backbones import Network, as_timm_model
from somnet.nn.joined import JoinedNetwork

TINY = {"name": "test_resnet", "pretrained": False, "imgsz": 64}


def parameters_of(joined: JoinedNetwork, number: int) -> list[torch.nn.Parameter]:
    return [parameter for module in joined.modules_of(number) for parameter in module.parameters()]


def made(freeze: str = "trunk") -> tuple[Network, JoinedNetwork, torch.Tensor]:
    torch.manual_seed(0)
    network = Network(ModelConfig.model_validate({**TINY, "freeze": freeze}), classes=4)
    joined = JoinedNetwork(network).eval()
    with torch.no_grad():
        for parameter in parameters_of(joined, 1):
            parameter.add_(0.1 * torch.randn(parameter.shape))  # as if each had been trained
    return network, joined, torch.randint(256, (3, 3, 64, 64), dtype=torch.uint8)


@pytest.mark.parametrize("freeze", ["trunk", "none"])
def test_the_logits_are_the_sum(freeze: str) -> None:
    network, joined, pixels = made(freeze)
    with torch.no_grad():
        inputs = joined.prepare(pixels)
        first, second = joined.part(0, inputs), joined.part(1, inputs)
        assert torch.equal(first, network(inputs))  # the first is the network that it was made of
        assert not torch.allclose(first, second, atol=0.1)
        assert torch.allclose(joined(inputs), first + second, atol=1e-5)
        assert torch.allclose(joined.evidence(inputs).mean(dim=(2, 3)), first + second, atol=1e-5)
        assert joined.image_features(inputs).shape == (3, joined.width) == (3, 2 * network.width)


def test_every_parameter_is_held_once() -> None:
    network, joined, _ = made()
    tensors = [tensor.data_ptr() for tensor in joined.state_dict().values() if tensor.numel()]
    assert len(set(tensors)) == len(tensors)
    trained = {id(p) for p in joined.parameters() if p.requires_grad}
    assert {id(p) for number in (0, 1) for p in parameters_of(joined, number)} == trained
    assert len(joined.state_dict()) < 2 * len(network.state_dict())  # one trunk for both


def test_a_part_learns_alone() -> None:
    _, joined, pixels = made()
    torch.autograd.backward(joined.part(1, joined.prepare(pixels)).sum())
    assert all(p.grad is None for p in parameters_of(joined, 0))
    assert all(p.grad is not None for p in parameters_of(joined, 1))


def test_training_mode_leaves_the_statistics_of_a_frozen_trunk_alone() -> None:
    _, joined, pixels = made()
    before = {name: tensor.clone() for name, tensor in joined.state_dict().items()}
    joined.train()(joined.prepare(pixels))
    assert all(torch.equal(tensor, before[name]) for name, tensor in joined.state_dict().items())


def test_timm_has_no_such_network() -> None:
    _, joined, _ = made()
    with pytest.raises(ExportError, match="onnx"):
        as_timm_model(joined, ModelConfig.model_validate({**TINY, "freeze": "trunk"}))
