"""`import noisette` is quick and pulls in nothing that a user of the core does not use.

Each measurement is a fresh interpreter, so what other tests have imported does not count.
"""

import subprocess
import sys
from statistics import median

BASELINE = "numpy, scipy.special"
LIMIT_SECONDS = 0.3
REPETITIONS = 7

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


def test_import_is_quick() -> None:
    _seconds(f"noisette, {BASELINE}")  # writes the bytecode, which the first import after an installation pays for
    extra = [_seconds(f"{BASELINE}, noisette") - _seconds(BASELINE) for _ in range(REPETITIONS)]
    assert median(extra) < LIMIT_SECONDS, f"import noisette adds {median(extra):.3f} s to import {BASELINE}"


def test_import_loads_no_extra() -> None:
    assert not _loaded("import noisette") & LAZY


def test_a_loaded_extra_would_be_seen() -> None:
    """The twin: the check above rejects a package that imports one of them."""
    assert "mpmath" in _loaded("import mpmath") & LAZY
