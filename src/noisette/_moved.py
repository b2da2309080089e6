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

MOVED: dict[str, str] = {
    "aggregation.graded": "mechanisms.graded.estimation",
    "aggregation.whole": "_files",
    "collector.batches": "survey.batches",
    "collector.blind": "device.blind",
    "collector.breakdowns": "survey.estimation.ratios",
    "collector.choosing": "survey.choosing",
    "collector.client": "device.client",
    "collector.conversation": "device.conversation",
    "collector.device": "device.state",
    "collector.distributions": "survey.estimation.distributions",
    "collector.estimates": "collector.results.estimates",
    "collector.exports": "collector.results.exports",
    "collector.fresh": "collector.storage.sqlite",
    "collector.gateway": "device.gateway",
    "collector.issuing": "collector.campaigns.issuing",
    "collector.keys": "collector.web.access",
    "collector.limits": "collector.web.access",
    "collector.local": "_sqlite",
    "collector.migrations": "collector.storage.migrations",
    "collector.pages": "collector.web.pages",
    "collector.partitions": "collector.storage.partitions",
    "collector.parts": "survey.coding.sections",
    "collector.periods": "survey.periods",
    "collector.planpage": "collector.web.planpage",
    "collector.reception": "collector.intake.reception",
    "collector.schema": "survey.questions",
    "collector.sealed": "device.sealed",
    "collector.seen": "collector.storage.database",
    "collector.service": "collector.web.service",
    "collector.shuffled": "collector.intake.shuffled",
    "collector.store": "collector.storage.store",
    "collector.sums": "survey.sums",
    "collector.tables": "collector.storage.tables",
    "collector.tokens": "device.tokens",
    "collector.tracks": "collector.storage.tracks",
    "collector.wallet": "device.tokens",
    "collector.writer": "collector.intake.reception",
    "federated.aggregator": "federated.server.aggregator",
    "federated.budget": "federated.client.budget",
    "federated.history": "federated.server.history",
    "federated.mixing": "federated.server.mixing",
    "federated.mod": "federated.client.mod",
    "federated.sampling": "federated.server.sampling",
    "federated.simulation": "federated.runs.simulation",
    "federated.strategy": "federated.server.strategy",
    "federated.streaming": "federated.server.streaming",
    "federated.task": "federated.runs.task",
    "mechanisms.tensor.calibration": "mechanisms.tensor.gaussian.calibration",
    "mechanisms.tensor.jl": "mechanisms.tensor.gaussian.jl",
    "mechanisms.tensor.matrix_optimum": "mechanisms.tensor.matrix.optimum",
    "mechanisms.tensor.matrix_strategies": "mechanisms.tensor.matrix.strategies",
    "mechanisms.tensor.matrix_workloads": "mechanisms.tensor.matrix.workloads",
    "mechanisms.tensor.modes": "mechanisms.tensor.gaussian.modes",
    "mechanisms.tensor.neighbours": "mechanisms.tensor.gaussian.neighbours",
    "mechanisms.tensor.release": "mechanisms.tensor.gaussian.release",
    "mechanisms.tensor.retain_calibration": "mechanisms.tensor.retain.calibration",
    "mechanisms.tensor.retain_cells": "mechanisms.tensor.retain.cells",
    "mechanisms.tensor.retain_laws": "mechanisms.tensor.retain.laws",
    "mechanisms.tensor.retain_published": "mechanisms.tensor.retain.published",
    "regression.graded": "regression.channels",
    "sgd.geodp": "sgd.noise.geodp",
    "sgd.gradients": "sgd.recording.gradients",
    "sgd.layers": "sgd.recording.layers",
    "sgd.losses": "sgd.recording.losses",
    "sgd.models": "sgd.recording.models",
    "sgd.perturbation": "sgd.noise.perturbation",
    "sgd.recurrence": "sgd.recording.recurrence",
    "sgd.tensor": "sgd.noise.tensor",
    "sgd.verification": "sgd.recording.verification",
    "utility": "prediction",
    "utility.angles": "sgd.theory.angles",
    "utility.combining": "prediction.combining",
    "utility.correlations": "prediction.model.correlations",
    "utility.curves": "prediction.curves",
    "utility.deviations": "prediction.model.deviations",
    "utility.extremes": "prediction.model.extremes",
    "utility.federated": "federated.theory",
    "utility.graded": "prediction.graded",
    "utility.lengths": "sgd.theory.lengths",
    "utility.offers": "prediction.offers",
    "utility.orthants": "prediction.joint",
    "utility.personalised": "prediction.personalised",
    "utility.planning": "prediction.planning",
    "utility.populations": "prediction.model.populations",
    "utility.records": "prediction.model.records",
    "utility.reporting": "prediction.offers",
    "utility.responses": "prediction.model.responses",
    "utility.sgd": "sgd.theory.steps",
    "utility.sweeps": "prediction.sweeps",
    "utility.targets": "prediction.targets",
    "utility.turns": "sgd.theory.turns",
}


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
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

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
    warnings.warn(f"{old} is now {new}; the old name goes in a later release.", DeprecationWarning, stacklevel=3)
