"""How much is tested (`--tier`, which the Makefile sets), and what is skipped where an extra is not installed.

One mechanism, without a list of files: what fails because a package of an extra cannot be imported is skipped with the
reason, be it a folder, a file or a test. The tier `check` hides the extras, so that it is the same on every machine.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# Packages that a core installation lacks, and the extra of pyproject.toml that brings each. A test module, conftest,
# doctest or test that imports one is skipped where it is not installed, and in the tier `check` everywhere.
_EXTRAS = {
    "accelerate": "dev",
    "coverage": "dev",
    "cryptography": "shuffler",
    "fastapi": "shuffler",
    "flwr": "federated",
    "griffe": "dev",
    "httpx": "shuffler",
    "ipykernel": "dev",
    "lightning": "dev",
    "matplotlib": "plot",
    "mkdocs": "dev",
    "nbclient": "dev",
    "opacus": "sgd",
    "opendp": "dev",
    "playwright": "dev",
    "plotly": "plot",
    "prometheus_client": "shuffler",
    "psycopg": "collector",
    "pydantic": "shuffler",
    "ray": "scale",
    "schemathesis": "dev",
    "sklearn": "regression",
    "sqlalchemy": "collector",
    "torch": "sgd",
    "transformers": "dev",
    "uvicorn": "shuffler",
}

# The markers that each tier leaves out.
_LEFT_OUT = {"check": ("slow", "long"), "test": ("long",), "all": ()}


class _Hidden(MetaPathFinder):
    """Importing an extra fails as if it were not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse the extras and leave everything else to others."""
        if name in _EXTRAS:
            raise ModuleNotFoundError(f"make check runs without {name}", name=name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the Makefile choose how much is run."""
    parser.addoption(
        "--tier",
        choices=_LEFT_OUT,
        default="all",
        help="check: the core, quickly and without extras; test: all but what is long; all: everything (the default).",
    )


def pytest_configure(config: pytest.Config) -> None:
    """In the tier `check`, hide the extras, so that it is the same wherever it runs."""
    config.pluginmanager.register(_Extras())
    # what is skipped needs no traceback, which would be most of the time of collecting it
    told = pytest.ExceptionInfo.getrepr
    pytest.ExceptionInfo.getrepr = lambda self, *args, **how: _lacking(self.value) or told(self, *args, **how)  # type: ignore[assignment, method-assign]
    if config.getoption("--tier") == "check":
        sys.meta_path.insert(0, _Hidden())


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Iterator[None]:
    """Look for doctests only where there are some: the search itself takes longer than the import of a file."""
    found: list[Any] = yield
    if file_path.suffix == ".py" and ">>> " not in file_path.read_text(encoding="utf-8"):
        found = [part for part in found if type(part).__name__ != "DoctestModule"]
    return found


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage: thousands of tests are made, and none of them is thrown away."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the tier does not run; files with something long come first, so that none is left for the end."""
    markers = _LEFT_OUT[config.getoption("--tier")]
    long = {item.path for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: item.path not in long)
    kept: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        kept[not any(item.get_closest_marker(name) for name in markers)].append(item)
    items[:] = kept[True]
    config.hook.pytest_deselected(items=kept[False])


def _lacking(error: BaseException | None) -> str | None:
    """Return why to skip, where an error comes from an extra that is not installed, or that this tier hides."""
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = getattr(error, "cause", None) or error.__cause__
    name = (getattr(error, "name", None) or "").partition(".")[0]
    return None if name not in _EXTRAS else _reason(name)


def _reason(name: str) -> str | None:
    """Return why to skip what needs a package, if it is not there."""
    try:
        return None if find_spec(name) else f"needs {name}: pip install 'noisette[{_EXTRAS[name]}]'"
    except ModuleNotFoundError as hidden:
        return hidden.msg


def _skip(report: pytest.TestReport | pytest.CollectReport, why: str) -> None:
    """Say that something was skipped; the summary has a line for each reason, not for each file."""
    report.outcome, report.longrepr = "skipped", ("conftest.py", None, f"Skipped: {why}")


class _Extras:
    """Skips what needs an extra that is not there; a plugin, since a folder does not ask the conftest above it."""

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """Skip a file or a folder that imports an extra which is not installed."""
        report = yield
        if report.failed and (why := _lacking(report.call.excinfo.value)):
            _skip(report, why)
            # who imports it next shall fail for the same reason, not find the half that was run
            ends = (collector.path.stem, collector.path.parent.name)  # of its name: there are thousands of others
            for name in [name for name in sys.modules if name.endswith(ends)]:
                if getattr(sys.modules[name], "__dict__", {}).get("__file__") == str(collector.path):
                    del sys.modules[name]
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Skip a test that imports an extra which is not installed."""
        report = yield
        if report.failed and call.excinfo and (why := _lacking(call.excinfo.value)):
            _skip(report, why)
        return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose real data or whose packages, those that a process of its own imports, are not there."""
    if item.get_closest_marker("needs_data") and not os.environ.get("NOISETTE_DATA"):
        pytest.skip("NOISETTE_DATA names no folder")
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            if why := _reason(name):
                pytest.skip(why)
