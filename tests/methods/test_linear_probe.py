"""The linear probe: the network gives the logits of the regression, and is not trained."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from somnet.methods.features import training_features
from somnet.methods.linear_probe import LinearProbe
from somnet.methods.logistic import best_out_of_fold, deal_folds

if TYPE_CHECKING:
    from tests.conftest import Toy

    MakeToy = Callable[..., Toy]


def probed(made: "Toy", out: Path) -> LinearProbe:
    with torch.enable_grad():
        made.trainer(out).run()
    assert isinstance(made.method, LinearProbe)
    return made.method.eval()


@torch.no_grad()
def test_the_network_gives_the_logits_of_the_regression(toy: "MakeToy", tmp_path: Path) -> None:
    """What scikit-learn says of standardised features, the network says of images."""
    made = toy("linear-probe")
    method = probed(made, tmp_path)
    half = training_features(method.network, made.bag_pass)
    features = half.float().numpy()
    fold = deal_folds(made.labels, 5, made.config.seed)
    strength, _ = best_out_of_fold(half.numpy(), made.labels, 3, fold)
    x = (features - features.mean(axis=0)) / features.std(axis=0)
    expected = LogisticRegression(C=strength, max_iter=300).fit(x, made.labels).decision_function(x)
    assert method.network.classifier(half.float()).numpy() == pytest.approx(expected, abs=1e-4)
    assert method.predict(made.maps).numpy() == pytest.approx(expected, abs=5e-3)  # features were rounded to be fitted
    assert np.ptp(expected, axis=0).min() > 0.5  # images differ by much more


def test_nothing_but_the_classifier_changes(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("linear-probe")
    before = {name: tensor.clone() for name, tensor in made.method.network.state_dict().items()}
    after = probed(made, tmp_path).network.state_dict()
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed == ["classifier.weight", "classifier.bias"]
    assert sum(phase.epochs * phase.passes for phase in made.method.plan()) == 0


@torch.no_grad()
def test_the_score_is_the_out_of_fold_probability(toy: "MakeToy", tmp_path: Path) -> None:
    made = toy("linear-probe", **{"linear_probe.folds": 3})
    method = probed(made, tmp_path)
    features = training_features(method.network, made.bag_pass).numpy()
    _, held_out = best_out_of_fold(features, made.labels, 3, deal_folds(made.labels, 3, made.config.seed))
    seen = method.inspect(made.batches(1)[0])
    assert seen.label_score.numpy() == pytest.approx(held_out[np.arange(10), made.labels], abs=1e-6)
    assert float(seen.label_score[9]) < 1e-6  # the only image of its class: out of fold nobody knows it
    assert torch.allclose(seen.probabilities, method.predict(made.maps).softmax(dim=1))
