"""The comparison of models of trust: in a small setting, more trust costs less accuracy."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

_SPEC = importlib.util.spec_from_file_location("trust", Path(__file__).resolve().parents[2] / "benchmarks" / "trust.py")
trust = importlib.util.module_from_spec(_SPEC)
sys.modules["trust"] = trust  # a dataclass looks its module up
_SPEC.loader.exec_module(trust)


@pytest.mark.long
@pytest.mark.needs_data
def test_more_trust_costs_less_accuracy():
    devices = trust.Devices(clients=100)
    nobody, server, clear = (way(devices, 8.0, 1) for way in (trust.local, trust.central, trust.unprotected))
    assert nobody < server < clear  # 0.5, 0.75 and 0.8 or so
    assert trust.distributed(devices, 1e4, 1) > server - 0.05


@pytest.mark.slow
@pytest.mark.needs_data
def test_clients_that_are_trained_at_once_are_trained_as_one_by_one():
    devices, weights = trust.Devices(clients=3), np.random.default_rng(1).normal(0, 0.1, (50, 10))
    together = devices.updates(weights, [0, 2])
    for row, client in zip(together, (0, 2), strict=True):
        own, pixels, labels = weights.copy(), devices.data[0][client].astype(float), devices.data[1][client]
        for _ in range(trust.STEPS):
            chances = np.exp(pixels @ own)
            chances /= chances.sum(axis=1, keepdims=True)
            own -= trust.RATE * pixels.T @ (chances - labels) / len(pixels)
        assert row == pytest.approx((own - weights).ravel(), abs=1e-5)
