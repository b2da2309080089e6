"""`noisette report`: answer a campaign for the users in a file."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import click

from noisette._files import need_packages
from noisette._terminal import console, literal, progress, table, to_json

_URL = re.compile(r"(https?://.+?)/campaigns/([a-z0-9][a-z0-9-]*)/?")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--campaign", "address", required=True, metavar="URL", help="As https://HOST/campaigns/ID.")
@click.option("--epsilon", "-e", type=float, required=True, help="All that a user may ever spend, over all campaigns.")
@click.option("--delta", type=float, default=0.0, help="The same for delta.")
@click.option("--key-file", type=click.Path(path_type=Path), help="Holds the device key; else $NOISETTE_KEY.")
@click.option("--user", "user_column", metavar="COLUMN", help="Identifies users; the number of the row by default.")
@click.option("--codes", "code_file", type=click.Path(path_type=Path), help="JSON: each user's enrolment code.")
@click.option("--shuffler", metavar="URL", help="The shuffler in front of the collector, where there is one.")
@click.option("--secrets", "secret_file", type=click.Path(path_type=Path), help="JSON: each user's secret there.")
@click.option("--state", type=click.Path(path_type=Path), help="Folder for budget and reports, else FILE.noisette.")
@click.option("--clip", is_flag=True, help="Move numbers outside their range to its nearer end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def report(
    file: Path,
    address: str,
    epsilon: float,
    delta: float,
    key_file: Path | None,
    user_column: str | None,
    code_file: Path | None,
    shuffler: str | None,
    secret_file: Path | None,
    state: Path | None,
    clip: bool,
    as_json: bool,
) -> None:
    """Answer a campaign for the users of a CSV or Parquet file, one row a user.

    Columns have the names of the campaign's attributes; entries of a vector v are v[0], v[1] and so on. Every value is
    checked before anything is spent. Reports are made once and kept in --state: run the same command again after any
    interruption, and each user still counts once. Keep that folder: without it budgets are forgotten. Ends with code 1
    while reports wait or were refused.

    Where the collector signs tokens, --codes has the enrolment code of each user, by the name in the --user column or
    by the number of the row, from 0. Where reports come through a shuffler, --shuffler is its address and --secrets the
    file of each user's secret there; a report then counts as sent when the shuffler has it.
    """
    need_packages("Reporting", ("httpx", "yaml"), "collector")
    found = _URL.fullmatch(address)
    if found is None:
        raise ValueError(f"Expected --campaign {address!r} to be as https://HOST/campaigns/ID.")
    if (shuffler is None) != (secret_file is None):
        raise ValueError("Give --shuffler and --secrets together.")
    from noisette.device.files import Source
    from noisette.device.gateway import Gateway

    folder = state or file.with_name(f"{file.name}.noisette")
    options: dict[str, Any] = {"state": folder, "api_key": _key(key_file), "epsilon": epsilon, "delta": delta}
    options |= {"codes": _by_user(code_file), "shuffler": shuffler, "secrets": _by_user(secret_file)}
    with Gateway(found[1], found[2], **options) as gateway:
        source = Source(file, gateway.campaign, user_column, clip)
        with progress("Checking") as advance:
            digest = hashlib.sha256()
            for block in source.blocks():
                digest.update(block.digest)
                gateway.check(block.users)
                advance(block.share)
        if user_column is None:
            gateway.same_source(digest.hexdigest())
        rows = new = 0
        with progress("Privatising") as advance:
            for block in source.blocks():
                new += gateway.answer(block.users, block.coded, block.groups)
                rows += len(block.users)
                advance(block.share)
        with progress("Sending") as advance:
            tally = gateway.send(advance)
        result = {"campaign": gateway.campaign.id, "period": gateway.period, "rows": rows, "users": tally.reports}
        result |= {"new": new, "sent": tally.sent, "refused": tally.refused, "waiting": tally.waiting}
        result |= {"reasons": gateway.refusals(), "state": str(folder)}
    click.echo(to_json(result)) if as_json else _show(result)
    if tally.refused or tally.waiting:
        raise click.exceptions.Exit(1)


def _by_user(path: Path | None) -> dict[str, str]:
    """Return what a JSON file has for each user; nothing where there is no file."""
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # its message would show a part of the file
        raise ValueError(
            f'{path}: not a JSON file. Write an object with a text for each user, as {{"ann": "..."}}.'
        ) from error
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f'{path}: expected an object with a text for each user, as {{"ann": "..."}}.')
    return found


def _key(path: Path | None) -> str:
    """Return the device key, which is never an argument: others could read it in the list of processes."""
    if path is not None:
        return path.read_text(encoding="utf-8").strip()
    key = os.environ.get("NOISETTE_KEY", "").strip()
    if not key:
        raise ValueError("Give the device key: --key-file FILE, or the environment variable NOISETTE_KEY.")
    return key


def _show(result: dict[str, Any]) -> None:
    """Print where every row went."""
    out = console()
    shown = table("", ">count")
    for name in ("rows", "users", "sent", "refused", "waiting"):
        shown.add_row(name, f"{result[name]:,}")
    out.print(shown)
    again = result["rows"] - result["users"]
    if again > 0:
        out.print(f"{again:,} rows were of users who had answered in another row.")
    for reason, count in result["reasons"].items():
        out.print(literal(f"Refused {count:,}: {reason}"), soft_wrap=True)
    if result["waiting"]:
        out.print("Not all could be sent now. Run the same command again: nothing counts twice.")
    out.print(literal(f"Budget and reports are in {result['state']}: keep that folder."), style="dim", soft_wrap=True)
