"""Programs of a federation as processes of their own: the last words of each, and how all of them are ended."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

PATIENCE = 3600  # seconds, for a machine that is busy with other things


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
