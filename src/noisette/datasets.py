"""Real data for experiments and training: from the folder in NOISETTE_DATA, or fetched from its source and checked.

A file that is fetched is kept in the user's cache (XDG_CACHE_HOME or ~/.cache) and used only if its checksum is right.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisette._files import whole_file

if TYPE_CHECKING:
    import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
VARIABLE = "NOISETTE_DATA"


@dataclass(frozen=True, eq=False)
class Images:
    """Labelled images as bytes: (count, height, width) in grey, (count, height, width, 3) in colour."""

    train: Bytes
    train_labels: Bytes
    test: Bytes
    test_labels: Bytes


@dataclass(frozen=True)
class _DataFile:
    """A file at its official address, with the checksum that its publisher or its users give."""

    url: str
    md5: str


_IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_SVHN = "http://ufldl.stanford.edu/housenumbers/"
_SOURCES: dict[str, tuple[_DataFile, ...]] = {
    "mnist": tuple(
        _DataFile(_MNIST + name, md5)
        for name, md5 in zip(
            _IDX,
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
            strict=True,
        )
    ),
    "fashion-mnist": tuple(
        _DataFile(_FASHION + name, md5)
        for name, md5 in zip(
            _IDX,
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
            strict=True,
        )
    ),
    "cifar10": (
        _DataFile("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    ),
    "svhn": (
        _DataFile(_SVHN + "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        _DataFile(_SVHN + "test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
    ),
}

# Tables that are read from the folder only: their sources give no checksum, or need an account.
_TABLES = {
    "acs": "acs_pums_2024/acs_pums_2024_person.parquet",
    "adult": "adult/adult.csv.gz",
    "credit-fraud": "credit_fraud_sample/credit_fraud_sample.csv.gz",
    "ctg": "ctg/ctg.csv.gz",
    "darknet": "darknet_sample/cic_darknet2020_sample5000.csv.gz",
    "imdb": "imdb/imdb.csv.gz",
}
_HISTOGRAMS = "dpbench_histograms/dpbench.npz"


def folder() -> Path | None:
    """Return the folder that NOISETTE_DATA names, if any."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    path = Path(named)
    if not path.is_dir():
        raise FileNotFoundError(f"{VARIABLE}={named} is not a folder. Point it to the data, or unset it.")
    return path


def images(name: str) -> Images:
    """Return mnist, fashion-mnist, cifar10 or svhn, whole and in its published order."""
    if name not in _SOURCES:
        raise ValueError(f"Unknown images {name!r}; expected one of {', '.join(_SOURCES)}.")
    local = folder()
    if local is not None and name in _LOCAL and (place := local / name.replace("-", "_")).is_dir():
        return _LOCAL[name](place)
    return _DECODE[name]([_fetched(source) for source in _SOURCES[name]])


