"""What Arrow says of a file that it cannot read, in words that help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: Path, complaint: str) -> Iterator[None]:
    """Turn what Arrow says of a bad file into one that names it: "{path} {complaint}", with a place for {reason}."""
    import pyarrow as pa

    try:
        yield
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"{path} {complaint.format(reason=reason)}") from error
