"""Flower's programs for a busy machine: `python patient.py flower-supernode ...`.

A superlink and a supernode give a task to another new process where the one that took it has shown no sign of life for
30 seconds. On a busy machine a process takes longer to begin, so that more and more of them are started and none works.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import entry_points

LEASE = 1800  # seconds


def main() -> None:
    """Run the program that the first argument names."""
    for name in ("in_memory_corestate", "sql_corestate"):
        module = import_module(f"flwr.supercore.corestate.{name}")
        assert module.HEARTBEAT_DEFAULT_INTERVAL < LEASE
        module.HEARTBEAT_DEFAULT_INTERVAL = LEASE
    del sys.argv[0]
    [program] = entry_points(group="console_scripts", name=sys.argv[0])
    sys.exit(program.load()())


if __name__ == "__main__":
    main()