def table(name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return acs, adult, credit-fraud, ctg, darknet or imdb, or some of its columns."""
    if name not in _TABLES:
        raise ValueError(f"Unknown table {name!r}; expected one of {', '.join(_TABLES)}.")
    path = _local_file(name, _TABLES[name])
    wanted = None if columns is None else list(columns)
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path, columns=wanted)
    from pyarrow import csv

    return csv.read_csv(
        path,
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(include_columns=wanted, strings_can_be_null=False),
    )


def histograms() -> dict[str, npt.NDArray[np.int64]]:
    """Return the count arrays of DPBench: ``d1_NAME`` with 4,096 bins, ``d2_NAME`` with 256 x 256."""
    with np.load(_local_file("dpbench", _HISTOGRAMS)) as file:
        return {key: file[key] for key in file.files}


def _local_file(name: str, place: str) -> Path:
    local = folder()
    path = None if local is None else local / place
    if path is None or not path.is_file():
        looked = "which is not set" if local is None else f"which is {local} and has no {place}"
        raise FileNotFoundError(
            f"The data {name!r} are read from the folder in {VARIABLE}, {looked}. "
            f"Put them there, and name the folder in {VARIABLE}."
        )
    return path


def _arrays(path: Path) -> Images:
    with np.load(next(path.glob("*.npz"))) as file:
        return Images(file["x_train"], file["y_train"], file["x_test"], file["y_test"])


def _sheets(path: Path) -> Images:
    """Read CIFAR-10 from lossless sheets of 100 x 100 images, one for each published batch."""
    from PIL import Image

    def batch(packed: Bytes) -> Bytes:
        with Image.open(io.BytesIO(packed.tobytes())) as picture:
            sheet = np.asarray(picture.convert("RGB"))
        return sheet.reshape(100, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3)

    with np.load(path / "cifar10_train.npz") as train, np.load(path / "cifar10_test.npz") as test:
        parts = [batch(train[f"train_{number}_webp"]) for number in range(1, 6)]
        return Images(np.concatenate(parts), train["y_train"], batch(test["test_webp"]), test["y_test"])


def _idx(path: Path) -> Bytes:
    """Read an array of bytes in MNIST's format: two zeros, type 8, the number of axes, their lengths, the bytes."""
    raw = gzip.decompress(path.read_bytes())
    if raw[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is not an IDX file of bytes. Fetch it again.")
    axes = raw[3]
    shape = np.frombuffer(raw, ">u4", axes, 4).astype(np.int64)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _from_idx(paths: list[Path]) -> Images:
    return Images(*map(_idx, paths))


def _from_tar(paths: list[Path]) -> Images:
    """Read CIFAR-10 from its binary version: a label and 3 x 32 x 32 bytes for each image."""
    with tarfile.open(paths[0]) as archive:

        def batch(name: str) -> Bytes:
            member = archive.extractfile(f"cifar-10-batches-bin/{name}.bin")
            if member is None:
                raise ValueError(f"{paths[0]} has no batch {name}. Fetch the whole archive again.")
            return np.frombuffer(member.read(), np.uint8).reshape(-1, 3073)

        train = np.concatenate([batch(f"data_batch_{number}") for number in range(1, 6)])
        test = batch("test_batch")
    return Images(_upright(train), train[:, 0], _upright(test), test[:, 0])


def _upright(rows: Bytes) -> Bytes:
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _from_matlab(paths: list[Path]) -> Images:
    """Read SVHN's cropped digits; the digit 0 is stored as 10."""
    from scipy.io import loadmat

    train, test = (loadmat(path) for path in paths)

    def labels(content: Any) -> Bytes:
        return np.asarray(content["y"].reshape(-1) % 10, dtype=np.uint8)

    return Images(train["X"].transpose(3, 0, 1, 2), labels(train), test["X"].transpose(3, 0, 1, 2), labels(test))


_LOCAL: dict[str, Callable[[Path], Images]] = {"mnist": _arrays, "fashion-mnist": _arrays, "cifar10": _sheets}
_DECODE: dict[str, Callable[[list[Path]], Images]] = {
    "mnist": _from_idx,
    "fashion-mnist": _from_idx,
    "cifar10": _from_tar,
    "svhn": _from_matlab,
}


def _fetched(source: _DataFile) -> Path:
    """Return a file from the cache, fetched first if it is not there; what fails its checksum is not kept."""
    from urllib.error import URLError
    from urllib.request import urlopen

    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "noisette"
    path = root / f"{source.md5}-{source.url.rpartition('/')[2]}"
    if path.is_file():
        return path
    root.mkdir(parents=True, exist_ok=True)
    seen = hashlib.md5(usedforsecurity=False)
    try:
        with urlopen(source.url, timeout=60) as answer, whole_file(path) as file:
            while piece := answer.read(1 << 20):
                seen.update(piece)
                file.write(piece)
            if (found := seen.hexdigest()) != source.md5:
                raise ValueError(
                    f"{source.url} has checksum {found}, expected {source.md5}. Fetch it again: it was not kept."
                )
    except (URLError, TimeoutError) as error:
        raise FileNotFoundError(
            f"{source.url} could not be fetched ({error}). Put the data in a folder and name it in {VARIABLE}."
        ) from error
    return path
