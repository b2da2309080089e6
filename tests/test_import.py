"""`import noisette` and the small commands load nothing that they do not use.

Each is a fresh interpreter, so what other tests have imported does not count. What is loaded is the same on every
machine; how long that takes is measured in benchmarks/starting.py.
"""

import subprocess
import sys

import pytest

import noisette as nz

# Modules of the extras, and those core dependencies that only some calls need.
LAZY = frozenset(
    {
        "click",
        "dp_accounting",
        "fastapi",
        "flwr",
        "httpx",
        "matplotlib",
        "mpmath",
        "numba",
        "numpy",
        "opacus",
        "opendp",
        "pandas",
        "plotly",
        "psycopg",
        "pyarrow",
        "randomgen",
        "ray",
        "rich",
        "scipy",
        "sklearn",
        "sqlalchemy",
        "torch",
        "typer",
        "uvicorn",
    }
)


def _run(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def _loaded(code: str) -> set[str]:
    """Return the top-level modules that are loaded after running code."""
    told = _run(f"{code}\nimport sys; print('\\nloaded', *{{name.partition('.')[0] for name in sys.modules}})")
    return set(told.splitlines()[-1].split()[1:])


def _command(*arguments: str) -> str:
    """Return code that runs a command of ours and goes on."""
    return f"from noisette.cli import verbs; verbs({list(arguments)!r}, standalone_mode=False)"


def test_import_loads_no_extra() -> None:
    assert not _loaded("import noisette") & LAZY


def test_a_loaded_extra_would_be_seen() -> None:
    """The twin: the check above rejects a package that imports one of them."""
    assert "mpmath" in _loaded("import mpmath") & LAZY


@pytest.mark.long
def test_the_core_does_not_wait_for_scipy() -> None:
    """Importing scipy.special takes twice as long as numpy: it is imported when a special function is called."""
    assert _loaded("from noisette import CATALOGUE") & LAZY == {"numpy"}
    assert "scipy" in _loaded("import noisette; noisette.PrivUnit(epsilon=1.0, dims=3)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "needed"),
    [(("--help",), {"click"}), (("mechanisms", "--json"), {"click"}), (("mechanisms",), {"click", "rich"})],
)
def test_a_small_command_loads_what_it_uses(arguments: tuple[str, ...], needed: set[str]) -> None:
    assert _loaded(_command(*arguments)) & LAZY == needed


def test_completion_shows_names_that_are_not_imported_yet() -> None:
    shown = _run("import sys, noisette as nz; print(*dir(nz)); assert 'numpy' not in sys.modules").split()
    assert set(nz.__all__) <= set(shown)
    assert shown == sorted(set(shown))
