"""What arrives: the JSON or the bytes of reports, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from noisette.collector.storage import seen
from noisette.collector.storage.store import Refusal, Refused, Submission
from noisette.device import batches
from noisette.device.batches import Block
from noisette.survey.campaigns import Campaign
from noisette.survey.periods import check_period

LARGEST_BATCH = 10_000

_Value = Annotated[
    Any, Field(description="What the mechanism sent: a number, or lists of numbers.", json_schema_extra={"example": 1})
]


def _whole(value: Any) -> Any:
    """Refuse what equals a whole number and is none: true, and 1.0."""
    if isinstance(value, bool | float):
        raise ValueError("Input should be 1")
    return value


_Version = Annotated[Literal[1], BeforeValidator(_whole)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Entry(_Strict):
    """One report: the key of its sending, the period, the user's token of that period, and what was sent.

    ``group`` is the public group, where the campaign has one; ``signature`` that of a blind token.
    """

    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{16,64}$")]
    period: Annotated[str, Field(max_length=16)]
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    report: _Value
    group: Annotated[str | None, Field(max_length=200)] = None
    signature: Annotated[str | None, Field(max_length=1024)] = None


class One(Entry):
    """One report, with the version of the format; ``campaign`` is checked where it is given."""

    version: _Version
    campaign: Annotated[str | None, Field(max_length=63)] = None


class Batch(_Strict):
    """Several reports, stored all or none."""

    version: _Version
    campaign: Annotated[str | None, Field(max_length=63)] = None
    reports: Annotated[list[Entry], Field(min_length=1, max_length=LARGEST_BATCH)]


def body_schema() -> dict[str, Any]:
    """Return the OpenAPI description of a body: one report or a batch, or a binary batch."""
    parts = [model.model_json_schema(ref_template="#/components/schemas/{model}") for model in (One, Batch)]
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


@dataclass(frozen=True, eq=False)
class Arrived:
    """A body that could be read: entries of JSON, or a binary block."""

    campaign: Campaign
    entries: tuple[Entry, ...]
    block: Block | None = None

    @property
    def size(self) -> int:
        """How many reports it holds."""
        return len(self.entries) if self.block is None else len(self.block)


def parse(campaign: Campaign, body: bytes) -> Arrived:
    """Read one report or a batch, in JSON or binary, or raise `Refused` with what is wrong and where."""
    if body[:4] == batches.MAGIC:
        try:
            return Arrived(campaign, (), batches.unpack(campaign, body, most=LARGEST_BATCH))
        except (batches.Malformed, batches.WrongCampaign) as error:
            reason = "wrong-campaign" if isinstance(error, batches.WrongCampaign) else "malformed"
            raise Refused([Refusal(0, reason, str(error))]) from error
    model = Batch if b'"reports"' in body else One
    try:
        found: Any = model.model_validate_json(body)
    except (ValidationError, RecursionError) as error:
        raise Refused([Refusal(0, "malformed", _explain(error))]) from error
    if found.campaign not in (None, campaign.id):
        detail = f"This report is for another campaign than {campaign.id!r}. Send it there."
        raise Refused([Refusal(0, "wrong-campaign", detail)])
    return Arrived(campaign, tuple(found.reports) if isinstance(found, Batch) else (found,))


def settle(arrived: Sequence[Arrived]) -> list[Submission | Refused]:
    """Turn what arrived into rows, and refuse what names a wrong period, group or shape.

    Reports of one campaign that came in many bodies are turned into rows at once. Whether they are in the support is
    seen when they are summed.
    """
    outcomes: dict[int, Submission | Refused] = {}
    plain: dict[str, list[int]] = {}
    for place, one in enumerate(arrived):
        refusals = _misplaced(one)
        if refusals:
            outcomes[place] = Refused(refusals)
        elif one.block is not None:
            outcomes[place] = Submission(one.campaign, (one.block,))
        else:
            plain.setdefault(one.campaign.id, []).append(place)
    for places in plain.values():
        outcomes |= dict(zip(places, _rowed([arrived[place] for place in places]), strict=True))
    return [outcomes[place] for place in range(len(arrived))]


def _rowed(alike: list[Arrived]) -> list[Submission | Refused]:
    """Turn the entries of one campaign into rows, one arrival after the other if they do not all fit."""
    campaign = alike[0].campaign
    entries = [entry for one in alike for entry in one.entries]
    try:
        rows = campaign.rows([entry.report for entry in entries])
    except (TypeError, ValueError, OverflowError):
        if len(alike) == 1:
            return [Refused(_impossible(alike[0]))]
        return [outcome for one in alike for outcome in _rowed([one])]
    tokens = np.frombuffer(bytes.fromhex("".join(entry.token[:32] for entry in entries)), np.uint8).reshape(-1, 16)
    keys = seen.key_digests(campaign.id, [entry.key for entry in entries])
    codes = {value: code for code, value in enumerate(campaign.public_group.values if campaign.public_group else ())}
    groups = np.asarray([0 if entry.group is None else codes[entry.group] for entry in entries], dtype=np.uint16)
    found: list[Submission | Refused] = []
    start = 0
    for one in alike:
        own = slice(start, start + one.size)
        start += one.size
        whole = Block("", tokens[own], keys[own], groups[own], rows[own], np.arange(one.size))
        found.append(Submission(campaign, tuple(_by_period(one, whole))))
    return found


def _by_period(one: Arrived, whole: Block) -> Iterator[Block]:
    """Cut a block into one for each period, which most often is one."""
    periods = list(dict.fromkeys(entry.period for entry in one.entries))
    named = np.asarray([entry.period for entry in one.entries]) if len(periods) > 1 else None
    for period in periods:
        part = whole if named is None else whole.take(named == period)
        yield Block(period, part.tokens, part.keys, part.groups, part.rows, part.index)


def _misplaced(one: Arrived) -> list[Refusal]:
    """Return the reports of a wrong period or group."""
    campaign = one.campaign
    if one.block is not None:
        return _wrong_period(campaign, one.block.period, 0) or _wrong_codes(campaign, one.block)
    found: list[Refusal] = []
    sound: set[tuple[str, str | None]] = set()
    for index, entry in enumerate(one.entries):
        if (entry.period, entry.group) in sound:
            continue
        wrong = _wrong_period(campaign, entry.period, index) or _wrong_group(campaign, entry.group, index)
        found += wrong
        if not wrong:
            sound.add((entry.period, entry.group))
    return found


def _wrong_period(campaign: Campaign, period: str, index: int) -> list[Refusal]:
    try:
        check_period(campaign.period, period)
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


def _wrong_codes(campaign: Campaign, block: Block) -> list[Refusal]:
    known = campaign.public_group
    if known is None:
        return []
    wrong = np.flatnonzero(block.groups >= len(known.values)).tolist()
    detail = f"Expected the number of a group of {known.name!r}, below {len(known.values)}."
    return [Refusal(index, "wrong-group", detail) for index in wrong]


def outside(submission: Submission) -> list[Refusal]:
    """Return the reports that the mechanisms cannot have sent, looking at one after the other."""
    campaign, found = submission.campaign, []
    for block in submission.blocks:
        for place, index in enumerate(block.index.tolist()):
            try:
                campaign.check(block.rows[place : place + 1])
            except (TypeError, ValueError, OverflowError) as error:
                found.append(Refusal(index, "out-of-support", str(error)))
    return found


def _impossible(one: Arrived) -> list[Refusal]:
    """Return the entries that are not of the right shape or type."""
    found = []
    for index, entry in enumerate(one.entries):
        try:
            one.campaign.rows([entry.report])
        except (TypeError, ValueError, OverflowError) as error:
            found.append(Refusal(index, "out-of-support", str(error)))
    return found or [Refusal(0, "out-of-support", "Reports of different types in one batch. Send them apart.")]


def _explain(error: ValidationError | RecursionError) -> str:
    """Say what is wrong without repeating what was sent."""
    if isinstance(error, RecursionError):
        return "Expected lists of fewer levels."
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}." if place else f"{first['msg']}."
