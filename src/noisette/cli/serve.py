"""`noisette serve`: the collector."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

_PACKAGES = ("fastapi", "prometheus_client", "sqlalchemy", "uvicorn", "yaml")


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="CAMPAIGN.yaml...")
@click.option(
    "--database", default="sqlite:///noisette.db", show_default=True, help="sqlite:///FILE or postgresql://HOST/NAME."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--keys", "key_file", type=click.Path(path_type=Path), help="YAML: device, analyst and auditor keys.")
@click.option("--max-body", type=click.IntRange(min=1), help="Largest body in bytes; 4 MiB by default.")
@click.option(
    "--allow-origin", "origins", multiple=True, metavar="URL", help="Site whose pages may answer."
)
@click.option("--plan", "only_plan", is_flag=True, help="Show the predicted errors and end.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan and the address as JSON.")
def serve(
    files: tuple[Path, ...],
    database: str,
    host: str,
    port: int,
    key_file: Path | None,
    max_body: int | None,
    origins: tuple[str, ...],
    only_plan: bool,
    as_json: bool,
) -> None:
    """Collect private reports for campaigns, and estimate while they arrive.

    Shows first what error each campaign will have. Without --keys a key for each role is made up and shown once. A
    report that was acknowledged is on the disk. SIGTERM ends the service after the requests that have begun.
    """
    lacking = [name for name in _PACKAGES if find_spec(name) is None]
    if lacking:
        raise ValueError(f"The collector needs {', '.join(lacking)}: pip install 'noisette[collector]'.")
    from noisette.collector.campaigns import Campaign

    campaigns = [Campaign.read(path) for path in files]
    if len({one.id for one in campaigns}) < len(campaigns):
        raise ValueError("Expected campaigns with different ids.")
    if only_plan:
        _show(campaigns, as_json, {})
        return
    from noisette._service import address, listen, run
    from noisette.collector.keys import Keys, new_keys
    from noisette.collector.service import LARGEST_BODY, create_app
    from noisette.collector.store import Store
    from noisette.collector.telemetry import log

    made = None if key_file else new_keys()
    keys = Keys(made) if made is not None else Keys.read(key_file or "")
    store = Store(database)
    app = create_app(campaigns, store, keys, origins=origins, largest_body=max_body or LARGEST_BODY)
    bound = listen(host, port)
    told: dict[str, Any] = {"url": address(host, bound)} | ({"keys": made} if made else {})
    _show(campaigns, as_json, told)
    run(app, bound, log)


def _show(campaigns: list[Any], as_json: bool, told: dict[str, Any]) -> None:
    """Print what the campaigns will cost and tell, and where they are served."""
    from noisette._terminal import console, describe, literal, number, table, to_json

    if as_json:
        plans = [
            one.to_wire() | {"predicted": dict(zip(one.quantities, one.predict(), strict=True))} for one in campaigns
        ]
        click.echo(to_json(told | {"campaigns": plans}))
        return
    out = console()
    for one in campaigns:
        inner = getattr(one.mechanism, "inner", one.mechanism.name)
        out.print(literal(f"{one.title} ({one.id}): {inner if isinstance(inner, str) else ', '.join(inner)}"))
        out.print(f"Guarantee: {describe(one.mechanism.guarantee)}")
        out.print(f"Answers: {one.answers}, one in each period ({one.period})")
        shown = table("quantity", ">std. error expected")
        for name, error in zip(one.quantities, one.predict().tolist(), strict=True):
            shown.add_row(literal(name), number(error, error))
        out.print(shown)
        out.print(f"At {one.users:,} users, for the distribution of values that is worst on average.", style="dim")
    for role, keys in told.get("keys", {}).items():
        out.print(literal(f"Key for {role}: {keys[0]}"), soft_wrap=True)
    if told:
        out.print(literal(f"Listening on {told['url']}"), soft_wrap=True)
        out.print(literal(f"Dashboard: {told['url']}/dashboard"), soft_wrap=True)
