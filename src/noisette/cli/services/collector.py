"""`noisette collector`: what an operator does with a collector's database, while it serves or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from noisette._terminal import console, literal, table, to_json

_FILE = click.Path(path_type=Path)


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """Add what all commands take."""
    database = click.option("--database", default="sqlite:///noisette.db", show_default=True, help="That of `serve`.")
    return database(click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")(command))


_who = click.option("--as", "who", default="command line", show_default=True, help="Your name in the log of changes.")


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


def _print(rows: Sequence[Mapping[str, Any]], as_json: bool, **more: Any) -> None:
    """Print rows as a table, or all as JSON."""
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
    _print(rows, as_json)


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
    _print([{"id": campaign.id, "state": life.state}], as_json)


@collector.command()
@click.argument("file", type=_FILE)
@click.option(
    "--json", "as_json", is_flag=True, help="Print what the page would be shown as JSON, as POST /preview does."
)
def preview(file: Path, as_json: bool) -> None:
    """Show the form that a survey's file makes; nothing is opened or kept."""
    from math import exp

    from noisette.collector.campaigns.life import Life
    from noisette.collector.web.forms import rehearsed
    from noisette.survey.campaigns import Campaign
    from noisette.survey.survey import read_fields

    campaign = Campaign.read(file)
    form_data = rehearsed(campaign, Life.read(read_fields(file)))
    if as_json:
        click.echo(to_json(form_data))
        return
    out, form = console(), campaign.form
    out.print(literal(campaign.title), style="bold")
    out.print(literal(" ".join(filter(None, [f"Asked by {form['by']}." if form.get("by") else "", form.get("about")]))))
    shown = table("question", "answers", "")
    for one in form_data["attributes"]:
        words = form.get("questions", {}).get(one["name"], {})
        asked, unit = words.get("ask", one["name"]), words.get("unit", "")
        shown.add_row(literal(asked), literal(_answers(one, unit)), "may be left out" if one.get("optional") else "")
    group = form_data["public_group"]
    if group is not None:
        shown.add_row(literal(f"Your {group['name']}"), literal(", ".join(group["values"])), "sent openly")
    out.print(shown)
    out.print(f"A report moves the odds of a guess about a person by a factor of {exp(campaign.epsilon):.3g} at most.")


def _answers(asked: Mapping[str, Any], unit: str) -> str:
    """Say in a line what a question may be answered with."""
    if "categories" in asked:
        return f"one of {', '.join(asked['categories'])}"
    if "options" in asked:
        return f"up to {asked['most']} of {', '.join(asked['options'])}"
    if "text" in asked:
        return f"a text of up to {asked['text']} letters"
    low, high = (asked["levels"][0][0], asked["levels"][-1][1]) if "levels" in asked else asked["range"]
    ends = (end if isinstance(end, str) else f"{end:g}" for end in (low, high))
    return f"{' to '.join(ends)} {unit}".strip()


@collector.command()
@click.argument("campaign")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="Where the collector is.")
@click.option("--output", "-o", type=_FILE, help="Write a .svg or .png; without it the code is drawn on the terminal.")
@_common
def qr(campaign: str, url: str, output: Path | None, database: str, as_json: bool) -> None:
    """Show the address of a campaign's page, and the same as a QR code."""
    from noisette.collector.web.console import qr_code

    kind = "txt" if output is None else output.suffix.lower().lstrip(".")
    if kind not in ("txt", "svg", "png"):
        raise ValueError(f"Expected a .svg or .png to write to, got {output}.")
    with _store(database) as store:
        _known(_roster(store), campaign)
    address = f"{url.rstrip('/')}/c/{campaign}"
    drawn = qr_code(address, kind)
    if output is not None:
        output.write_bytes(drawn)
    elif not as_json:
        click.echo(drawn.decode())
    _print([{"address": address} | ({"file": str(output)} if output else {})], as_json)


