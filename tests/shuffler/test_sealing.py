"""Seals, frames, layouts and signatures, against independent computations and against whoever tampers with them."""

from __future__ import annotations

import json
import math
import os
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st
from tests.shuffler.by_hand import open_by_hand
from tests.shuffler.helpers import KEY, LAYOUT, post_of

from noisette._files import ChangingFile
from noisette.shuffler import Clients, PacketLayout, PublicKey, Round, ServerKey, new_secret
from noisette.shuffler.clients import (
    CLIENT,
    MARK,
    MINIMUM,
    POST,
    SIGNATURE,
    Forged,
    enrol,
    entry_of,
    read_credentials,
    sign,
)
from noisette.shuffler.layout import KINDS
from noisette.shuffler.sealing import OVERHEAD, CannotOpen
from noisette.shuffler.wire import Frame, Malformed


def test_a_seal_is_hpke(tmp_path: Path) -> None:
    key = ServerKey.generate()
    key.write(tmp_path / "server.pem")
    private = load_pem_private_key((tmp_path / "server.pem").read_bytes(), None)
    assert isinstance(private, X25519PrivateKey)
    for size in (0, 1, 800):
        payload = os.urandom(size)
        sealed = key.public.seal(payload, b"label")
        assert len(sealed) == size + OVERHEAD
        assert open_by_hand(private, sealed, b"label") == payload


def test_a_key_of_its_own_in_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    KEY.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ServerKey.read(path).public.text == KEY.public.text
    with pytest.raises(FileExistsError):
        ServerKey.generate().write(path)  # never over another key
    path.write_text("something else", encoding="utf-8")
    with pytest.raises(ValueError, match="is no private key"):
        ServerKey.read(path)
    for text in ("", "short", "é" * 44, KEY.public.text + "=="):
        with pytest.raises(ValueError, match="public key"):
            PublicKey(text)


def test_a_seal_opens_for_one_key_round_and_block() -> None:
    own = Round("run", 1, 3)
    sealed = KEY.public.seal(b"value", own.label(0))
    assert KEY.open(sealed, own.label(0)) == b"value"
    others = [own.label(1), Round("run", 2, 3).label(0), Round("run", 1, 4).label(0), Round("ruN", 1, 3).label(0)]
    for label in others:
        with pytest.raises(CannotOpen):
            KEY.open(sealed, label)
    with pytest.raises(CannotOpen):
        ServerKey.generate().open(sealed, own.label(0))
    for index in range(len(sealed)):
        with pytest.raises(CannotOpen):
            KEY.open(sealed[:index] + bytes([sealed[index] ^ 1]) + sealed[index + 1 :], own.label(0))
    for cut in (b"", sealed[:10], sealed[:40], sealed + b"x"):
        with pytest.raises(CannotOpen):
            KEY.open(cut, own.label(0))


def test_labels_of_different_rounds_differ() -> None:
    names = ("a", "ab", "a\x00", "b")
    labels = [Round(n, r, k).label(b) for n in names for r in (0, 1, 97) for k in (100, 101) for b in (0, 1, 97)]
    assert len(set(labels)) == len(labels)


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 2**32 - 1), st.sampled_from(sorted(KINDS)))
def test_blocks_are_a_partition(dims: int, batch: int, seed: int, kind: str) -> None:
    layout = PacketLayout(dims, batch, kind)
    drawn = np.random.default_rng(seed).integers(0, 2 if kind == "bit" else 30_000, dims)
    values = (drawn / 7 if kind == "float64" else drawn).astype(KINDS[kind])
    payloads = layout.split(values)
    assert layout.packet_bytes == (-(-batch // 8) if kind == "bit" else batch * KINDS[kind].itemsize)
    assert len(payloads) == layout.blocks
    assert {len(one) for one in payloads} == {layout.packet_bytes}  # the length tells nothing
    joined = [layout.join([one], block=block)[0] for block, one in enumerate(payloads)]
    assert np.concatenate(joined).tolist() == values.tolist()
    assert [layout.start(b) for b in range(layout.blocks)] == list(range(0, dims, batch))


@pytest.mark.parametrize("values", [[1.0], np.zeros(11), np.zeros((2, 5)), [np.nan] * 10, [np.inf] * 10, ["a"] * 10])
def test_values_that_cannot_be_sent(values: object) -> None:
    with pytest.raises((TypeError, ValueError), match="Expected"):
        LAYOUT.split(values)


@pytest.mark.parametrize(
    ("kind", "values"), [("int16", np.zeros(10)), ("int16", np.zeros(10, "i4")), ("bit", np.full(10, 2, "u1"))]
)
def test_values_of_another_kind(kind: str, values: object) -> None:
    with pytest.raises(ValueError, match=f"Expected values of kind '{kind}'"):
        PacketLayout(10, 2, kind).split(values)


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (-1, 1), (1.5, 1), (True, 1), (1, 1, "int7")])
def test_bad_layouts(sizes: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError), match="Expected"):
        PacketLayout(*sizes)


