"""Real data: whole, in order, and refused where a checksum does not match."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from noisette import datasets


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Return a function that publishes bytes at an address, with their checksum."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def publish(name, content):
        (tmp_path / name).write_bytes(content)
        return datasets._DataFile((tmp_path / name).as_uri(), hashlib.md5(content, usedforsecurity=False).hexdigest())

    return publish


def idx(array):
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes())


def test_images_come_from_their_source_where_there_is_no_folder(source, monkeypatch):
    rng = np.random.default_rng(1)
    arrays = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((5, 28, 28), (5,), (3, 28, 28), (3,))]
    published = tuple(source(f"part{number}.gz", idx(array)) for number, array in enumerate(arrays))
    monkeypatch.setitem(datasets._SOURCES, "mnist", published)
    monkeypatch.delenv(datasets.VARIABLE, raising=False)
    found = datasets.images("mnist")
    for seen, expected in zip((found.train, found.train_labels, found.test, found.test_labels), arrays, strict=True):
        np.testing.assert_array_equal(seen, expected)


def test_the_binary_form_of_cifar10_is_turned_upright(source, monkeypatch, tmp_path):
    import io
    import tarfile

    rows = np.random.default_rng(2).integers(0, 256, (6, 2, 3073), dtype=np.uint8)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, batch in zip([f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"], rows, strict=True):
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            entry.size = batch.nbytes
            archive.addfile(entry, io.BytesIO(batch.tobytes()))
    monkeypatch.setitem(datasets._SOURCES, "cifar10", (source("cifar.tar.gz", packed.getvalue()),))
    monkeypatch.delenv(datasets.VARIABLE, raising=False)
    found = datasets.images("cifar10")
    assert found.train.shape == (10, 32, 32, 3)
    assert found.train[3, 4, 5, 2] == rows[1, 1, 1 + 2 * 1024 + 4 * 32 + 5]
    np.testing.assert_array_equal(found.test_labels, rows[5, :, 0])


def test_svhn_writes_zero_as_ten(source, monkeypatch, tmp_path):
    from scipy.io import savemat

    pictures = np.random.default_rng(3).integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    for name in ("train", "test"):
        savemat(tmp_path / f"{name}.mat", {"X": pictures, "y": np.array([[1], [10], [9], [2]])})
    published = tuple(source(f"{n}.published", (tmp_path / f"{n}.mat").read_bytes()) for n in ("train", "test"))
    monkeypatch.setitem(datasets._SOURCES, "svhn", published)
    found = datasets.images("svhn")
    np.testing.assert_array_equal(found.train_labels, [1, 0, 9, 2])
    np.testing.assert_array_equal(found.test[1], pictures[..., 1])


def test_a_damaged_file_is_refused_and_not_kept(source, tmp_path):
    wrong = datasets._DataFile(source("labels.gz", b"what came").url, "0" * 32)
    with pytest.raises(ValueError, match="expected 00000000"):
        datasets._fetched(wrong)
    assert list((tmp_path / "cache" / "noisette").iterdir()) == []


def test_what_cannot_be_fetched_says_what_to_do(source, tmp_path):
    with pytest.raises(FileNotFoundError, match="name it in NOISETTE_DATA"):
        datasets._fetched(datasets._DataFile((tmp_path / "absent").as_uri(), "0" * 32))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: datasets.images("celeba"), "Unknown images 'celeba'"),
        (lambda: datasets.table("brazil"), "Unknown table 'brazil'"),
        (lambda: datasets.table("adult"), "'adult' are read from the folder in NOISETTE_DATA, which is not set"),
        (datasets.histograms, "'dpbench' are read"),
    ],
)
def test_a_name_or_folder_that_is_missing_is_named(monkeypatch, call, message):
    monkeypatch.delenv(datasets.VARIABLE, raising=False)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        call()


def test_a_folder_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        datasets.images("mnist")


@pytest.mark.slow
@pytest.mark.needs_data
@pytest.mark.parametrize(("name", "mean"), [("mnist", 0.13066), ("fashion-mnist", 0.28604)])
def test_grey_images_are_whole(name, mean):
    found = datasets.images(name)
    assert found.train.shape == (60_000, 28, 28)
    assert found.test.shape == (10_000, 28, 28)
    assert found.train.mean() / 255 == pytest.approx(mean, abs=5e-6)


@pytest.mark.long
@pytest.mark.needs_data
def test_colour_images_are_whole():
    found = datasets.images("cifar10")
    assert found.train.shape == (50_000, 32, 32, 3)
    assert np.bincount(found.test_labels).tolist() == [1000] * 10
    np.testing.assert_allclose(found.train.mean((0, 1, 2)) / 255, [0.49140, 0.48216, 0.44653], atol=5e-6)


@pytest.mark.long
@pytest.mark.needs_data
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("acs", 3_422_888),
        ("adult", 48_842),
        ("ctg", 2_126),
        ("imdb", 50_000),
        ("credit-fraud", 36_320),
        ("darknet", 5_000),
    ],
)
def test_tables_are_whole(name, rows):
    assert datasets.table(name).num_rows == rows


@pytest.mark.needs_data
def test_some_columns_are_enough():
    assert datasets.table("acs", ["AGEP"]).column_names == ["AGEP"]
    assert datasets.table("adult", ["age", "split"]).column_names == ["age", "split"]


@pytest.mark.needs_data
def test_histograms_are_whole():
    assert datasets.histograms()["d2_Adult_2D_256_256"].sum() == 32_561


def test_the_folder_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path))
    assert datasets.folder() == Path(tmp_path)


def test_a_file_of_another_kind_is_named(tmp_path):
    path = tmp_path / "images.gz"
    for head in (b"\0\0\x09\x01", b"\1\0\x08\x01", b""):
        path.write_bytes(gzip.compress(head))
        with pytest.raises(ValueError, match="is not an IDX file"):
            datasets._idx(path)
