"""Classes that are harder to tell: the likelihood by hand, and what is estimated where it is known."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from somnet.methods.class_scales import fit_scales, scales_loss
from somnet.methods.label_posterior import HeardLabels, Posterior

EVEN = np.array([0.5, 0.5])


def test_the_likelihood_by_hand_and_its_gradient() -> None:
    """z = (1, -1) with s = (2, 1) and b = (0, 0.5): logits 2 and -0.5; the second label is beyond doubt."""
    z, labels, doubtful = np.array([[1.0, -1.0], [1.0, -1.0]]), np.array([0, 1]), np.array([True, False])
    x = np.array([2.0, 1.0, 0.0, 0.5, 0.2])
    first = 1 / (1 + np.exp(-2.5))
    by_hand = -np.log(0.8 * first + 0.2 * 0.5) - np.log(1 - first) + (1 + 0.25) / 2
    loss, slope = scales_loss(x, z, labels, EVEN, doubtful)
    assert loss == pytest.approx(by_hand, abs=1e-6)
    numeric = approx_fprime(x, lambda at: scales_loss(at, z, labels, EVEN, doubtful)[0], 1e-6)
    assert slope == pytest.approx(numeric, abs=1e-4)


def test_scales_and_biases_are_found() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(6000, 3))
    z -= z.mean(axis=1, keepdims=True)
    odds = np.exp(z * (1.0, 1.0, 0.5) + (0.0, 0.0, 1.0))
    labels = np.array([rng.choice(3, p=row / row.sum()) for row in odds])
    posterior = Posterior(np.array([1.0, 0.0]), 0.005, np.bincount(labels) / len(labels))
    heard = HeardLabels(z[None].astype(np.float32), labels, np.ones(len(labels), bool))
    found = fit_scales(posterior, heard)
    assert found.scale == pytest.approx([1.0, 1.0, 0.5], abs=0.12)
    assert found.bias - found.bias[0] == pytest.approx([0.0, 0.0, 1.0], abs=0.15)
    assert found.wrong < 0.03
    told = found.log_likelihoods(heard).mean()
    as_it_was = np.log(posterior.shown(heard.evidence)[np.arange(len(labels)), labels]).mean()
    assert told > as_it_was + 0.05
