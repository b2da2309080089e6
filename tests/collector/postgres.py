"""A PostgreSQL server of the tests' own, in a folder under /tmp, where one is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

_USER = "postgres"  # PostgreSQL refuses to run as root


def _folder() -> Path | None:
    """Return the folder of the newest server's programs."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None


def found() -> bool:
    """Tell whether a server can be started here."""
    return _folder() is not None and (os.geteuid() != 0 or shutil.which("setpriv") is not None)


class Postgres:
    """A server with these settings, as ``shared_buffers=512MB``, on a socket in its own folder, gone at the end."""

    def __init__(self, *settings: str) -> None:
        self._settings = "".join(f" -c {one}" for one in settings)

    def __enter__(self) -> Self:
        folder = _folder()
        assert folder is not None
        self._bin = folder
        self._home = Path(tempfile.mkdtemp(prefix="noisette-postgres-"))
        if os.geteuid() == 0:
            shutil.chown(self._home, _USER, _USER)
        self._databases = 0
        data = str(self._home / "data")
        self._run("initdb", "-D", data, "-U", _USER, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.crash()
        shutil.rmtree(self._home)

    def start(self) -> None:
        """Start the server, which recovers first if it had crashed."""
        options = f"-k {self._home} -c listen_addresses=''{self._settings}"
        self._run("pg_ctl", "-D", str(self._home / "data"), "-w", "-l", str(self._home / "log"), "-o", options, "start")

    @property
    def pid(self) -> int:
        """Number of the process whose children all others are."""
        return int((self._home / "data" / "postmaster.pid").read_text(encoding="ascii").split()[0])

    def crash(self) -> None:
        """End all its processes at once, in the middle of what they do and without saving anything."""
        self._run("pg_ctl", "-D", str(self._home / "data"), "-w", "-m", "immediate", "stop")

    def logged(self) -> str:
        """Return its log."""
        return (self._home / "log").read_text(encoding="utf-8")

    def new_database(self) -> str:
        """Make an empty database and return its URL."""
        self._databases += 1
        name = f"test{self._databases}"
        self._run("createdb", "-h", str(self._home), "-U", _USER, name)
        return f"postgresql://{_USER}@/{name}?host={self._home}"

    def _run(self, program: str, *arguments: str) -> None:
        command: Sequence[str] = (str(self._bin / program), *arguments)
        if os.geteuid() == 0:
            command = ("setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", *command)
        none = subprocess.DEVNULL  # a pipe would stay open as long as the server
        done = subprocess.run(command, cwd=self._home, stdout=none, stderr=none, check=False)
        if done.returncode:
            raise RuntimeError(f"{program} failed with {done.returncode}")
