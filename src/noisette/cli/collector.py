"""`noisette collector`: what an operator does with a collector's database, while it serves or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

_FILE = click.Path(path_type=Path)


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """Add what all commands take."""
    database = click.option("--database", default="sqlite:///noisette.db", show_default=True, help="As of `serve`.")
    return database(click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")(command))


_who = click.option("--as", "who", default="command line", show_default=True, help="Name for the log of changes.")


@click.group()
def collector() -> None:
    """Operate a collector: campaigns, keys, the log of changes, backups.

    Commands work on the database; a service that runs sees changes within a second. Every command has --help and
    --json.
    """


def _store(database: str) -> Any:
    from noisette.collector.storage.store import Store

    return closing(Store(database))


def _roster(store: Any) -> Any:
    from noisette.collector.campaigns.roster import Roster

    return Roster(store)


def _told(rows: Sequence[Mapping[str, Any]], as_json: bool, **more: Any) -> None:
    """Print rows as a table, or all as JSON."""
    from noisette._terminal import console, literal, table, to_json

    if as_json:
        click.echo(to_json({"rows": rows} | more))
        return
    if rows:
        shown = table(*rows[0])
        for row in rows:
            shown.add_row(*(literal("" if own is None else own) for own in row.values()))
        console().print(shown)
    for name, own in more.items():
        console().print(literal(f"{name}: {own}"), soft_wrap=True)


@collector.command()
@_common
def campaigns(database: str, as_json: bool) -> None:
    """List the campaigns, their state and their reports."""
    with _store(database) as store:
        roster = _roster(store)
        rows = []
        for name, campaign in roster.campaigns.items():
            life = roster.life(name)
            ends = life.closes.isoformat() if life.closes else None
            users = sum(store.periods(campaign).values())
            rows.append({"id": name, "title": campaign.title, "state": life.state, "closes": ends, "reports": users})
    _told(rows, as_json)


@collector.command("open")
@click.argument("file", type=_FILE)
@_who
@_common
def open_campaign(file: Path, who: str, database: str, as_json: bool) -> None:
    """Open the campaign of a survey's file."""
    from noisette.collector.campaigns.life import Life
    from noisette.survey.campaigns import Campaign
    from noisette.survey.survey import read_fields

    campaign, life = Campaign.read(file), Life.read(read_fields(file))
    with _store(database) as store:
        _roster(store).open(campaign, life, who)
    _told([{"id": campaign.id, "state": life.state}], as_json)


@collector.command()
@click.argument("campaign")
@click.argument("changes", nargs=-1, required=True, metavar="FIELD=VALUE...")
@_who
@_common
def edit(campaign: str, changes: tuple[str, ...], who: str, database: str, as_json: bool) -> None:
    """Change what nothing private depends on.

    FIELD is one of title, users, opens, closes, late, skew, least, keep, liars, webhook; an empty VALUE takes an end or
    an address away.
    """
    import yaml

    told: dict[str, Any] = {}
    for one in changes:
        name, sign, value = one.partition("=")
        if not sign:
            raise ValueError(f"Expected FIELD=VALUE, e.g. closes=2026-12-31, got {one!r}.")
        told[name] = value if name == "title" else yaml.safe_load(value) if value else None
    written = {name: str(own) if name in ("opens", "closes") and own is not None else own for name, own in told.items()}
    with _store(database) as store:
        life = _known(_roster(store), campaign).change(campaign, written, who)
    _told([{"id": campaign} | life.written()], as_json)


def _known(roster: Any, campaign: str) -> Any:
    if campaign not in roster:
        raise ValueError(f"There is no campaign {campaign!r} here, but {', '.join(roster.campaigns) or 'none'}.")
    return roster


def _state(name: str, state: str, text: str) -> None:
    @collector.command(name, help=text)
    @click.argument("campaign")
    @_who
    @_common
    def change(campaign: str, who: str, database: str, as_json: bool) -> None:
        with _store(database) as store:
            _known(_roster(store), campaign).change(campaign, {"state": state}, who, f"{name}-campaign")
        _told([{"id": campaign, "state": state}], as_json)


_state("close", "closed", "Close a campaign: it takes no more reports, and its results stay.")
_state("reopen", "open", "Open a campaign again.")
_state("archive", "archived", "Put a campaign away: it takes no more reports, and its results stay.")


