"""Broken mechanisms whose noise is right wherever a test usually looks, and wrong around it: in real batches.

All values of a batch are different, or sorted, or there are seven of them; they come as a tuple, in another byte order,
from another thread, with another generator. Others send something beside the report: a class of its own, the memory
behind it, a note in its type, its length, a refusal, a warning. Each passed `check_mechanism` once.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow  # noqa: F401  # its columns are tried where it is loaded
import pytest

import noisette as nz
from noisette.testing import check_mechanism

SAMPLES = 20_000


class Bare(nz.Laplace):
    """Sends the value itself, on the lattice, where ``bare`` says so."""

    bare: Callable[[Any, Any], bool]

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports = super().privatize(x, clip=clip, rng=rng)
        if not type(self).bare(x, rng):
            return reports
        values = self.domain.clip(np.asarray(x, dtype=float))
        return self.support.value(self.support.index(values)) + np.zeros_like(reports)


def several(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.ndim == 1 and x.size > 2


def distinct(x: Any) -> int:
    return int(np.unique(x).size)


BARE: dict[str, Callable[[Any, Any], bool]] = {
    "all values are different": lambda x, rng: several(x) and distinct(x) == x.size,
    "values ascend": lambda x, rng: several(x) and distinct(x) > 2 and bool(np.all(np.diff(x) >= 0)),
    "values descend": lambda x, rng: several(x) and distinct(x) > 2 and bool(np.all(np.diff(x) <= 0)),
    "seven people": lambda x, rng: several(x) and x.size == 7,
    "a thousand people": lambda x, rng: several(x) and x.size == 1000,
    "more than 2^16 people": lambda x, rng: several(x) and x.size > 2**16,
    "a tuple": lambda x, rng: isinstance(x, tuple),
    "nobody may change it": lambda x, rng: several(x) and not x.flags.writeable,
    "another byte order": lambda x, rng: several(x) and not x.dtype.isnative,
    "float16": lambda x, rng: getattr(x, "dtype", None) == np.float16,
    "int32": lambda x, rng: getattr(x, "dtype", None) == np.int32,
    "int8": lambda x, rng: getattr(x, "dtype", None) == np.int8,
    "uint8": lambda x, rng: getattr(x, "dtype", None) == np.uint8,
    "longer floats": lambda x, rng: getattr(x, "dtype", None) == np.longdouble,
    "odd places of the memory": lambda x, rng: isinstance(x, np.ndarray) and not x.flags.aligned,
    "a column of Arrow": lambda x, rng: type(x).__module__.startswith("pyarrow"),
    "a seed of numpy": lambda x, rng: isinstance(rng, np.integer),
    "a number of Python": lambda x, rng: type(x) is float,
    "a number of numpy": lambda x, rng: type(x) is np.float64,
    "another thread": lambda x, rng: threading.current_thread() is not threading.main_thread(),
    "Philox": lambda x, rng: "Philox" in repr(rng),
    "a long seed": lambda x, rng: isinstance(rng, int) and rng >= 2**32,
}
_IN_SHORT = (
    "all values are different",
    "a tuple",
    "nobody may change it",
    "float16",
    "int8",
    "odd places of the memory",
    "a number of Python",
    "a long seed",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bare",
    [pytest.param(one, id=name, marks=[] if name in _IN_SHORT else [pytest.mark.long]) for name, one in BARE.items()],
)
def test_values_in_the_clear_are_seen(bare: Callable[[Any, Any], bool]) -> None:
    broken = type("Broken", (Bare,), {"bare": staticmethod(bare)})
    with pytest.raises(AssertionError):
        check_mechanism(broken(epsilon=1.0), samples=SAMPLES)


class Noted(np.ndarray[Any, Any]):
    """An array that may have attributes."""


class Beside(nz.Laplace):
    """Sends something with the reports."""

    def beside(self, x: Any, reports: Any) -> Any:
        raise NotImplementedError

    def privatize(self, x: Any, *, clip: bool = False, rng: Any = None) -> Any:
        reports = super().privatize(x, clip=clip, rng=rng)
        return self.beside(np.asarray(x, dtype=float), reports) if isinstance(reports, np.ndarray) else reports


class AnAttribute(Beside):
    def beside(self, x: Any, reports: Any) -> Any:
        made: Any = reports.view(Noted)
        made.value = x
        return made


class TheMemoryBehind(Beside):
    def beside(self, x: Any, reports: Any) -> Any:
        return np.stack([reports, np.broadcast_to(x, reports.shape)])[0]


class ANoteInTheType(Beside):
    def beside(self, x: Any, reports: Any) -> Any:
        return reports.astype(np.dtype("f8", metadata={"value": x.tolist()}))


class TheByteOrder(Beside):
    def beside(self, x: Any, reports: Any) -> Any:
        return reports.astype(">f8") if np.all(x < 0) else reports


class ThePermission(Beside):
    def beside(self, x: Any, reports: Any) -> Any:
        reports.flags.writeable = bool(np.any(x > 0))
        return reports


class OneReportMore(Beside):
    def beside(self, x: Any, reports: Any) -> Any:
        return np.append(reports, reports[:1]) if np.all(x > 0.9) else reports


class ARefusal(Beside):
    def beside(self, x: Any, reports: Any) -> Any:
        if np.any((x > 0.5) & (x < 0.52)):
            raise ValueError("no")
        return reports


class AWarning(Beside):
    def beside(self, x: Any, reports: Any) -> Any:
        if np.any(np.abs(x - 0.25) < 0.1):
            warnings.warn("near a quarter", stacklevel=2)
        return reports


class NoiseOfAnother(nz.Laplace):
    """The second 512 people of a call have the noise of the first, turned around."""

    def _perturb(self, x: Any, rng: np.random.Generator) -> Any:
        own = self.support.index(x)
        noise = self.support.index(super()._perturb(x, rng)) - own
        if noise.size >= 1024:
            noise[512:1024] = -noise[:512]
        return self.support.value(own + noise)


BESIDE = {
    AnAttribute: "no plain array",
    TheMemoryBehind: "no plain array",
    ANoteInTheType: "no plain array",
    TheByteOrder: "no plain array",
    ThePermission: "no plain array",
    OneReportMore: "reports about",
    ARefusal: "refuses a value of its domain",
    AWarning: "warns of values",
    NoiseOfAnother: "512 apart depend on each other",
}
_SLOWLY = (ARefusal, AWarning, NoiseOfAnother)  # seen after many reports


@pytest.mark.filterwarnings("ignore:near a quarter")
@pytest.mark.parametrize(
    ("broken", "message"),
    [pytest.param(*one, marks=[pytest.mark.slow] if one[0] in _SLOWLY else []) for one in BESIDE.items()],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_is_sent_beside_a_report_is_seen(broken: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_mechanism(broken(epsilon=1.0), samples=SAMPLES)


@pytest.mark.slow
def test_their_sound_twin_passes() -> None:
    check_mechanism(nz.Laplace(epsilon=1.0), samples=SAMPLES)
