"""What is refused because it would cost privacy, or a promise, and that no other test asks for: one case a guard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noisette as nz
from noisette.accounting import Ledger
from noisette.accounting.composition import randomized_response_delta
from noisette.mechanisms.build import register
from noisette.mechanisms.vector.attributes import SampledAttributes, by_attribute
from noisette.regression import Design
from noisette.regression.inference import Inference
from noisette.regression.moments import OneShot


@pytest.mark.parametrize("repeated", [[0, 1, 1], [3, 2, 0, 3]])
def test_an_example_that_a_loader_would_draw_twice(repeated: list[int]) -> None:
    """It would count several times, where the guarantee is about one."""
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader, Subset, SubsetRandomSampler, TensorDataset

    from noisette.sgd import PoissonLoader

    data, rng = TensorDataset(torch.arange(8.0)), np.random.default_rng(1)
    with pytest.raises(ValueError, match="SubsetRandomSampler without repetitions"):
        PoissonLoader.like(DataLoader(data, batch_size=2, sampler=SubsetRandomSampler(repeated)), rng=rng)
    with pytest.raises(ValueError, match="Subset without repetitions"):
        PoissonLoader.like(DataLoader(Subset(data, repeated), batch_size=2, shuffle=True), rng=rng)
    once = sorted(set(repeated))
    PoissonLoader.like(DataLoader(data, batch_size=2, sampler=SubsetRandomSampler(once)), rng=rng)
    PoissonLoader.like(DataLoader(Subset(data, once), batch_size=2, shuffle=True), rng=rng)


def test_the_published_form_of_geodp_has_one_way_to_average() -> None:
    pytest.importorskip("torch")
    from noisette.sgd.noise.geodp import Geo

    Geo(as_published=True, average="gradient")
    with pytest.raises(ValueError, match="The published form converts the mean gradient"):
        Geo(as_published=True, average="angles")


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"), [(0, 0, "epsilon=0 > 0"), (-1.0, 0, "epsilon"), (1, 1.5, "<= 1")]
)
def test_limits_of_an_account(epsilon: float, delta: float, message: str, tmp_path: Path) -> None:
    with Ledger(tmp_path / "budget.db") as ledger:
        with pytest.raises(ValueError, match=message):
            ledger.open_account("device", epsilon, delta)
        ledger.open_account("device", 1e-12, 1)


def test_a_total_below_zero() -> None:
    assert randomized_response_delta(1.0, 2, 0.0) > 0
    with pytest.raises(ValueError, match=r"Expected total=-1\.0 >= 0"):
        randomized_response_delta(1.0, 2, -1.0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[[0, 0.5], [1, 0.5]], [[1, 0.5], [0, 0.5]]], "increasing order"),
        ([[[0, 0.5], [0, 0.5]]], "increasing order"),
        ([[[0, 0.5], [3, 0.5]]], "Expected attributes below 3"),
        ([[[0, 0.5], [-1, 0.5]]], "Expected attributes below 3"),
        ([[[0.5, 0.5], [1, 0.5]]], "Expected attributes below 3"),
        ([[[np.nan, 0.5], [1, 0.5]]], "Expected attributes below 3"),
    ],
)
def test_attributes_of_which_one_is_reported_twice_or_is_not_there(rows: Any, message: str) -> None:
    mechanism = SampledAttributes("piecewise", epsilon=2.0, domain=nz.Attributes((nz.Interval(),) * 3), report=2)
    with pytest.raises(ValueError, match=message):
        mechanism._tally(np.asarray(rows, dtype=np.float64), None)
    order, ends = by_attribute(np.asarray([[0, 2], [1, 2]]), 3)
    assert (order.tolist(), ends.tolist()) == ([0, 2, 1, 3], [0, 1, 2, 4])


def test_a_frame_and_a_part_that_are_not_there() -> None:
    pytest.importorskip("cryptography")
    from noisette.shuffler.receipt import part_of
    from noisette.shuffler.wire import Frame, Malformed, Round

    with pytest.raises(Malformed, match="Expected blocks below 3, got 3"):
        Frame.decode(Frame(Round("run", 1, 3), [(2, b"abc"), (3, b"def")]).encode())
    assert part_of("0123456789abcdef0123456789abcdef.1.2")[1:] == (1, 2)
    with pytest.raises(Malformed, match="Expected a sequence below 2, got 2"):
        part_of("0123456789abcdef0123456789abcdef.2.2")


def test_what_a_federation_cannot_rest_on() -> None:
    pytest.importorskip("flwr")
    from noisette.federated.central.correlated import BandedStrategy
    from noisette.federated.clipping import Ranges
    from noisette.federated.distributed.flower import masks

    for numerators in ((), (0, 1), (-1,)):
        with pytest.raises(ValueError, match="C has an inverse only then"):
            BandedStrategy(numerators)
    for centre in (np.nan, np.inf):
        with pytest.raises(ValueError, match="Expected finite centres"):
            Ranges((0.0, centre), (1.0, 1.0))
    with pytest.raises(ValueError, match=r"modulo 2\^32"):
        masks(b"key", 2**31, [(2,)])
    assert [part.shape for part in masks(b"key", 2**32, [(2,), (1, 3)])] == [(2,), (1, 3)]


@pytest.mark.parametrize("kind", [Inference, OneShot])
def test_error_bars_need_the_coding_that_they_are_for(kind: Any) -> None:
    kind(Design((nz.Interval(),)), nz.Interval(), 1.0)
    with pytest.raises(ValueError, match="Expected a design of coding='unit', got 'signed'"):
        kind(Design((nz.Interval(),), coding="signed"), nz.Interval(), 1.0)


def test_a_name_of_the_catalogue_is_not_taken_over() -> None:
    class Other(nz.Laplace):
        pass

    with pytest.raises(ValueError, match="has another mechanism 'laplace'"):
        register(Other)
    assert nz.CATALOGUE["laplace"] is nz.Laplace


CAMPAIGN = {"id": "commute", "epsilon": 2.0, "users": 100, "attributes": [{"name": "age", "range": [16, 80]}]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "Commute 2026"}, "to be small letters, digits and dashes"),
        ({"id": 7}, "to be small letters, digits and dashes"),
        ({"form": {"questions": {"age": "How old?"}}}, "to have some of by, about and questions"),
        ({"form": ["by"]}, "to have some of by, about and questions"),
        ({"form": {"colour": "red"}}, "Unknown 'colour' in form"),
        ({"form": {"questions": {"size": {"ask": "?"}}}}, "Unknown 'size' in questions of form"),
        ({"form": {"questions": {"age": {"hint": "?"}}}}, "Unknown 'hint' for 'age' in form"),
        ({"form": {"questions": {"age": {"step": 0}}}}, "step of age"),
        ({"attributes": [{"name": "age", "range": 80}]}, "to be two numbers"),
        ({"attributes": [{"name": "age", "range": [16, 40, 80]}]}, "to be two numbers"),
    ],
)
def test_campaigns_that_say_what_nobody_reads(changes: dict[str, Any], message: str) -> None:
    from noisette.survey.campaigns import Campaign

    found = Campaign.from_dict(CAMPAIGN | {"form": {"by": "us", "questions": {"age": {"ask": "How old?", "step": 1}}}})
    assert found.users == 100
    with pytest.raises(ValueError, match=message):
        Campaign.from_dict(CAMPAIGN | changes)


def test_surveys_whose_questions_or_groups_have_no_name_of_their_own() -> None:
    with pytest.raises(ValueError, match="questions of distinct names"):
        nz.Survey([nz.Number("a", 0, 1), nz.Choice("a", ["x", "y"])], epsilon=1.0)
    groups: Any = [("region", ["a", "b"])]
    with pytest.raises((TypeError, ValueError), match="to name groups with their values"):
        nz.Survey([nz.Number("a", 0, 1)], epsilon=1.0, groups=groups)


def test_predictions_of_what_cannot_be() -> None:
    from noisette.prediction import Personalised, deviation
    from noisette.prediction.sweeps import break_even_curve

    with pytest.raises(ValueError, match="it bounds an absolute deviation"):
        deviation(nz.Laplace(1.0), users=10).probability_within([0.5, -0.1])
    wrong: Any = "users"
    with pytest.raises(ValueError, match="Expected over='users'"):
        break_even_curve("laplace", "piecewise", over=wrong, points=[1.0], users=10)
    with pytest.raises(ValueError, match="Expected mechanisms that estimate means, got 'grr'"):
        Personalised((nz.GeneralizedRandomizedResponse(1.0, nz.Categorical(3)),))


@pytest.mark.parametrize("given", [{}, {"inputs": (0.0, 1.0)}, {"claimed": 1.0}])
def test_a_function_is_audited_on_inputs_and_a_claim(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Expected inputs=\(x, other, ...\) and claimed=epsilon"):
        nz.audit(lambda x, n, rng: rng.normal(x, 1, n), samples=1000, **given)


def test_a_client_of_the_shuffler_keeps_its_secret(tmp_path: Path) -> None:
    from noisette.shuffler.clients import Clients, check_secret, enrol, read_credentials

    [first] = enrol(tmp_path / "clients.json", ["ann"], folder=tmp_path)
    name, secret = read_credentials(first)
    kept = (tmp_path / "clients.json").read_bytes()
    with pytest.raises(ValueError, match="'ann' is enrolled already"):
        enrol(tmp_path / "clients.json", ["bob", "ann"], folder=tmp_path)
    with pytest.raises(ValueError, match="'ann' is enrolled already"):
        Clients.read(tmp_path / "clients.json").enrol(["bob", "ann"])
    assert (tmp_path / "clients.json").read_bytes() == kept
    assert read_credentials(first) == (name, secret)
    assert not (tmp_path / "bob.json").exists()
    stored = json.loads(kept)["ann"]
    with pytest.raises(ValueError, match="this is what the shuffler keeps"):
        check_secret("ann", stored)
