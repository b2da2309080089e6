"""`noisette serve`: the collector."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from noisette._files import need_packages, whole_file


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[SURVEY.yaml...]")
@click.option(
    "--database", default="sqlite:///noisette.db", show_default=True, help="sqlite:///FILE or postgresql://HOST/NAME."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--keys", "key_file", type=click.Path(path_type=Path), help="YAML: the keys of each role.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes that serve.")
@click.option("--max-connections", type=click.IntRange(min=1), help="Open at once in a process; 1000 by default.")
@click.option("--max-body", type=click.IntRange(min=1), help="Largest body in bytes; 4 MiB by default.")
@click.option("--allow-origin", "origins", multiple=True, metavar="URL", help="Site whose pages may answer.")
@click.option("--shufflers", "shuffler_file", type=click.Path(path_type=Path), help="JSON: shufflers and secrets.")
@click.option("--server-key", type=click.Path(path_type=Path), help="PEM: the key that devices seal for.")
@click.option("--minimum", type=click.IntRange(min=2), help="Reports that a batch of the shuffler must have.")
@click.option("--colluding", type=click.IntRange(min=0), help="How many of them may collude; by default a tenth.")
@click.option("--rate", type=click.FloatRange(min=0), help="Requests a second of one address: 2000; 0 is no limit.")
@click.option("--tls-cert", type=click.Path(path_type=Path, exists=True), help="Certificate chain: serve HTTPS.")
@click.option("--tls-key", type=click.Path(path_type=Path, exists=True), help="Private key of the certificate.")
@click.option("--forms/--no-forms", default=True, help="A page /c/ID for each campaign, on which anyone may answer.")
@click.option("--local-webhooks", is_flag=True, help="Let webhooks call http, and machines of your network.")
@click.option("--plan", "only_plan", is_flag=True, help="Show the predicted errors and end.")
@click.option("--page", type=click.Path(path_type=Path), help="With --plan: write the plan as a web page.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan and the address as JSON.")
def serve(
    files: tuple[Path, ...],
    database: str,
    host: str,
    port: int,
    key_file: Path | None,
    workers: int,
    max_connections: int | None,
    max_body: int | None,
    origins: tuple[str, ...],
    shuffler_file: Path | None,
    server_key: Path | None,
    minimum: int | None,
    colluding: int | None,
    rate: float | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    forms: bool,
    local_webhooks: bool,
    only_plan: bool,
    page: Path | None,
    as_json: bool,
) -> None:
    """Collect private reports for campaigns, and estimate while they arrive.

    A campaign is a survey with an id, a period and tokens; one without an id is named after its file. The predicted
    error of each campaign is shown first. Without a file it starts with what the database holds, and prints a link to
    the console, which works once. Without --keys a key for each role is made and shown once. A report that was
    acknowledged is on the disk. SIGTERM ends the service after the requests that have begun. With --shufflers,
    --server-key and --minimum, reports are taken from `noisette shuffler` only, sealed.
    """
    from noisette.survey.campaigns import Campaign

    campaigns = [Campaign.read(path) for path in files]
    if len({one.id for one in campaigns}) < len(campaigns):
        raise ValueError("Expected campaigns with different ids.")
    if (tls_cert is None) != (tls_key is None):
        raise ValueError("Expected --tls-cert and --tls-key together.")
    if page is not None and not (only_plan and len(campaigns) == 1):
        raise ValueError("Expected --page with --plan and one campaign.")
    if only_plan:
        if page is not None:
            _write_page(campaigns[0], page)
        _show(campaigns, as_json, {})
        return
    need_packages("The collector", ("fastapi", "prometheus_client", "sqlalchemy", "uvicorn"), "collector")
    from noisette._service import LIMITS, Tls, address, listen, run, run_workers
    from noisette.collector.campaigns.life import Life
    from noisette.collector.campaigns.roster import lived
    from noisette.collector.storage.store import Store
    from noisette.collector.telemetry import log
    from noisette.collector.web.access import Keys, new_keys
    from noisette.collector.web.console import once_key
    from noisette.collector.web.service import LARGEST_BODY, RATE, check_secrets, create_app
    from noisette.survey.survey import read_fields

    made = None if key_file else new_keys()
    keys = Keys(made) if made is not None else Keys.read(key_file or "")
    shuffled = _shuffled(shuffler_file, server_key, minimum, colluding)
    given = [(one, Life.read(read_fields(path))) for one, path in zip(campaigns, files, strict=True)]
    with closing(Store(database)) as store:  # what is wrong is said here, before anything listens
        check_secrets(lived(store, given), keys)
        opening = None if files else once_key(store.registry)
    tls = Tls(tls_cert, tls_key) if tls_cert and tls_key else None
    bound = listen(host, port)
    served: dict[str, Any] = {"url": address(host, bound, tls), "forms": forms} | ({"keys": made} if made else {})
    if opening is not None:
        served["console"] = f"{served['url']}/console#key={opening}"
    _show(campaigns, as_json, served)
    sys.stdout.flush()

    def work() -> None:
        app = create_app(
            [],
            Store(database),
            keys,
            largest_body=max_body or LARGEST_BODY,
            rate=RATE if rate is None else rate or None,
            origins=origins,
            shuffled=shuffled,
            forms=forms,
            local_webhooks=local_webhooks,
        )
        run(app, bound, log, tls=tls, limits=replace(LIMITS, connections=max_connections or LIMITS.connections))

    if workers == 1:
        work()
    else:
        run_workers(workers, work, log)


def _write_page(campaign: Any, path: Path) -> None:
    """Write the plan as a web page that appears whole or not at all."""
    from noisette.collector.web.planpage import plan_page

    with whole_file(path) as stream:
        stream.write(plan_page(campaign).encode("utf-8"))


def _shuffled(shuffler_file: Path | None, server_key: Path | None, minimum: int | None, colluding: int | None) -> Any:
    """Return how reports come through a shuffler, or None if they come from devices."""
    if shuffler_file is None and server_key is None and minimum is None:
        return None
    if shuffler_file is None or server_key is None or minimum is None:
        raise ValueError("Give --shufflers, --server-key and --minimum together.")
    from noisette.collector.intake.shuffled import Shuffled
    from noisette.shuffler import Clients, ServerKey

    return Shuffled(ServerKey.read(server_key), Clients.read(shuffler_file), minimum, colluding=colluding)


def _show(campaigns: list[Any], as_json: bool, served: dict[str, Any]) -> None:
    """Print what the campaigns will cost and tell, and where they are served."""
    from noisette._terminal import HALF_WIDTH_95, console, describe, literal, number, table, to_json

    if as_json:
        plans = [
            one.to_wire() | {"predicted": dict(zip(one.quantities, one.predict(), strict=True))} for one in campaigns
        ]
        click.echo(to_json(served | {"campaigns": plans}))
        return
    from noisette.collector.web.planpage import named, verdicts

    out = console()
    for one in campaigns:
        out.print(literal(f"{one.title} ({one.id}): {named(one)}"))
        out.print(f"Guarantee: {describe(one.mechanism.guarantee)}")
        which = f"one of {one.periods} periods, and ± is about one" if one.answers == "tracked" else "each period"
        out.print(f"Answers: {one.answers}, one in {which} ({one.period})")
        shown = table("quantity", ">± expected", "verdict")
        judged = verdicts(one)
        for name, error in zip(one.quantities, one.predict().tolist(), strict=True):
            shown.add_row(literal(name), number(HALF_WIDTH_95 * error, error), judged[name])
        out.print(shown)
        out.print(
            f"± is half of a 95 % interval, at {one.users:,} users, for the distribution that is worst on average.",
            style="dim",
        )
    for role, keys in served.get("keys", {}).items():
        out.print(literal(f"Key for {role}: {keys[0]}"), soft_wrap=True)
    if served:
        out.print(literal(f"Listening on {served['url']}"), soft_wrap=True)
        out.print(literal(f"Dashboard: {served['url']}/dashboard"), soft_wrap=True)
        if "console" in served:
            out.print(literal(f"Console, once: {served['console']}"), soft_wrap=True)
        for one in campaigns if served["forms"] else ():
            out.print(literal(f"Form for {one.id}: {served['url']}/c/{one.id}"), soft_wrap=True)
