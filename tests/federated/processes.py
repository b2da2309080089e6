"""Programs of a federation as processes of their own: the last words of each, and how all of them are ended."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 3600  # seconds, for a machine that is busy with other things
_PATIENT = Path(__file__).parent / "patient.py"


def words(program: str, *given: Any) -> list[str]:
    """Return the command of a program beside this Python, Flower's own with patience."""
    if program.startswith("flower-"):
        return [sys.executable, str(_PATIENT), program, *map(str, given)]
    return [str(Path(sys.executable).parent / program), *map(str, given)]


@contextmanager
def turn() -> Iterator[None]:
    """Wait until no other federation of processes runs on this machine: a dozen of them would keep it from all else."""
    with (Path(tempfile.gettempdir()) / f"noisette-federation-{os.getuid()}").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def last_words(root: Path) -> str:
    """Return the ends of all logs of a folder."""
    ends = [(path.name, path.read_text(encoding="utf-8")[-3000:]) for path in sorted(root.glob("*.log"))]
    return "\n".join(f"== {name}\n{text}" for name, text in ends)


def end(processes: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """End them all, the one that was started first at last."""
    for process in reversed(processes.values()):
        process.terminate()
    for process in processes.values():
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
