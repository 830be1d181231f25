"""Any timm model as a feature map and a classifier."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from somnet.config import ModelConfig
from somnet.errors import ConfigError, ExportError, WeightsError
from somnet.nn.backbones import Network, as_timm_model, compile_networks

SMALL = 64


def network(name: str = "tf_efficientnet_lite0", freeze: str = "trunk", **settings: object) -> Network:
    settings = {"imgsz": SMALL, **settings}
    return Network(ModelConfig.model_validate({"name": name, "freeze": freeze, **settings}), classes=4)


def pictures(side: int = SMALL, count: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (count, 3, side, side), dtype=torch.uint8, generator=generator)


def norms(module: nn.Module) -> list[nn.Module]:
    return [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]


@pytest.mark.parametrize(
    ("name", "pretrained"),
    [("tf_efficientnet_lite0", True), ("resnet18", False), ("mobilenetv3_small_050", False)],
)
def test_trunk_and_tail_are_the_whole(name: str, pretrained: bool) -> None:
    torch.manual_seed(0)
    split = network(name, "trunk", pretrained=pretrained).eval()
    torch.manual_seed(0)
    whole = network(name, "none", pretrained=pretrained).eval()
    whole.classifier.load_state_dict(split.classifier.state_dict())
    with torch.no_grad():
        first, second = split(split.prepare(pictures())), whole(whole.prepare(pictures()))
    assert torch.allclose(first, second, atol=1e-4)
    assert float(first.std()) > 0


def test_trunk_is_most_of_the_network_and_never_trains() -> None:
    model = network()
    assert list(model.trunk.parameters())
    assert not any(value.requires_grad for value in model.trunk.parameters())
    assert all(value.requires_grad for value in model.tail.parameters())
    model.train()
    torch.autograd.backward(model(model.prepare(pictures())).sum())
    assert all(value.grad is None for value in model.trunk.parameters())
    assert all(value.grad is not None for value in model.tail.parameters())


def test_trunk_lane_keeps_all_batch_norm_statistics() -> None:
    model = network().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.autograd.backward(model(model.prepare(pictures(count=4))).sum())
    assert norms(model.tail)
    changed = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    assert changed == []


def test_trunk_lane_trains_on_the_same_logits_as_it_tests() -> None:
    model = network("resnet18", pretrained=False)
    inputs = model.prepare(pictures(count=4))
    with torch.no_grad():
        assert torch.allclose(model.train()(inputs), model.eval()(inputs), atol=1e-5)


def test_whole_network_updates_batch_norm_statistics() -> None:
    model = network("resnet18", "none", pretrained=False).train()
    norm = norms(model)[0]
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    before = norm.running_mean.clone()
    model(model.prepare(pictures(count=4)))
    assert not torch.equal(norm.running_mean, before)


def test_whole_network_trains_everything() -> None:
    assert all(value.requires_grad for value in network("resnet18", "none", pretrained=False).parameters())


def test_box_0_gives_the_image_feature() -> None:
    model = network().eval()
    with torch.no_grad():
        inputs = model.prepare(pictures())
        whole = torch.tensor([[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.5, 0.5]]] * 2)
        pooled, features = model.roi_features(inputs, whole), model.image_features(inputs)
    assert pooled.shape == (2, 2, model.width)
    assert torch.allclose(pooled[:, 0], features, atol=1e-5)
    assert not torch.allclose(pooled[:, 1], features, atol=1e-3)


def test_shapes_are_known_beforehand() -> None:
    model = network().eval()
    with torch.no_grad():
        inputs = model.prepare(pictures())
        assert tuple(inputs.shape[1:]) == model.input_shape
        assert model.maps(inputs).shape[:2] == (2, model.width)
        assert model(inputs).shape == (2, 4)


def test_half_precision_maps_are_accepted() -> None:
    model = network().eval()
    with torch.no_grad():
        inputs = model.prepare(pictures())
        assert torch.allclose(model(inputs.half()), model(inputs), atol=0.05)


def test_fingerprint_names_weights_and_size() -> None:
    first = network()
    assert network().trunk_fingerprint() == first.trunk_fingerprint()
    assert network(imgsz=96).trunk_fingerprint() != first.trunk_fingerprint()
    with torch.no_grad():
        next(first.trunk.parameters()).view(-1)[0].add_(1)
    assert network().trunk_fingerprint() != first.trunk_fingerprint()


def test_fingerprint_ignores_tail_and_classifier() -> None:
    model = network()
    before = model.trunk_fingerprint()
    with torch.no_grad():
        for value in [*model.tail.parameters(), *model.classifier.parameters()]:
            value.add_(1)
    assert model.trunk_fingerprint() == before


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resnet-50", "resnet50"),
        ("vit_small_patch14_dino", "vit_small_patch14_dinov2"),
        ("facebook/dinov2-small", "dinov2"),
        ("CLIP", "_clip_"),
    ],
)
def test_unknown_model_lists_near_names(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}'.*{near}"):
        network(name, pretrained=False)


def test_unknown_model_without_near_names_is_still_explained() -> None:
    with pytest.raises(ConfigError, match=r"timm\.list_models"):
        network("qqqqqq", pretrained=False)


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(ConfigError, match="--freeze none"):
        network("cait_xxs24_224", pretrained=False, imgsz=32)


@pytest.mark.parametrize(
    ("name", "side"), [("vit_tiny_patch16_224", 14), ("swin_tiny_patch4_window7_224", 7), ("resnet18", 7)]
)
def test_whole_models_give_maps(name: str, side: int) -> None:
    model = network(name, "none", pretrained=False, imgsz=224).eval()
    with torch.no_grad():
        maps = model.maps(model.prepare(pictures(224, 1)))
    assert maps.shape == (1, model.width, side, side)


def test_map_of_a_vision_transformer_keeps_its_place() -> None:
    """A change in one corner of the image changes that corner of the map most."""
    torch.manual_seed(0)
    model = network("vit_tiny_patch16_224", "none", pretrained=False, imgsz=224).eval()
    image = torch.zeros(1, 3, 224, 224, dtype=torch.uint8)
    changed = image.clone()
    changed[..., :16, 208:] = 255  # top right patch
    with torch.no_grad():
        difference = (model.maps(model.prepare(changed)) - model.maps(model.prepare(image))).abs().sum(dim=1)[0]
    assert divmod(int(difference.argmax()), 14) == (0, 13)


def test_weights_that_cannot_be_fetched_are_a_weights_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    def offline(*_: object, **__: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(WeightsError, match=r"--model tf_efficientnet_lite0"):
        network("resnet18")


def test_licence_of_the_weights_is_known() -> None:
    assert network().licence == "apache-2.0"
    assert "random" in network("resnet18", pretrained=False).licence


def test_a_twin_stays_as_it_was_and_shares_nothing() -> None:
    network = Network(ModelConfig(name="test_resnet", pretrained=False, imgsz=64), 3).eval()
    twin = network.twin()
    inputs = network.prepare(torch.zeros(2, 3, 64, 64, dtype=torch.uint8))
    before = network(inputs).detach()
    assert torch.equal(twin(inputs), before)
    with torch.no_grad():
        network.classifier.weight.add_(1.0)
    assert torch.equal(twin(inputs), before)
    assert not torch.equal(network(inputs), before)
    assert not any(parameter.requires_grad for parameter in twin.parameters())
    assert not any(name.startswith("trunk") for name in twin.state_dict())


@pytest.mark.parametrize(
    ("name", "freeze"), [("test_resnet", "trunk"), ("test_efficientnet", "none"), ("test_vit", "none")]
)
def test_timm_can_build_the_same_network(name: str, freeze: str) -> None:
    config = ModelConfig.model_validate({"name": name, "freeze": freeze, "pretrained": False, "imgsz": SMALL})
    model = Network(config, classes=4).eval()
    same, _ = as_timm_model(model, config)
    with torch.no_grad():
        expected = model(model.prepare(pictures(count=5)))
        assert torch.allclose(same(model.normalise(pictures(count=5))), expected, atol=1e-4)
    assert float(expected.std()) > 0


def test_a_model_with_more_in_its_head_is_refused_for_timm() -> None:
    config = ModelConfig(name="test_convnext", freeze="none", pretrained=False, imgsz=SMALL)
    with pytest.raises(ExportError, match="--format onnx"):
        as_timm_model(Network(config, classes=4).eval(), config)


def test_a_compiled_tail_keeps_its_names_and_its_copies_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = list[object]()

    def noted(call: Callable[..., Tensor], **_: object) -> Callable[..., Tensor]:
        compiled.append(call)
        return call

    network = Network(ModelConfig(name="test_resnet", pretrained=False, imgsz=64), classes=3).eval()
    inputs = network.prepare(torch.zeros(2, 3, 64, 64, dtype=torch.uint8))
    names, logits = list(network.state_dict()), network(inputs)
    monkeypatch.setattr(torch, "compile", noted)
    compile_networks(nn.ModuleList([network]))
    assert len(compiled) == 1
    assert list(network.state_dict()) == names
    assert torch.equal(network(inputs), logits)
    assert network.tail._compiled_call_impl is not None
    assert network.twin().tail._compiled_call_impl is None
