"""What arrives: the JSON of reports, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from noisette.collector.campaigns import Campaign
from noisette.collector.periods import check_period
from noisette.collector.store import Received, Refusal, Refused

LARGEST_BATCH = 10_000

_Value = Annotated[
    Any, Field(description="What the mechanism sent: a number, or lists of numbers.", json_schema_extra={"example": 1})
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Entry(_Strict):
    """One report: the key of its sending, the period, the user's token of that period, and what was sent."""

    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{16,64}$")]
    period: Annotated[str, Field(max_length=16)]
    token: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    report: _Value


class One(Entry):
    """One report, with the version of the format."""

    version: Literal[1]


class Batch(_Strict):
    """Several reports, stored all or none."""

    version: Literal[1]
    reports: Annotated[list[Entry], Field(min_length=1, max_length=LARGEST_BATCH)]


def body_schema() -> dict[str, Any]:
    """Return the OpenAPI description of a body: one report or a batch."""
    parts = [model.model_json_schema(ref_template="#/components/schemas/{model}") for model in (One, Batch)]
    entry = Entry.model_json_schema()
    batch = parts[1]
    batch.pop("$defs")
    batch["properties"]["reports"]["items"] = entry
    return {"required": True, "content": {"application/json": {"schema": {"oneOf": [parts[0], batch]}}}}


def parse(body: bytes) -> list[Received]:
    """Read one report or a batch, or raise `Refused` with what is wrong and where."""
    model = Batch if b'"reports"' in body else One
    try:
        found: Any = model.model_validate_json(body)
    except (ValidationError, RecursionError) as error:
        raise Refused([Refusal(0, "malformed", _explain(error))]) from error
    entries: list[Entry] = found.reports if isinstance(found, Batch) else [found]
    return [Received(one.key, one.period, one.token, one.report) for one in entries]


def check(campaign: Campaign, batch: Sequence[Received]) -> None:
    """Raise `Refused` with every report that this campaign cannot have received."""
    refusals = [found for index, one in enumerate(batch) if (found := _wrong_period(campaign, index, one))]
    if refusals:
        raise Refused(refusals)
    try:
        campaign.decode([one.report for one in batch])
    except (TypeError, ValueError, OverflowError):
        raise Refused(list(_outside(campaign, batch))) from None


def _wrong_period(campaign: Campaign, index: int, one: Received) -> Refusal | None:
    try:
        check_period(campaign.period, one.period)
    except ValueError as error:
        return Refusal(index, "wrong-period", str(error))
    return None


def _outside(campaign: Campaign, batch: Sequence[Received]) -> list[Refusal]:
    """Return the reports that the mechanism cannot have sent, looking at one after the other."""
    found = []
    for index, one in enumerate(batch):
        try:
            campaign.decode([one.report])
        except (TypeError, ValueError, OverflowError) as error:
            found.append(Refusal(index, "out-of-support", str(error)))
    return found or [Refusal(0, "out-of-support", "The sums of this batch no longer fit 64 bits. Send fewer at once.")]


def _explain(error: ValidationError | RecursionError) -> str:
    """Say what is wrong without repeating what was sent."""
    if isinstance(error, RecursionError):
        return "Expected lists of fewer levels."
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}." if place else f"{first['msg']}."
