"""`noisette certify`: write a certificate that anybody can check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("subject", metavar="NAME|SURVEY.YAML")
@click.option("--epsilon", "-e", type=float, help="Budget of a mechanism; a survey has its own.")
@click.option("--as-published", is_flag=True, help="The published form, with the guarantee that it claims.")
@click.option("--param", "params", multiple=True, metavar="K=V", help="Option of the mechanism or of its domain.")
@click.option("--output", "-o", type=click.Path(path_type=Path), required=True, help="File to write.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def certify(
    subject: str, epsilon: float | None, as_published: bool, params: tuple[str, ...], output: Path, as_json: bool
) -> None:
    """Write a certificate: the law of the reports, what is promised of it, and the hashes that bind both.

    NAME is one of those that `noisette mechanisms` lists. Nothing is written that `noisette verify` does not prove: a
    false claim is refused with the pair of inputs that refutes it, and a method whose law the verifier does not know
    yet with the reason.
    """
    from noisette._terminal import to_json
    from noisette.certificates import certify as made_for

    certificate = made_for(_subject(subject, epsilon, as_published, params))
    certificate.save(output)
    verdict, promise = certificate.verdict, certificate.fields["guarantee"]
    if as_json:
        result = {"output": str(output), "guarantee": promise, "law_sha256": certificate.law_sha256}
        click.echo(to_json(result | {"proved": verdict.proved, "reason": verdict.reason}))
        return
    click.echo(f"{verdict}\n\nWritten to {output}. Anybody can check it: noisette-verify {output}")


def _subject(subject: str, epsilon: float | None, as_published: bool, params: tuple[str, ...]) -> Any:
    """Return the mechanism or the survey."""
    from noisette.auditing.claims import published_form
    from noisette.cli.evidence.audit import build
    from noisette.survey.survey import Survey

    if subject.endswith((".yaml", ".yml", ".json")):
        if epsilon is not None or as_published or params:
            raise ValueError("A survey has its own budget and mechanisms: leave --epsilon and the other options out.")
        return Survey.read(subject)
    if epsilon is None:
        raise ValueError(f"Give a budget: noisette certify {subject} --epsilon 1 -o FILE.")
    mechanism = build(subject, epsilon, params)
    return published_form(mechanism) if as_published else mechanism
