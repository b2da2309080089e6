"""`noisette demo`: the whole story, simulated."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--users", type=click.IntRange(min=1000), default=20_000, show_default=True, help="Simulated devices.")
@click.option("--epsilon", "-e", type=float, default=4.0, show_default=True, help="Budget of a device, in all.")
@click.option("--seed", type=int, default=7, show_default=True, help="Of the population and of the noise.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path("noisette-demo.html"),
    show_default=True,
    help="Report to write.",
)
@click.option("--keep", is_flag=True, help="Leave the collector and its dashboard running at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the story.")
def demo(users: int, epsilon: float, seed: int, output: Path, keep: bool, as_json: bool) -> None:
    """Plan a collection, start a collector, let simulated devices report, and compare with the truth.

    The terminal shows estimates while reports arrive, and the addresses of the form and the dashboard. The collector
    stops by itself.
    """
    from noisette._terminal import to_json
    from noisette.demo import run

    found = run(users=users, epsilon=epsilon, seed=seed, output=output, keep=keep, quiet=as_json)
    if as_json:
        click.echo(to_json(found))