def test_frames_go_there_and_back() -> None:
    frame = Frame(Round("run/é", 7, 3), [(2, b"abc"), (0, b"def")])
    assert Frame.decode(frame.encode()) == frame


@given(st.binary(max_size=80))
def test_any_bytes_are_a_frame_or_malformed(body: bytes) -> None:
    for content in (body, post_of(1)[:22] + body, b"NZSH\x02" + body):
        with suppress(Malformed):
            assert Frame.decode(content).encode() == content


def test_every_cut_and_every_change_of_the_head_is_seen() -> None:
    body = post_of(1)
    for size in range(len(body)):
        with pytest.raises(Malformed):
            Frame.decode(body[:size])
    with pytest.raises(Malformed, match="version 2"):
        Frame.decode(body[:4] + b"\x01" + body[5:])
    with pytest.raises(Malformed):
        Frame.decode(body + b"\x00")


@pytest.mark.parametrize(("context", "number", "blocks"), [("", 1, 1), ("x" * 201, 1, 1), ("a", -1, 1), ("a", 1, 0)])
def test_bad_rounds(context: str, number: int, blocks: int) -> None:
    with pytest.raises(ValueError, match="Expected"):
        Round(context, number, blocks)


def test_keys_rotate_while_a_server_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sealed to an older key opens until it is retired; a broken file changes nothing."""
    monkeypatch.setattr("noisette.shuffler.sealing.ChangingFile", partial(ChangingFile, every=0.0))
    path = tmp_path / "server.pem"
    ServerKey.generate().write(path)
    key = ServerKey.read(path)
    old, sealed = key.public, key.public.seal(b"secret", b"round 1")
    ServerKey.read(path).rotated().write(path, replace=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key.public.text != old.text
    assert [one.text for one in key.publics] == [key.public.text, old.text]
    newer = key.public.seal(b"secret", b"round 1")
    assert key.open(sealed, b"round 1") == key.open(newer, b"round 1") == b"secret"
    with pytest.raises(CannotOpen):
        key.open(sealed, b"round 2")
    path.write_text("broken", encoding="utf-8")
    assert key.open(sealed, b"round 1") == b"secret"
    key.newest().write(path, replace=True)
    assert key.open(newer, b"round 1") == b"secret"
    with pytest.raises(CannotOpen):
        key.open(sealed, b"round 1")
    with pytest.raises(ValueError, match="at least one"):
        ServerKey()


def test_only_an_enrolled_client_can_sign() -> None:
    secret = new_secret()
    clients = Clients({"phone": secret, "other": new_secret()})
    good = sign(secret, "/posts", "phone", "post-1", b"body")
    found = clients.verify("/posts", good, b"body")
    assert (found.name, found.post, found.minimum) == ("phone", "post-1", 0)
    assert clients.admit(good) == found  # known before a body is read
    forgeries = [
        ("/posts", good, b"Body"),
        ("/other", good, b"body"),
        ("/posts", good | {CLIENT: "other"}, b"body"),
        ("/posts", good | {CLIENT: "nobody"}, b"body"),
        ("/posts", good | {POST: "post-2"}, b"body"),
        ("/posts", good | {SIGNATURE: "0" * 64}, b"body"),
        ("/posts", good | {SIGNATURE: "é"}, b"body"),
        ("/posts", good | {MARK: "0" * 64}, b"body"),
        ("/posts", good | {MARK: "é"}, b"body"),
        ("/posts", good | {MINIMUM: "1"}, b"body"),
        ("/posts", good | {MINIMUM: "-1"}, b"body"),
        ("/posts", good | {MINIMUM: "1" * 5000}, b"body"),
        ("/posts", sign(new_secret(), "/posts", "phone", "post-1", b"body"), b"body"),
        ("/posts", sign("0" * 64, "/posts", "nobody", "post-1", b"body"), b"body"),
        ("/posts", sign(secret, "/posts", "phone", "post\n1", b"body"), b"body"),
        ("/posts", {}, b"body"),
    ]
    for path, headers, body in forgeries:
        with pytest.raises(Forged):
            clients.verify(path, headers, body)


@pytest.mark.parametrize("content", ['{"a": "short"}', "{}", "[]", "nonsense", '{"a b": "' + "0" * 64 + '"}'])
def test_bad_files_of_clients(tmp_path: Path, content: str) -> None:
    (tmp_path / "clients.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"clients\.json") as caught:
        Clients.read(tmp_path / "clients.json")
    assert "short" not in str(caught.value)
    assert "nonsense" not in str(caught.value)


def test_enrolling(tmp_path: Path) -> None:
    path = tmp_path / "clients.json"
    made = enrol(path, ["a", "b"], folder=tmp_path / "own")
    enrol(path, ["c"], folder=tmp_path / "own")
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert list(stored) == ["a", "b", "c"]
    name, secret = read_credentials(made[1])
    assert (name, entry_of(secret)) == ("b", stored["b"])
    assert secret not in path.read_text(encoding="utf-8")
    assert {stat.S_IMODE(one.stat().st_mode) for one in (path, *made)} == {0o600}
    with pytest.raises(ValueError, match="enrolled already"):
        enrol(path, ["a"], folder=tmp_path)
    with pytest.raises(ValueError, match="expected one name"):
        read_credentials(path)
    (tmp_path / "one.json").write_text(json.dumps({"b": stored["b"]}), encoding="utf-8")
    with pytest.raises(ValueError, match="this is what the shuffler keeps"):
        read_credentials(tmp_path / "one.json")
    path.write_text(json.dumps({name: secret}), encoding="utf-8")  # as an older version left it
    enrol(path, [], folder=tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == {"b": stored["b"]}


def test_a_list_follows_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients come and go while a service runs, from its own list or from the file; a broken file changes nothing."""
    monkeypatch.setattr("noisette.shuffler.clients.ChangingFile", partial(ChangingFile, every=0.0))
    path = tmp_path / "clients.json"
    enrol(path, ["a"], folder=tmp_path)
    clients = Clients.read(path)
    made = clients.enrol(["b"])
    good = sign(made["b"], "/posts", "b", "post-1", b"body")
    assert clients.verify("/posts", good, b"body").name == "b"
    enrol(path, ["c"], folder=tmp_path)
    assert clients.names == ["a", "b", "c"]
    path.write_text("broken", encoding="utf-8")
    assert clients.names == ["a", "b", "c"]
    clients.revoke("b")
    assert Clients.read(path).names == ["a", "c"]
    with pytest.raises(Forged):
        clients.verify("/posts", good, b"body")
    for wrong in ("b", "nobody"):
        with pytest.raises(ValueError, match="enrolled client"):
            clients.revoke(wrong)
    with pytest.raises(ValueError, match="enrolled already"):
        clients.enrol(["a"])


