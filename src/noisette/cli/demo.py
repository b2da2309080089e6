"""`noisette demo`: a whole collection, simulated."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--users", type=click.IntRange(min=1000), default=200_000, show_default=True, help="Simulated devices.")
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
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the story.")
def demo(users: int, epsilon: float, seed: int, output: Path, as_json: bool) -> None:
    """Plan, privatise, aggregate, enhance and report a collection from simulated devices."""
    from noisette._terminal import to_json
    from noisette.demo import run

    found = run(users=users, epsilon=epsilon, seed=seed, output=output, quiet=as_json)
    if as_json:
        click.echo(to_json(found))
