"""Files that appear whole or not at all, whether one has changed, optional packages, and what Windows lacks."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

_NO_ANONYMOUS_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


@contextmanager
def whole_file(path: str | os.PathLike[str], *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a binary file that takes its name when the block ends well, and otherwise leaves nothing behind.

    The bytes go to a nameless file in the same folder where the system has such files, so that even a killed process
    leaves nothing; elsewhere to a hidden file that is removed on any error. A file of that name stays as it was
    until the new one is complete. ``mode`` is who may read and write it, before the umask.
    """
    target = _check_target(path)
    hidden = target.parent / f".noisette-{secrets.token_hex(8)}.partial"
    nameless = _open_nameless(target.parent, mode)
    descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode) if nameless is None else nameless
    try:
        with os.fdopen(descriptor, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(descriptor)
            if nameless is not None:
                _give_name(descriptor, hidden)
        os.replace(hidden, target)
    finally:
        hidden.unlink(missing_ok=True)


class PosixNeeded(ImportError):
    """A service was started on a system that lacks what it stands on."""


def need_packages(what: str, names: Iterable[str], extra: str) -> None:
    """Refuse to go on where a package is not installed, and say which extra installs it."""
    lacking = [name for name in names if find_spec(name) is None]
    if lacking:
        raise ValueError(f"{what} needs {', '.join(lacking)}: pip install 'noisette[{extra}]'.")


def posix_module(name: str, what: str) -> ModuleType:
    """Return a module that Linux and macOS have, or say what needs it and what works without."""
    try:
        return import_module(name)
    except ImportError as error:
        raise PosixNeeded(
            f"{what} needs Linux or macOS: this system has no {name!r}. Run it in a container or in WSL. Surveys, "
            "mechanisms, files, plans, audits and training work here."
        ) from error


class ChangingFile:
    """A file that may change while a service runs; it is looked at once a second at most."""

    def __init__(self, path: str | os.PathLike[str], every: float = 1.0) -> None:
        self.path, self._every, self._looked = Path(path), every, time.monotonic()
        self._stamp = self._now()

    def _now(self) -> tuple[int, ...]:
        found = os.stat(self.path)
        return found.st_mtime_ns, found.st_size, found.st_ino

    def changed(self) -> bool:
        """Tell whether the file has changed since this was last called."""
        if time.monotonic() - self._looked < self._every:
            return False
        self._looked = time.monotonic()
        stamp = self._now()
        changed, self._stamp = stamp != self._stamp, stamp
        return changed


def _check_target(path: str | os.PathLike[str]) -> Path:
    """Return the file to write, or say why it cannot be one."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Name a file to write, e.g. {Path(path) / 'reports.parquet'}.")
    if target.exists() and not target.is_file():
        raise ValueError(f"{path} is not a regular file. Name a file to write, e.g. reports.parquet.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"The folder {Path(path).parent} does not exist. Create it first, or write elsewhere.")
    return target


def _open_nameless(folder: Path, mode: int) -> int | None:
    """Open a file without a name, or return None where the system or the file system has none."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE, mode)
    except OSError as error:
        if error.errno in _NO_ANONYMOUS_FILES:
            return None
        raise


def _give_name(descriptor: int, name: Path) -> None:
    """Link a nameless file into its folder; only the call with a folder's descriptor follows the link in /proc."""
    folder = os.open(name.parent, os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{descriptor}", name.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)