SECRET = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "at least one client"),
        ([SECRET], "at least one client"),
        ({"": SECRET}, "1 to 64 letters"),
        ({"a" * 65: SECRET}, "1 to 64 letters"),
        ({"a b": SECRET}, "1 to 64 letters"),
        ({"good": SECRET, "a/b": SECRET}, "1 to 64 letters"),
        ({"one": 5}, "64 hexadecimal digits"),
        ({"one": None}, "64 hexadecimal digits"),
        ({"one": SECRET[:-1]}, "64 hexadecimal digits"),
        ({"one": SECRET + "0"}, "64 hexadecimal digits"),
        ({"one": SECRET[:-1] + "g"}, "64 hexadecimal digits"),
        ({"one": SECRET.upper()}, "64 hexadecimal digits"),
        ({"one": f"{SECRET}:{SECRET[:-1]}"}, "64 hexadecimal digits"),
        ({"good": SECRET, "one": "x"}, "64 hexadecimal digits"),
    ],
)
def test_a_list_with_one_wrong_client_is_refused(wrong: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Clients(wrong)
    path = tmp_path / "clients.json"
    path.write_text(json.dumps(wrong), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        Clients.read(path)


def test_names_of_64_letters_and_both_kinds_of_entries_are_taken() -> None:
    assert Clients({"a" * 64: SECRET, "b": f"{SECRET}:{SECRET}"}).names == ["a" * 64, "b"]


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        ("float64", [0.5, math.nan, 0.5], "finite"),
        ("float64", [0.5, 0.5, -math.inf], "finite"),
        ("float64", [0.5, 0.5], "shape"),
        ("int8", [0.5, math.nan, 0.5], "finite"),
        ("int8", [0.5, 0.5, 0.5], "kind 'int8', got numbers of float64"),
        ("bit", [0, 1, 2], "kind 'bit'"),
        ("bit", [2, 2, 2], "kind 'bit'"),
    ],
)
def test_one_wrong_entry_is_not_sent(kind: str, values: list[float], message: str) -> None:
    layout = PacketLayout(3, 2, kind)
    with pytest.raises(ValueError, match=message):
        layout.split(np.asarray(values, dtype=KINDS[kind] if kind == "bit" else np.float64))
    right = np.asarray([0, 1, 1], dtype=KINDS[kind])
    assert len(layout.split(right)) == 2
    if kind == "bit":
        with pytest.raises(ValueError, match="kind 'bit'"):
            layout.split(right.astype(np.int64))


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.pem"
    other = Ed25519PrivateKey.generate()
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(ValueError, match="expected a key for X25519, got a Ed25519PrivateKey"):
        ServerKey.read(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is no private key"):
        ServerKey.read(path)