@collector.command()
@click.argument("campaign")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_who
@_common
def delete(campaign: str, yes: bool, who: str, database: str, as_json: bool) -> None:
    """Delete a closed or archived campaign with all its reports and sums."""
    with _store(database) as store:
        roster = _known(_roster(store), campaign)
        users = sum(store.periods(roster.campaign(campaign)).values())
        if not yes:
            click.confirm(f"Delete {campaign} and its {users:,} reports?", abort=True)
        roster.delete(campaign, who)
    _told([{"id": campaign, "deleted": users}], as_json)


@collector.command()
@_common
def keys(database: str, as_json: bool) -> None:
    """List the keys that were given out by name."""
    with _store(database) as store:
        rows = [{name: one[name] for name in ("name", "role", "ends")} for one in store.registry.api_keys()]
    _told(rows, as_json)


@collector.command("add-key")
@click.argument("name")
@click.argument("role")
@click.option("--days", type=click.IntRange(1, 36500), help="End it after so many days.")
@_who
@_common
def add_key(name: str, role: str, days: int | None, who: str, database: str, as_json: bool) -> None:
    """Give out a key of a role: device, analyst, auditor or operator. It is shown this once."""
    from noisette.collector.web.operation import give_key

    with _store(database) as store:
        made = give_key(store.registry, name, role, days, who)
    _told([made], as_json)


@collector.command()
@click.argument("campaign")
@click.option("--days", type=click.IntRange(1, 36500), help="End it after so many days.")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="Where the collector is.")
@_who
@_common
def link(campaign: str, days: int | None, url: str, who: str, database: str, as_json: bool) -> None:
    """Make a link by which its holder sees the results of one campaign, and changes nothing. `end-key` ends it."""
    from noisette.collector.web.operation import viewing_link

    with _store(database) as store:
        _known(_roster(store), campaign)
        made = viewing_link(store.registry, campaign, days, who)
    _told([{"name": made["name"], "ends": made["ends"]}], as_json, link=f"{url.rstrip('/')}{made['path']}")


@collector.command("end-key")
@click.argument("name")
@_who
@_common
def end_key(name: str, who: str, database: str, as_json: bool) -> None:
    """End a key."""
    with _store(database) as store:
        store.registry.end_key(name, who)
    _told([{"name": name, "state": "ended"}], as_json)


@collector.command()
@click.option("--after", type=click.IntRange(min=0), default=0, help="Number of the last line that is known.")
@_common
def audit(after: int, database: str, as_json: bool) -> None:
    """Show who changed what."""
    with _store(database) as store:
        rows = store.registry.log(after)
    _told(rows, as_json)


@collector.command()
@_common
def prune(database: str, as_json: bool) -> None:
    """Delete the reports that have been kept for long enough; a service that runs does so every ten minutes."""
    with _store(database) as store:
        count = _roster(store).expire()
    _told([{"deleted": count}], as_json)


@collector.command()
@click.argument("file", type=_FILE)
@_common
def backup(file: Path, database: str, as_json: bool) -> None:
    """Write the whole database to a file, as it is at one moment, while the service goes on."""
    from noisette.collector.storage.backup import backup as make

    made = make(database, file)
    _told([{"table": name, "rows": count} for name, count in made["rows"].items()], as_json, moment=made["moment"])


@collector.command()
@click.argument("file", type=_FILE)
@_common
def restore(file: Path, database: str, as_json: bool) -> None:
    """Fill an empty database from a backup, and say of which periods tokens may have been spent since it was made."""
    from noisette.collector.storage.backup import restore as fill

    done = fill(file, database)
    rows = [{"table": name, "rows": count} for name, count in done["rows"].items()]
    _told(rows, as_json, moment=done["moment"], unknown=done["unknown"])


@collector.command()
@_common
def verify(database: str, as_json: bool) -> None:
    """Sum every stored report again and compare; exit status 1 if anything is wrong."""
    from noisette.collector.storage.backup import verify as look

    rows = [vars(one) for one in look(database)]
    _told(rows, as_json)
    if any(row["wrong"] for row in rows):
        raise SystemExit(1)