@collector.command()
@click.argument("campaign")
@click.argument("changes", nargs=-1, required=True, metavar="FIELD=VALUE...")
@_who
@_common
def edit(campaign: str, changes: tuple[str, ...], who: str, database: str, as_json: bool) -> None:
    """Change the title, the target, the wanted error, the times or the webhook of a campaign.

    FIELD is one of title, users, wanted, opens, closes, late, skew, least, keep, liars, webhook; an empty VALUE
    removes wanted, opens, closes, keep or webhook. Wanted is the ± at which an answer is known well enough, in percent
    of its range. The questions and the budget of a campaign never change.
    """
    import yaml

    given: dict[str, Any] = {}
    for one in changes:
        name, sign, value = one.partition("=")
        if not sign:
            raise ValueError(f"Expected FIELD=VALUE, e.g. closes=2026-12-31, got {one!r}.")
        given[name] = value if name == "title" else yaml.safe_load(value) if value else None
    written = {
        name: str(own) if name in ("opens", "closes") and own is not None else own for name, own in given.items()
    }
    with _store(database) as store:
        life = _known(_roster(store), campaign).change(campaign, written, who)
    whole = life.written()
    _print([{"id": campaign} | {name: own for name, own in whole.items() if as_json or name in written}], as_json)


def _known(roster: Any, campaign: str) -> Any:
    if campaign not in roster:
        raise ValueError(f"There is no campaign {campaign!r} here. It has {', '.join(roster.campaigns) or 'none yet'}.")
    return roster


def _state(name: str, state: str, text: str) -> None:
    @collector.command(name, help=text)
    @click.argument("campaign")
    @_who
    @_common
    def change(campaign: str, who: str, database: str, as_json: bool) -> None:
        with _store(database) as store:
            _known(_roster(store), campaign).change(campaign, {"state": state}, who, f"{name}-campaign")
        _print([{"id": campaign, "state": state}], as_json)


_state("close", "closed", "Close a campaign: it takes no more reports, and its results stay.")
_state("reopen", "open", "Open a campaign again.")
_state("archive", "archived", "Put a campaign away: it takes no more reports, and its results stay.")


@collector.command()
@click.argument("campaign")
@_who
@_common
def rotate(campaign: str, who: str, database: str, as_json: bool) -> None:
    """Sign tokens of the current period with a new key; those that were signed before stay valid."""
    from noisette.collector.campaigns.issuing import Issuer

    with _store(database) as store:
        roster = _known(_roster(store), campaign)
        Issuer(store, tuple, roster.life).rotate(roster.campaign(campaign))
        roster.change(campaign, {}, who, "rotate-signing")
    _print([{"id": campaign, "signing": "a new key"}], as_json)


@collector.command()
@click.argument("campaign")
@click.option("--yes", is_flag=True, help="Delete without asking again.")
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
    _print([{"id": campaign, "deleted": users}], as_json)


@collector.command()
@click.argument("campaign")
@click.option("--period", help="The current one by default.")
@click.option("--enhance", default="none", show_default=True, help="Shrink the estimates, as on the dashboard.")
@click.option("--output", "-o", type=_FILE, help="Write every estimate as .csv or .parquet.")
@_common
def results(campaign: str, period: str | None, enhance: str, output: Path | None, database: str, as_json: bool) -> None:
    """Say what is known so far of each question, whether that is enough, how many users it still takes, and when."""
    from noisette.collector.results.estimates import Query, estimates, total
    from noisette.collector.results.exports import to_csv, to_parquet
    from noisette.collector.results.found import found_texts
    from noisette.collector.results.known import known_so_far
    from noisette.collector.results.pace import guessed
    from noisette.collector.storage.tracks import arrivals
    from noisette.enhancement import METHODS
    from noisette.survey.estimation.distributions import Shapes
    from noisette.survey.periods import check_period, period_at

    writers = {".csv": to_csv, ".parquet": to_parquet}
    if output is not None and output.suffix not in writers:
        raise ValueError(f"Expected a .csv or .parquet to write to, got {output}.")
    if enhance not in METHODS:
        raise ValueError(f"Expected --enhance to be one of {', '.join(sorted(METHODS))}, got {enhance!r}.")
    with _store(database) as store:
        roster = _known(_roster(store), campaign)
        asked, life = roster.campaign(campaign), roster.life(campaign)
        chosen = period_at(asked.period) if period is None else period
        check_period(asked.period, chosen)
        layout, sums, came = store.layout(asked), store.sums(asked), arrivals(store, asked, chosen)
    found = estimates(asked, layout, sums, Query(chosen, 0.95, enhance, life.least, life.liars), Shapes())
    whole = total(layout, sums.get(chosen, {}).values())
    named = [one.name for one in asked.survey.questions if one.tells == "texts"] if whole.users else []
    texts = {} if found["withheld"] else {name: found_texts(whole, name) for name in named}
    if output is not None:
        output.write_bytes(writers[output.suffix](found))
    when = guessed(asked, life, chosen, came, found["users"])
    rows = [
        {
            "known so far": one["sentence"],
            "state": one["state"],
            "users needed": one["needed"] if as_json else f"{one['needed']:,}",
            "when": one["when"],
        }
        for one in known_so_far(asked, found, texts, wanted=life.wanted, when=when)
    ]
    facts = {"period": chosen, "users": f"{found['users']:,} of {asked.users:,}"} | ({"file": output} if output else {})
    _print(rows, as_json, **(facts | {"estimates": found} if as_json else facts))


