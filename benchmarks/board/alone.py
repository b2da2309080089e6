"""Talk to the other libraries, which run in an environment of their own: `make peers`, or NOISETTE_PEERS names it."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.board.frame import Unavailable

_ROOT = Path(__file__).resolve().parents[2]


@lru_cache(maxsize=1)
def _worker() -> tuple[subprocess.Popen[str], Path]:
    python = Path(os.environ.get("NOISETTE_PEERS") or _ROOT / ".venv-peers" / "bin" / "python")
    if not python.exists():
        raise Unavailable(f"{python} is not there: `make peers` builds it")
    folder = Path(tempfile.mkdtemp(prefix="board-"))
    script = Path(__file__).resolve().parent / "peers.py"
    quiet = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    pipe = subprocess.PIPE
    worker = subprocess.Popen([str(python), "-P", str(script)], stdin=pipe, stdout=pipe, text=True, env=quiet)
    atexit.register(worker.kill)
    return worker, folder


def ask(job: str, values: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return what a job of peers.py makes of the values, and what it tells of it."""
    worker, folder = _worker()
    given, made = folder / "given.npy", folder / "made.npy"
    np.save(given, values)
    assert worker.stdin is not None
    assert worker.stdout is not None
    print(json.dumps({"job": job, "given": str(given), "made": str(made)} | options), file=worker.stdin, flush=True)
    for line in worker.stdout:
        if line.startswith("{"):
            told: dict[str, Any] = json.loads(line)
            if "missing" in told:
                raise Unavailable(told["missing"])
            if "error" in told:
                raise RuntimeError(told["error"])
            return np.load(made), told
    raise RuntimeError(f"The other libraries' process ended during {job}.")
