"""One builder for every mechanism, every domain and every budget; and what it says where something does not fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import noisette as nz
from noisette.core import Capabilities
from noisette.domains import from_spec
from noisette.domains._base import Described
from noisette.mechanisms.build import build, collecting, fit, fits, register, registered
from noisette.prediction.model.responses import entry_domain

UNEQUAL = nz.Box(2, (0.0, 1.0), (1.0, 3.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "domain",
    [
        nz.Interval(0, 10),
        nz.Grid(0, 10),
        nz.Categorical(5),
        nz.Box(4),
        UNEQUAL,
        nz.L2Ball(5, 2.0),
        nz.Sphere(5),
        nz.Attributes((2, 3)),
        nz.Attributes((nz.Interval(), nz.Interval(0, 9))),
        nz.TensorDomain((2, 3), 0, 1),
        nz.TensorBall((3,), 1.0),
    ],
    ids=str,
)
def test_whatever_fits_is_built_and_privatises_values_of_the_domain(domain: Any) -> None:
    found = [one for one in fits(domain, delta=1e-6) if one]
    assert found
    value = domain.clip(np.ones(domain.shape, dtype=int if isinstance(domain, nz.Categorical) else float))
    x = np.stack([value, value])
    for one in found:
        delta = 1e-6 if one.able.delta == "needed" else 0.0
        made = build(one.name, domain, epsilon=2.0, delta=delta)
        assert (made.guarantee.epsilon, made.guarantee.delta) <= (2.0 + 1e-9, delta)
        assert one.sampled == (made.name != one.name)
        assert made.aggregate(made.privatize(x.reshape(2, *made.domain.shape), rng=7)).users == 2


def test_every_mechanism_fits_something() -> None:
    domains = [nz.Interval(), nz.Grid(0, 5), nz.Categorical(3), nz.Box(3), nz.L2Ball(3), nz.TensorDomain((2, 2))]
    domains += [nz.TensorBall((4, 2), 1.0, mode=0), nz.Texts(8), nz.Selection(5, 2)]
    for name, cls in nz.CATALOGUE.items():
        options = {"inner": "duchi"} if cls.capabilities.composite else {}
        places = [*domains, nz.Attributes((nz.Interval(), nz.Interval()))]
        assert any(fit(name, domain, **options) for domain in places), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("piecewise", nz.Box(50, 0, 10)), lambda: nz.Sampled("piecewise", 1.0, domain=nz.Box(50, 0, 10))),
        (("privunit", nz.Box(4, -2, 2)), lambda: nz.PrivUnit(1.0, domain=nz.L2Ball(4, 4.0))),
        (("retain-or-noise", nz.Box(4, 0, 2)), lambda: nz.RetainOrNoise(1.0, domain=nz.TensorDomain((4,), 0, 2))),
        (("oue", nz.Attributes((2, 3))), lambda: nz.SampledAttributes("oue", 1.0, nz.Attributes((2, 3)))),
        (
            ("levelled", nz.Interval(0, 4)),
            lambda: nz.LevelledResponse.example(1.0).fitted(domain=nz.Interval(0, 4), epsilon=1),
        ),
    ],
)
def test_how_a_mechanism_for_something_else_serves(arguments: tuple[str, Any], wanted: Any) -> None:
    assert build(*arguments, epsilon=1.0).spec() == wanted().spec()


def test_options_report_and_levels_reach_the_mechanism() -> None:
    waved = nz.build("square-wave", nz.Box(5), epsilon=1.0, report=2, debiased=True)
    assert (waved.report, waved.inner_mechanism.debiased, waved.inner_mechanism.epsilon) == (2, True, 0.5)
    graded = nz.build("levelled", nz.Interval(0, 1), epsilon=1.5, edges=(0, 0.5, 1), epsilons=(1.0, 2.0))
    assert graded.edges == (0, 0.5, 1)
    assert math.isclose(graded.guarantee.epsilon, 1.5, rel_tol=1e-6)
    mixed = nz.build("sampled-attributes", nz.Attributes((2, nz.Interval())), epsilon=1.0, inner=("grr", "duchi"))
    assert [one.name for one in mixed.inner_mechanisms] == ["grr", "duchi"]


@pytest.mark.parametrize(
    ("name", "domain"), [("gaussian", nz.Interval(0, 3)), ("tensor-gaussian", nz.L2Ball(6)), ("matrix", None)]
)
def test_gaussian_noise_takes_a_mu(name: str, domain: Any) -> None:
    made = nz.build(name, domain or nz.TensorDomain((3,), 0, 9), mu=0.7)
    assert math.isclose(made.privacy_event().mu, 0.7, rel_tol=1e-6)


@pytest.mark.parametrize("name", ["adaptive-duchi", "retain-or-noise"])
def test_the_budget_of_one_entry(name: str) -> None:
    made = nz.build(name, nz.Box(3), epsilon=0.5, unit="element")
    assert made.entry.guarantee.epsilon == 0.5


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            ("grr", nz.Interval()),
            {},
            "grr does not take .*: it takes categories. Choose one .* as laplace",
        ),
        (("duchi-box", nz.Interval()), {}, "it takes vectors of a box"),
        (("privunit", UNEQUAL), {}, "takes vectors about zero: give one range -R,R"),
        (("retain-or-noise", UNEQUAL), {}, "takes entries of one range"),
        (("levelled", nz.Box(2)), {}, "its levels are those of one number"),
        (("levelled", nz.Interval(0, 2)), {"edges": (0, 1), "epsilons": (1.0,)}, "from end to end"),
        (("laplace", nz.Attributes((2, nz.Interval()))), {}, "takes numbers of an interval, got an attribute of"),
        (("sampled", nz.Box(2)), {}, "built from others"),
        (("laplace", nz.Interval()), {"delta": 0.1}, "has a pure guarantee: leave the delta of 0.1 out"),
        (("gaussian", nz.Interval()), {}, "no pure guarantee: give a delta"),
        (("laplace", nz.Interval()), {"report": 1}, "reports its input as a whole: leave report=1 out"),
        (("laplace", nz.Interval()), {"epsilon": None, "mu": 1.0}, "not Gaussian and has no mu"),
        (("gaussian", nz.Interval()), {"mu": 1.0}, "mu=1.0 or epsilon and delta, got both"),
        (("duchi-box", nz.Box(2)), {"unit": "element"}, "answers about the whole"),
        (("nothing", nz.Interval()), {}, "Unknown mechanism 'nothing'"),
        (("laplace", nz.Interval()), {"epsilon": -1.0}, "epsilon=-1.0 > 0"),
    ],
)
def test_what_does_not_fit_is_named_with_the_remedy(
    arguments: tuple[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        nz.build(*arguments, **{"epsilon": 1.0} | options)


def test_a_budget_is_needed() -> None:
    with pytest.raises(TypeError, match="Expected epsilon"):
        nz.build("laplace", nz.Interval())


def test_why_a_mechanism_does_not_collect() -> None:
    assert "holds the whole table" in collecting("matrix", nz.TensorDomain((4,))).obstacle
    assert "no pure guarantee" in collecting("gaussian", nz.Interval()).obstacle
    assert collecting("gaussian", nz.Interval(), delta=1e-6)
    assert "magnitude and angles" in collecting("angle-noise", nz.L2Ball(3)).obstacle


def test_registered_for_a_while() -> None:
    class Toy(nz.Duchi):
        name = "toy-pair"

    with registered(Toy):
        assert nz.build("toy-pair", nz.Interval(), epsilon=1.0).name == "toy-pair"
        assert nz.from_spec({"mechanism": "toy-pair", "epsilon": 1.0}).epsilon == 1.0
        with pytest.raises(ValueError, match="another mechanism 'toy-pair'"):
            register(type("Other", (nz.Laplace,), {"name": "toy-pair"}))
    with pytest.raises(ValueError, match="Unknown mechanism 'toy-pair'"):
        nz.build("toy-pair", nz.Interval(), epsilon=1.0)


def test_only_what_declares_itself_is_registered() -> None:
    with pytest.raises(TypeError, match=r"Expected Plain.capabilities to be a Capabilities. Inherit ScalarMechanism"):
        register(type("Plain", (), {"name": "plain", "kind": "mean", "citation": ""}))
    assert "plain" not in nz.CATALOGUE


def test_a_kind_of_domain_of_ones_own() -> None:
    """A class that is registered brings its kind of domain along: its description is read back, and plans know it."""

    @dataclass(frozen=True)
    class Diamond(Described):
        """Vectors the sizes of whose entries add up to one at most."""

        dims: int
        kind: ClassVar[str] = "diamond"
        diameter: ClassVar[float] = 2.0

        @property
        def shape(self) -> tuple[int, ...]:
            return (self.dims,)

        def contains(self, x: Any) -> Any:
            return np.abs(self._elements(x)).sum(axis=-1) <= 1 + 1e-12

        def clip(self, x: Any) -> Any:
            x = self._elements(x)
            return x / np.maximum(np.abs(x).sum(axis=-1, keepdims=True), 1.0)

    class Toy(nz.PrivUnitG):
        name = "toy-diamond"
        capabilities = Capabilities((Diamond,))

    with registered(Toy):
        assert from_spec({"kind": "diamond", "dims": 3}) == Diamond(3)
        assert [one.name for one in fits(Diamond(3)) if one] == ["toy-diamond"]
        assert entry_domain(Diamond(4)) == nz.Interval(-0.25, 0.25)
        with pytest.raises(ValueError, match="another kind of domain 'diamond'"):
            register(type("Other", (Toy,), {"name": "other", "capabilities": Capabilities((_Diamond,))}))
    with pytest.raises(ValueError, match="Unknown domain kind 'diamond'"):
        from_spec({"kind": "diamond", "dims": 3})


class _Diamond(Described):
    kind: ClassVar[str] = "diamond"