@collector.command()
@_common
def keys(database: str, as_json: bool) -> None:
    """List the keys that were given out by name."""
    with _store(database) as store:
        rows = [{name: one[name] for name in ("name", "role", "ends")} for one in store.registry.api_keys()]
    _print(rows, as_json)


@collector.command("add-key")
@click.argument("name")
@click.argument("role")
@click.option("--days", type=click.IntRange(1, 36500), help="End it after this many days.")
@_who
@_common
def add_key(name: str, role: str, days: int | None, who: str, database: str, as_json: bool) -> None:
    """Give out a key of a role: device, analyst, auditor or operator. It is shown this once."""
    from noisette.collector.web.operation import give_key

    with _store(database) as store:
        made = give_key(store.registry, name, role, days, who)
    _print([made], as_json)


@collector.command()
@click.argument("campaign")
@click.option("--days", type=click.IntRange(1, 36500), help="End it after this many days.")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="Where the collector is.")
@_who
@_common
def link(campaign: str, days: int | None, url: str, who: str, database: str, as_json: bool) -> None:
    """Make a link by which its holder sees the results of one campaign, and changes nothing. `end-key` ends it."""
    from noisette.collector.web.operation import viewing_link

    with _store(database) as store:
        _known(_roster(store), campaign)
        made = viewing_link(store.registry, campaign, days, who)
    _print([{"name": made["name"], "ends": made["ends"]}], as_json, link=f"{url.rstrip('/')}{made['path']}")


@collector.command("end-key")
@click.argument("name")
@_who
@_common
def end_key(name: str, who: str, database: str, as_json: bool) -> None:
    """End a key."""
    with _store(database) as store:
        store.registry.end_key(name, who)
    _print([{"name": name, "state": "ended"}], as_json)


@collector.command()
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only lines after this number.")
@_common
def audit(after: int, database: str, as_json: bool) -> None:
    """Show who changed what."""
    with _store(database) as store:
        rows = store.registry.log(after)
    _print(rows, as_json)


@collector.command()
@_common
def prune(database: str, as_json: bool) -> None:
    """Delete the reports that have been kept for long enough; a service that runs does so every ten minutes."""
    with _store(database) as store:
        count = _roster(store).expire()
    _print([{"deleted": count}], as_json)


@collector.command()
@click.argument("file", type=_FILE)
@_common
def backup(file: Path, database: str, as_json: bool) -> None:
    """Write the whole database to a file, as it is at one moment, while the service goes on."""
    from noisette.collector.storage.backup import backup as make

    made = make(database, file)
    _print([{"table": name, "rows": count} for name, count in made["rows"].items()], as_json, moment=made["moment"])


@collector.command()
@click.argument("file", type=_FILE)
@_common
def restore(file: Path, database: str, as_json: bool) -> None:
    """Fill an empty database from a backup, and list the periods that may have taken reports since it was made."""
    from noisette.collector.campaigns.life import taking
    from noisette.collector.storage.backup import restore as fill

    done = fill(file, database, taking)
    rows = [{"table": name, "rows": count} for name, count in done["rows"].items()]
    _print(rows, as_json, moment=done["moment"], unknown=done["unknown"])


@collector.command()
@_common
def verify(database: str, as_json: bool) -> None:
    """Sum every stored report again and compare; exit status 1 if anything is wrong."""
    from noisette.collector.storage.backup import verify as look

    rows = [vars(one) for one in look(database)]
    _print(rows, as_json)
    if any(row["wrong"] for row in rows):
        raise SystemExit(1)
