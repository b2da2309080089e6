"""Old names of modules, of what packages export and of arguments: all work with a warning until a later release."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

Renamed = TypeVar("Renamed", bound=Callable[..., Any])

# Where modules of the same name went: before and after, and their names.
_ROOMS = (
    ("collector.", "collector.campaigns.", "issuing"),
    ("collector.", "collector.intake.", "reception shuffled"),
    ("collector.", "collector.results.", "estimates exports"),
    ("collector.", "collector.storage.", "migrations partitions store tables tracks"),
    ("collector.", "collector.web.", "pages planpage service"),
    ("collector.", "device.", "blind client conversation gateway sealed tokens"),
    ("collector.", "survey.", "batches choosing periods sums"),
    ("collector.", "survey.estimation.", "distributions"),
    ("federated.", "federated.client.", "budget mod"),
    ("federated.", "federated.runs.", "simulation task"),
    ("federated.", "federated.server.", "aggregator history mixing sampling strategy streaming"),
    ("mechanisms.tensor.", "mechanisms.tensor.gaussian.", "calibration jl modes neighbours release"),
    ("mechanisms.tensor.matrix_", "mechanisms.tensor.matrix.", "optimum strategies workloads"),
    ("mechanisms.tensor.retain_", "mechanisms.tensor.retain.", "calibration cells laws published"),
    ("sgd.", "sgd.noise.", "geodp perturbation tensor"),
    ("sgd.", "sgd.recording.", "gradients layers losses models recurrence verification"),
    ("utility.", "prediction.", "combining curves graded offers personalised planning sweeps targets"),
    ("utility.", "prediction.model.", "correlations deviations extremes populations records responses"),
    ("utility.", "sgd.theory.", "angles lengths turns"),
)
_RENAMED = {
    "aggregation.graded": "mechanisms.graded.estimation",
    "aggregation.whole": "_files",
    "collector.breakdowns": "survey.estimation.ratios",
    "collector.device": "device.state",
    "collector.fresh": "collector.storage.sqlite",
    "collector.keys": "collector.web.access",
    "collector.limits": "collector.web.access",
    "collector.local": "_sqlite",
    "collector.parts": "survey.coding.sections",
    "collector.schema": "survey.questions",
    "collector.seen": "collector.storage.database",
    "collector.wallet": "device.tokens",
    "collector.writer": "collector.intake.reception",
    "regression.graded": "regression.channels",
    "utility": "prediction",
    "utility.federated": "federated.theory",
    "utility.orthants": "prediction.joint",
    "utility.reporting": "prediction.offers",
    "utility.sgd": "sgd.theory.steps",
}
MOVED = _RENAMED | {f"{old}{name}": f"{new}{name}" for old, new, names in _ROOMS for name in names.split()}


class _Finder(MetaPathFinder, Loader):
    """Finds a module under its old name, and gives the very module that bears the new one."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.removeprefix("noisette.") in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        new = "noisette." + MOVED[module.__name__.removeprefix("noisette.")]
        _warn(module.__name__, new)
        sys.modules[module.__name__] = importlib.import_module(new)


def install() -> None:
    """Look old names up before anything else: a package under its old name would find its modules a second time."""
    sys.meta_path.insert(0, _Finder())


def names_of(
    package: str, *homes: str, first: Callable[[str], Any] | None = None, renamed: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package some of whose public names have moved to ``homes``, or are ``renamed``.

    ``first`` finds the names that the package has itself.
    """

    def find(name: str) -> Any:
        if new := (renamed or {}).get(name):
            _warn(f"{package}.{name}", f"{package}.{new}")
            return getattr(importlib.import_module(package), new)
        if first is not None:
            try:
                return first(name)
            except AttributeError:
                pass
        for home in () if name.startswith("_") else homes:
            module = importlib.import_module(home)
            if hasattr(module, name):
                _warn(f"{package}.{name}", f"{home}.{name}")
                return getattr(module, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}. Look it up in dir({package}).")

    return find


def with_old_arguments(**renamed: str) -> Callable[[Renamed], Renamed]:
    """Let a function or a class take arguments by their old names too."""

    def changed(one: Any) -> Any:
        kind: Any = one if isinstance(one, type) else None
        make = one if kind is None else kind.__init__

        @wraps(make)
        def call(*args: Any, **given: Any) -> Any:
            for old in renamed.keys() & given.keys():
                _warn(f"{old} of {one.__name__}", renamed[old])
                given[renamed[old]] = given.pop(old)
            return make(*args, **given)

        if kind is None:
            return call
        kind.__init__ = call
        return kind

    return changed


def _warn(old: str, new: str) -> None:
    warnings.warn(
        f"{old} is now {new}. Use that: the old name goes in a later release.", DeprecationWarning, stacklevel=3
    )
