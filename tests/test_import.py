"""`import noisette` is quick and pulls in nothing that a user of the core does not use.

Each measurement is a fresh interpreter, so what other tests have imported does not count.
"""

import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

BASELINE = "numpy, scipy.special"
LIMIT_SECONDS = 0.3
REPETITIONS = 5

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
        "opacus",
        "opendp",
        "pandas",
        "plotly",
        "psycopg",
        "pyarrow",
        "randomgen",
        "ray",
        "rich",
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


def _seconds(modules: str) -> float:
    """Return the processor time of one import statement, to which the machine's other work adds nothing."""
    return float(_run(f"import time; t = time.process_time(); import {modules}; print(time.process_time() - t)"))


def _loaded(code: str) -> set[str]:
    """Return the top-level modules that are loaded after running code."""
    return set(_run(f"{code}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})").split())


def _added_seconds(module: str) -> float:
    """Return what importing a module adds to the baseline: the median over pairs of runs."""
    _seconds(f"{BASELINE}, {module}")  # writes the bytecode, which the first import after an installation pays for
    return median(_seconds(f"{BASELINE}, {module}") - _seconds(BASELINE) for _ in range(REPETITIONS))


def test_import_is_quick() -> None:
    added = _added_seconds("noisette")
    assert added < LIMIT_SECONDS, f"import noisette adds {added:.3f} s to import {BASELINE}"


def test_a_slow_import_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: a module that works for a little longer than the limit is over it."""
    code = f"import time\nend = time.process_time() + {1.3 * LIMIT_SECONDS}\nwhile time.process_time() < end: pass\n"
    (tmp_path / "slow_to_import.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert _added_seconds("slow_to_import") >= LIMIT_SECONDS


def test_import_loads_no_extra() -> None:
    assert not _loaded("import noisette") & LAZY


def test_a_loaded_extra_would_be_seen() -> None:
    """The twin: the check above rejects a package that imports one of them."""
    assert "mpmath" in _loaded("import mpmath") & LAZY
