"""The thief of the shuffler's disk: whatever is on it, nobody's packet can be told, before it is forwarded and after.

The thief has every file of the shuffler: the store with its free pages and journals, copied after every single post if
he likes, the list of clients, and the shuffler's own key. He works together with the server, so that he has every
packet as well.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
import stat
from pathlib import Path

import pytest
from tests.shuffler.helpers import KEY, fresh
from tests.shuffler.processes import receiver, shuffler

from noisette.shuffler import PacketLayout, Receipt, Round, Sender
from noisette.shuffler.clients import enrol, keys_of, read_credentials, sign
from noisette.shuffler.store import Shuffler, _name
from noisette.shuffler.wire import Frame

pytestmark = pytest.mark.slow

CLIENTS = [f"{number:02d}-device" for number in range(20)]
LAYOUT = PacketLayout(dims=1, batch=1)
ROUND = Round("run", 1, 1)


def post(value: float) -> bytes:
    """Return a frame of one packet, as devices of the collector send it."""
    return Frame(ROUND, [(0, KEY.public.seal(LAYOUT.split([value])[0], ROUND.label(0)))]).encode()


def links(image: bytes, frames: dict[str, bytes], keys: list[bytes]) -> set[tuple[str, str]]:
    """Return which (client, owner of a frame) the bytes of a disk tell.

    The thief looks for every client's name and every frame's and packet's digest, plain or under any key that he has;
    a client that is named within 200 bytes of a digest is linked to it.
    """
    clients, owners = {}, {}
    for name, frame in frames.items():
        ((_, sealed),) = Frame.decode(frame).packets
        for what, to in (
            (name.encode(), clients),
            *((hashlib.sha256(one).digest(), owners) for one in (frame, sealed)),
        ):
            to[what[:8]] = name
            for key in keys:
                to[hmac.new(key, what, hashlib.sha256).digest()[:8]] = name
    places: dict[str, list[int]] = {}
    told: list[tuple[int, str]] = []
    for place in range(len(image) - 7):
        piece = image[place : place + 8]
        if piece in clients:
            places.setdefault(clients[piece], []).append(place)
        if piece in owners:
            told.append((place, owners[piece]))
    return {
        (name, owner) for place, owner in told for name, own in places.items() for at in own if abs(at - place) < 200
    }


def test_the_thief_of_a_store_as_it_was_links_everybody(tmp_path: Path) -> None:
    """The twin: rows of client and SHA-256 of the frame, as the store kept them before, give all 20 away."""
    frames = {name: post(float(number)) for number, name in enumerate(CLIENTS)}
    with sqlite3.connect(tmp_path / "old.db") as connection:
        connection.execute("CREATE TABLE posts (client TEXT, post TEXT, digest BLOB, PRIMARY KEY (client, post))")
        rows = [(name, fresh(), hashlib.sha256(frame).digest()) for name, frame in frames.items()]
        connection.executemany("INSERT INTO posts VALUES (?, ?, ?)", rows)
    found = links((tmp_path / "old.db").read_bytes(), frames, [])
    assert {(name, name) for name in CLIENTS} <= found


@pytest.mark.long
def test_the_disk_of_a_shuffler_links_nobody(tmp_path: Path) -> None:
    """Twenty devices send to real services; the thief copies everything after every post, and after the forwarding."""
    enrol(tmp_path / "clients.json", CLIENTS, folder=tmp_path.parent / "devices")
    enrol(tmp_path / "shufflers.json", ["shuffler"], folder=tmp_path)
    behind = receiver(tmp_path)
    front = shuffler(tmp_path, behind.start(), "--minimum", str(len(CLIENTS)))
    images, frames, secret_of = [], {}, {}
    try:
        url = front.start()
        for number, name in enumerate(CLIENTS):
            _, secret_of[name] = read_credentials(tmp_path.parent / "devices" / f"{name}.json")
            carried = _Kept(url, name, secret_of[name])
            with Sender(carried, KEY.public) as sender:
                sender.send([float(number)], LAYOUT, context="run", number=1)
            frames[name] = carried.body
            images.append(_image(tmp_path))
        receipt = Receipt(tmp_path / "receipt.db")
        assert receipt.wait("run", 1, timeout=300)
        receipt.close()
        (again,) = {_refusal(url, name, secret_of[name]) for name in CLIENTS}
        assert again == (409, "already-sent")  # replays are refused all the same, after the forwarding too
    finally:
        logs = [one.stop()[1] for one in (front, behind)]
    told = [json.loads(line) for own in logs for line in own.splitlines() if line.startswith("{")]
    timed = {one.get("route") for one in told if one["event"] == "request"}
    assert not timed & {"/posts", "/shuffled"}  # the log tells of no post when it came
    assert {one["event"] for one in told} >= {"started", "released"}  # and tells what an operator needs
    after = _image(tmp_path)
    entries = json.loads((tmp_path / "clients.json").read_text(encoding="utf-8"))
    keys = [bytes.fromhex(part) for entry in entries.values() for part in entry.split(":")]
    keys += [part.encode() for entry in entries.values() for part in entry.split(":")]
    for image in (*images, after):
        assert not any(name.encode() in image for name in CLIENTS)
        for secret in secret_of.values():
            for known in (secret, *keys_of(secret)):
                assert known.encode() not in image
                assert bytes.fromhex(known) not in image
    for image in (images[0], images[-1], after):
        assert not links(image, frames, keys)
        # nor is a row one that the keys of the disk make, by the very way in which the store makes it
        own = ROUND.label(0) + Frame.decode(frames[CLIENTS[0]]).packet_bytes.to_bytes(4, "big")
        for entry in entries.values():
            for key in (entry, *entry.split(":")):
                assert _name(key, b"round " + own) not in image
    # the thief's eyes are good: with a mark, which only the device has, he would find the row
    assert all(_name(keys_of(secret)[1], b"round " + own) in after for secret in secret_of.values())
    for frame in frames.values():  # and of what was forwarded nothing is left, in free pages neither
        ((_, sealed),) = Frame.decode(frame).packets
        assert sealed in images[-2] or frame is frames[CLIENTS[-1]]
        assert sealed not in after


class _Kept:
    """Brings posts to a shuffler, and keeps the last one as whoever listens on the line would."""

    def __init__(self, url: str, client: str, secret: str) -> None:
        from noisette.shuffler.sender import Http

        self._http, self.body = Http(url, client=client, secret=secret), b""

    def post(self, number: str, body: bytes, *, minimum: int = 0) -> None:
        self.body = body
        self._http.post(number, body, minimum=minimum)

    def close(self) -> None:
        self._http.close()


def _refusal(url: str, name: str, secret: str) -> tuple[int, str]:
    import httpx

    body = post(0.0)
    answer = httpx.post(url + "/posts", content=body, headers=sign(secret, "/posts", name, fresh(), body))
    return answer.status_code, answer.json()["reason"]


def _image(folder: Path) -> bytes:
    """Return every byte of the shuffler's store and what lies beside it."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("shuffler.db*")))


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """The stores and everything beside them, however open the umask, and a file that was open before."""
    (tmp_path / "old.db").touch(mode=0o644)
    for made in (Shuffler(tmp_path / "s.db", minimum=2), Receipt(tmp_path / "r.db"), Receipt(tmp_path / "old.db")):
        for path in tmp_path.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.name == "old.db"
        made.close()
    assert stat.S_IMODE((tmp_path / "old.db").stat().st_mode) == 0o600
