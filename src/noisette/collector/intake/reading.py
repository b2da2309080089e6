"""What arrives: the JSON or the bytes of reports, and what is wrong with them."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from noisette.collector.campaigns.life import ALWAYS, Life, Untimely
from noisette.collector.storage.store import Refusal, Refused
from noisette.mechanisms.written import other_law
from noisette.survey import batches
from noisette.survey.batches import Batch
from noisette.survey.campaigns import Campaign

LARGEST_BATCH = 10_000

_HARMLESS_BYTES = 1 << 12  # bytes whose lists cost a parser nothing, however many there are
_NAMED_REFUSALS = 100  # reports of one body that are named as refused

_Value = Annotated[
    Any, Field(description="What the mechanism sent: a number, or lists of numbers.", json_schema_extra={"example": 1})
]


def _whole(value: Any) -> Any:
    """Refuse what equals a whole number and is none: true, and 1.0."""
    if isinstance(value, bool | float):
        raise ValueError("Expected the whole number 1.")
    return value


_Version = Annotated[Literal[1], BeforeValidator(_whole)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Entry(_Strict):
    """One report: the key of its sending, the period, the user's token of that period, and what was sent.

    ``group`` is the public group, where the campaign has one; ``signature`` that of a blind token; ``law`` the hash of
    the law that the report was drawn by, which older devices leave out.
    """

    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{16,64}$")]
    period: Annotated[str, Field(max_length=16)]
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    report: _Value
    group: Annotated[str | None, Field(max_length=200)] = None
    signature: Annotated[str | None, Field(max_length=1024)] = None
    law: Annotated[str | None, Field(pattern=r"^[0-9a-f]{64}$")] = None


class One(Entry):
    """One report, with the version of the format; ``campaign`` is checked where it is given."""

    version: _Version
    campaign: Annotated[str | None, Field(max_length=63)] = None


class SeveralEntries(_Strict):
    """Several reports, stored all or none."""

    version: _Version
    campaign: Annotated[str | None, Field(max_length=63)] = None
    reports: Annotated[list[Entry], Field(min_length=1, max_length=LARGEST_BATCH)]


@dataclass(frozen=True, slots=True)
class Single:
    """One report whose form, period and group are sound; its numbers are looked at together with those of others."""

    campaign: Campaign
    entry: Entry

    def __len__(self) -> int:
        return 1

    def read(self) -> tuple[Batch, ...]:
        """Return it as a batch, or raise `Refused`."""
        return _batches(self.campaign, [self.entry])


Body = Sequence[Batch] | Single  # what one request brings


def together(singles: Iterable[Single]) -> Iterator[Batch]:
    """Yield single reports in batches, many at once, or raise `Refused` if one of them is none."""
    alike: dict[str, list[Single]] = {}
    for one in singles:
        alike.setdefault(one.campaign.id, []).append(one)
    for same in alike.values():
        yield from _batches(same[0].campaign, [one.entry for one in same])


def body_schema() -> dict[str, Any]:
    """Return the OpenAPI description of a body: one report or a batch, or a binary batch."""
    parts = [model.model_json_schema(ref_template="#/components/schemas/{model}") for model in (One, SeveralEntries)]
    batch = parts[1]
    batch.pop("$defs")
    batch["properties"]["reports"]["items"] = Entry.model_json_schema()
    return {
        "required": True,
        "content": {
            "application/json": {"schema": {"oneOf": parts}},
            batches.MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
        },
    }


def parse(campaign: Campaign, body: bytes, life: Life = ALWAYS) -> tuple[Batch, ...]:
    """Read one report or several, in JSON or binary: a batch for each period that they name, most often one.

    Raises `Refused` with what is wrong and where: the form, the campaign, a period that takes no reports now, a group,
    the shape of a report. Whether reports are in the support is seen when they are summed.
    """
    found = glance(campaign, body, life)
    return found.read() if isinstance(found, Single) else found


def glance(campaign: Campaign, body: bytes, life: Life = ALWAYS) -> tuple[Batch, ...] | Single:
    """Read a body as `parse` does, but leave the numbers of a single report alone, which many share the work of."""
    if body[:4] == batches.MAGIC:
        return (_unpacked(campaign, body, life),)
    if len(body) > _HARMLESS_BYTES and overgrown(campaign, body):
        detail = f"Expected 1 to {LARGEST_BATCH:,} reports with the lists and numbers of this campaign's, got more."
        raise Refused([Refusal(0, "malformed", detail)])
    model = SeveralEntries if b'"reports"' in body else One
    try:
        found: Any = model.model_validate_json(body)
    except (ValidationError, RecursionError) as error:
        raise Refused([Refusal(0, "malformed", _explain(error))]) from error
    if found.campaign not in (None, campaign.id):
        detail = f"This report is for another campaign than {campaign.id!r}. Send it there."
        raise Refused([Refusal(0, "wrong-campaign", detail)])
    entries = found.reports if isinstance(found, SeveralEntries) else [found]
    if refusals := _misplaced(campaign, entries, life):
        raise Refused(refusals)
    return _batches(campaign, entries) if model is SeveralEntries else Single(campaign, found)


def overgrown(campaign: Campaign, body: bytes) -> bool:
    """Tell whether JSON has more lists or values than this many reports can have, before anything is made of it.

    A parser and numpy take seconds over millions of empty lists, and let nothing else run meanwhile.
    """
    reports = body.count(b'"report"') + 2
    lists, values = 3, 16  # of all that is beside the report itself
    for name in campaign.row.names or ():
        shape = campaign.row[name].shape
        lists += sum(math.prod(shape[:level]) for level in range(len(shape)))
        values += math.prod(shape)
    labels = [] if campaign.public_group is None else campaign.public_group.values
    lists += max((one.count("[") + one.count("{") for one in labels), default=0)
    values += max((one.count(",") for one in labels), default=0)
    opened = body.count(b"[") + body.count(b"{")
    return reports > LARGEST_BATCH + 2 or opened > reports * lists or body.count(b",") > reports * values


def _unpacked(campaign: Campaign, body: bytes, life: Life) -> Batch:
    """Read a binary batch."""
    try:
        batch = batches.unpack(campaign, body, most=LARGEST_BATCH)
    except batches.MalformedBatch as error:
        raise Refused([Refusal(0, error.reason, str(error))]) from error
    if refusals := _wrong_period(campaign, life, batch.period, 0) or _wrong_codes(batch):
        raise Refused(refusals)
    return batch


def _batches(campaign: Campaign, entries: Sequence[Entry]) -> tuple[Batch, ...]:
    """Turn entries into a batch for each period."""
    try:
        rows = campaign.survey.rows([entry.report for entry in entries])
    except (TypeError, ValueError, OverflowError) as error:
        raise Refused(_impossible(campaign, entries)) from error
    tokens = np.frombuffer(bytes.fromhex("".join([entry.token[:32] for entry in entries])), np.uint8).reshape(-1, 16)
    keys = batches.key_digests(campaign.id, [entry.key for entry in entries])
    groups = np.zeros(len(entries), dtype=np.uint16)
    if campaign.public_group is not None:
        codes = {value: code for code, value in enumerate(campaign.public_group.values)}
        groups[:] = [codes[entry.group] for entry in entries if entry.group is not None]
    signed = tuple(map(_signed, entries)) if campaign.signed else ()
    index = np.arange(len(entries))
    first = entries[0].period
    whole = Batch(campaign, first, tokens, keys, groups, rows, index, signed)
    if all(entry.period == first for entry in entries):
        return (whole,)
    named = np.asarray([entry.period for entry in entries])
    return tuple(_of_period(whole, period, np.flatnonzero(named == period)) for period in dict.fromkeys(named.tolist()))


def _of_period(whole: Batch, period: str, chosen: npt.NDArray[np.int64]) -> Batch:
    signed = tuple(whole.signed[place] for place in chosen.tolist()) if whole.signed else ()
    return replace(whole.take(chosen), period=period, signed=signed)


def _signed(entry: Entry) -> tuple[bytes, bytes]:
    """Return token and signature of a report; an empty signature where there is none that can be read."""
    try:
        signature = base64.b64decode(entry.signature or "", validate=True)
    except ValueError:  # binascii.Error, or letters that are not ASCII
        signature = b""
    return bytes.fromhex(entry.token), signature


def _misplaced(campaign: Campaign, entries: Sequence[Entry], life: Life) -> list[Refusal]:
    """Return the reports of a wrong period, group or law."""
    found: list[Refusal] = []
    sound: set[tuple[str | None, ...]] = set()
    for index, entry in enumerate(entries):
        if (entry.period, entry.group, entry.law) in sound:
            continue
        wrong = _wrong_period(campaign, life, entry.period, index) or _wrong_group(campaign, entry.group, index)
        why = other_law(campaign.law_sha256, entry.law)
        wrong = wrong or ([Refusal(index, "wrong-law", f"This report cannot be taken. {why}")] if why else [])
        found += wrong
        if not wrong:
            sound.add((entry.period, entry.group, entry.law))
    return found


def _wrong_period(campaign: Campaign, life: Life, period: str, index: int) -> list[Refusal]:
    try:
        life.check(campaign, period)
    except Untimely as error:
        return [Refusal(index, error.reason, str(error))]
    except ValueError as error:
        return [Refusal(index, "wrong-period", str(error))]
    return []


def _wrong_group(campaign: Campaign, group: str | None, index: int) -> list[Refusal]:
    known = campaign.public_group
    if known is None and group is not None:
        return [Refusal(index, "wrong-group", "This campaign has no public group. Leave it out.")]
    if known is not None and group not in known.values:
        return [Refusal(index, "wrong-group", f"Expected the group to be one of the values of {known.name!r}.")]
    return []


def _wrong_codes(batch: Batch) -> list[Refusal]:
    known = batch.campaign.public_group
    if known is None:
        return []
    wrong = np.flatnonzero(batch.groups >= len(known.values)).tolist()
    detail = f"Expected the number of a group of {known.name!r}, below {len(known.values)}."
    return [Refusal(index, "wrong-group", detail) for index in wrong]


def outside(body: Sequence[Batch]) -> list[Refusal]:
    """Return the first reports that the mechanisms cannot have sent, found by halving."""
    found: list[Refusal] = []
    for batch in body:
        waiting = [(0, len(batch))]
        while waiting and len(found) < _NAMED_REFUSALS:
            first, end = waiting.pop()
            try:
                batch.campaign.check(batch.rows[first:end])
            except (TypeError, ValueError, OverflowError) as error:
                middle = (first + end) // 2
                if end - first > 1:
                    waiting += [(middle, end), (first, middle)]
                else:
                    found.append(Refusal(int(batch.index[first]), "out-of-support", str(error)))
    return found


def _impossible(campaign: Campaign, entries: Sequence[Entry]) -> list[Refusal]:
    """Return the entries that are not of the right shape or type."""
    found = []
    for index, entry in enumerate(entries):
        try:
            campaign.survey.rows([entry.report])
        except (TypeError, ValueError, OverflowError) as error:
            found.append(Refusal(index, "out-of-support", str(error)))
            if len(found) == _NAMED_REFUSALS:
                break
    return found or [Refusal(0, "out-of-support", "Reports of different types in one batch. Send them apart.")]


def _explain(error: ValidationError | RecursionError) -> str:
    """Say what is wrong without repeating what was sent."""
    if isinstance(error, RecursionError):
        return "Expected lists of fewer levels."
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}." if place else f"{first['msg']}."
