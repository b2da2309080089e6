"""Binary batches at each limit, one byte off, and shares of groups that add up to one or just do not."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest

from noisette.survey.batches import MalformedBatch, WrongCampaign, WrongLaw, pack, unpack
from noisette.survey.campaigns import Campaign
from noisette.survey.estimation.distributions import consistent_shares, quantiles
from noisette.survey.estimation.weighting import _margin, raked
from noisette.survey.plans import _shares

FIELDS: dict[str, Any] = {
    "id": "ages",
    "epsilon": 1.0,
    "users": 100,
    "attributes": [{"name": "age", "range": [0, 100]}],
    "mechanism": "piecewise",
}
PLAIN = Campaign.from_dict(FIELDS)
GROUPED = Campaign.from_dict(FIELDS | {"public_group": {"name": "town", "values": ["n", "s"]}})
COUNT = 3
TOKENS = bytes(range(32 * COUNT))
ROWS = PLAIN.survey.rows([PLAIN.privatize({"age": 30.0}, rng=seed) for seed in range(COUNT)])


def sealed(body: bytes) -> bytes:
    """The same bytes with a checksum that fits."""
    return body[:-4] + struct.pack("<I", zlib.crc32(body[:-4]))


def changed(body: bytes, place: int, new: bytes) -> bytes:
    return sealed(body[:place] + new + body[place + len(new) :])


def test_the_bytes_are_where_the_format_says() -> None:
    body = pack(GROUPED, "once", TOKENS, ROWS, groups=[1, 0, 258], signatures=b"AABBCC")
    width = ROWS.dtype.itemsize
    head = struct.pack("<4sHHHHII", b"NZRB", 2, 4, 4, 2, COUNT, width)
    assert len(head) == 20
    law = bytes.fromhex(GROUPED.law_sha256)
    wanted = head + b"ages" + b"once" + law + TOKENS + b"\1\0\0\0\2\1" + b"AABBCC" + ROWS.tobytes()
    assert body == wanted + struct.pack("<I", zlib.crc32(wanted))
    found = unpack(GROUPED, body, most=COUNT)
    assert found.period == "once"
    assert [bytes(one) for one in found.tokens] == [TOKENS[32 * place : 32 * place + 16] for place in range(COUNT)]
    assert found.groups.tolist() == [1, 0, 258]
    assert found.signed == tuple(
        (TOKENS[32 * place : 32 * place + 32], sign) for place, sign in enumerate((b"AA", b"BB", b"CC"))
    )
    assert np.array_equal(found.rows, ROWS)
    assert (found.keys, found.index.tolist()) == (None, [0, 1, 2])


def test_without_groups_or_signatures_there_are_none() -> None:
    found = unpack(PLAIN, pack(PLAIN, "once", TOKENS, ROWS), most=COUNT)
    assert (found.groups.tolist(), found.signed) == ([0, 0, 0], ())
    assert np.array_equal(found.rows, ROWS)
    for tokens in (TOKENS[:-1], TOKENS + b"x"):
        with pytest.raises(ValueError, match="3 tokens of 32 bytes"):
            pack(PLAIN, "once", tokens, ROWS)


def test_one_byte_that_is_wrong() -> None:
    good = pack(PLAIN, "once", TOKENS, ROWS)
    assert len(unpack(PLAIN, good, most=COUNT)) == COUNT
    for body, most, message in (
        (good, COUNT - 1, "1 to 2 reports in a batch, got 3"),
        (good[:23], COUNT, "begins with NZRB"),
        (b"X" + good[1:], COUNT, "begins with NZRB"),
        (changed(good, 4, b"\3"), COUNT, "version 2 of a binary batch, got 3"),
        (good[:30] + b"\xff" + good[31:], COUNT, "checksum"),
        (good[:-1] + bytes([good[-1] ^ 1]), COUNT, "checksum"),
        (sealed(good[:-5] + good[-4:]), COUNT, "bytes for 3 reports"),
        (sealed(good[:-4] + b"x" + good[-4:]), COUNT, "bytes for 3 reports"),
        (changed(good, 12, b"\0"), COUNT, "got 0"),
        (changed(good, 10, b"\1"), COUNT, "bytes for 3 reports"),
        (changed(good, 20, b"\xff"), COUNT, "in ASCII"),
        (changed(good, 24, b"\xff"), COUNT, "in ASCII"),
    ):
        with pytest.raises(MalformedBatch, match=message):
            unpack(PLAIN, body, most=most)
    with pytest.raises(WrongCampaign, match="another campaign than 'ages'"):
        unpack(PLAIN, changed(good, 20, b"A"), most=COUNT)
    with pytest.raises(WrongLaw):
        unpack(PLAIN, changed(good, 28, bytes([good[28] ^ 1])), most=COUNT)
    other = Campaign.from_dict(
        FIELDS | {"attributes": [{"name": "by", "categories": list("abcde")}], "mechanism": "oue"}
    )
    rows = other.survey.rows([other.privatize({"by": "a"}, rng=1)] * COUNT)
    with pytest.raises(MalformedBatch, match="Expected reports of"):
        unpack(PLAIN, pack(other, "once", TOKENS, rows), most=COUNT)


@pytest.mark.parametrize("check", ["plan", "margin"])
def test_shares_add_up_to_one_or_nearly(check: str) -> None:
    survey = GROUPED.survey

    def shares(given: Any) -> Any:
        return _shares("town", ["n", "s"], given) if check == "plan" else _margin(survey, "town", given)

    assert shares({"s": 0.3, "n": 0.7}) == {"n": 0.7, "s": 0.3}
    for off in (0.9e-6, -0.9e-6):
        assert shares({"n": 0.7 + off, "s": 0.3})["s"] == 0.3
    assert shares({"n": 1, "s": 0}) == {"n": 1.0, "s": 0.0}
    for wrong in (
        {"n": 0.7 + 1.1e-6, "s": 0.3},
        {"n": 0.7 - 1.1e-6, "s": 0.3},
        {"n": 1.1, "s": -0.1},
        {"n": 1.0},
        {"n": 0.5, "s": 0.3, "w": 0.2},
    ):
        with pytest.raises(ValueError, match="town"):
            shares(wrong)
    assert _shares("town", ["n", "s", "w"], None) == {"n": 1 / 3, "s": 1 / 3, "w": 1 / 3}


def test_raking_meets_all_margins_and_keeps_the_ratios() -> None:
    counts = np.random.default_rng(3).uniform(1, 9, (2, 3, 2))
    margins = [(0, np.asarray([0.3, 0.7])), (1, np.asarray([0.2, 0.5, 0.3])), (2, np.asarray([0.9, 0.1]))]
    found = raked(counts, margins)
    for axis, wanted in margins:
        others = tuple(place for place in range(3) if place != axis)
        assert found.sum(axis=others) == pytest.approx(wanted, abs=1e-9)
    # what no margin touches: the interaction of all three
    logs = np.log(found / counts)
    twist = logs[:, :-1] - logs[:, 1:]
    twist = twist[0] - twist[1]
    assert twist[:, 0] - twist[:, 1] == pytest.approx([0, 0], abs=1e-9)
    empty = counts.copy()
    empty[0] = 0
    with pytest.raises(ValueError, match="somebody in every group"):
        raked(empty, margins)
    gone = raked(empty, [(0, np.asarray([0.0, 1.0]))])
    assert gone[0].sum() == 0
    with pytest.raises(ValueError, match="does not settle"):
        raked(np.eye(2), [(0, np.asarray([0.3, 0.7])), (1, np.asarray([0.6, 0.4]))])


def test_quantiles_of_bins_with_empty_ones() -> None:
    edges, shares = np.asarray([0.0, 1.0, 2.0, 5.0]), np.asarray([2.0, 0.0, 6.0])
    found = quantiles(edges, shares, (0.0, 0.125, 0.2499, 0.2501, 0.625, 1.0))
    assert found.tolist() == pytest.approx([0.0, 0.5, 0.9996, 2.0004, 3.5, 5.0], abs=1e-6)


def test_shares_are_told_where_all_are_known() -> None:
    from noisette.core import Estimate

    value, error = np.asarray([0.7, 0.5, -0.1]), np.full(3, 0.1)
    found = consistent_shares(Estimate(value, error, np.full(3, 50)))
    assert found is not None
    assert found.tolist() == pytest.approx([0.6, 0.4, 0.0])  # the nearest that add up to one
    for place, wrong in ((1, np.inf), (2, np.nan)):
        for which in (0, 1):
            bad = [value.copy(), error.copy()]
            bad[which][place] = wrong
            assert consistent_shares(Estimate(*bad, np.full(3, 50))) is None
