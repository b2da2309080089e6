"""`noisette audit`: is a method as private as it is said to be?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from noisette._terminal import console, progress, table, to_json
from noisette.cli._options import find, from_checkout


@click.command()
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="Audit the whole catalogue: the table of claims.")
@click.option("--epsilon", "-e", type=float, help="Budget; 1 with --all by default; with --scores what is claimed.")
@click.option("--as-published", is_flag=True, help="The form that was published, where it is not sound.")
@click.option("--param", "params", multiple=True, metavar="K=V", help="Option of the mechanism or of its domain.")
@click.option("--samples", type=int, default=200_000, show_default=True, help="Reports about each input.")
@click.option("--confidence", type=float, default=0.999, show_default=True, help="Of the lower bound.")
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed gives the same bound.")
@click.option(
    "--model", type=click.Path(path_type=Path), help="Attack a model, from what `noisette train --attack` wrote."
)
@click.option(
    "--scores", type=click.Path(path_type=Path), help="Scores of any attack: a table with columns score and member."
)
@click.option("--delta", type=float, default=0.0, show_default=True, help="With --scores: of what is claimed.")
@click.option("--one-run", is_flag=True, help="With --scores: canaries of one run, each in it by the toss of a coin.")
@click.option("--page", type=click.Path(path_type=Path), help="With --all, in a checkout: write the page of claims.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def audit(
    context: click.Context,
    name: str | None,
    every: bool,
    epsilon: float | None,
    as_published: bool,
    params: tuple[str, ...],
    samples: int,
    confidence: float,
    seed: int,
    model: Path | None,
    scores: Path | None,
    delta: float,
    one_run: bool,
    page: Path | None,
    as_json: bool,
) -> None:
    """Compare what is claimed of a mechanism with its exact epsilon, and with what its reports alone show.

    NAME is one of those that `noisette mechanisms` lists. --param takes options of the mechanism and of its domain,
    such as dims=10, delta=1e-5, size=7 or low=0; values are JSON or plain words. With --model a trained model is
    attacked instead: who was among its examples? With --scores an attack of your own is judged: its score of each
    example, higher for members, and whether the example was one (1 or 0).

    The exit status is 0 where the claim holds or nothing is claimed, and 1 where it is violated; with --all it is 1
    only if a method is violated in its own form, not in one that was published.
    """
    if model is not None or scores is not None:
        if name is not None or every or (model is not None and scores is not None):
            raise ValueError("--model and --scores audit a trained model: give one of them, without NAME and --all.")
        from noisette.auditing.attacks import attack_by_scores, attack_on_losses

        shared: dict[str, Any] = {"confidence": confidence, "rng": seed}
        if model is not None:
            found = attack_on_losses(model, **shared)
        else:
            assert scores is not None
            found = attack_by_scores(scores, claimed=epsilon, delta=delta, one_run=one_run, **shared)
        found |= {} if one_run else {"seed": seed}  # one run is judged without a draw
        click.echo(to_json(found)) if as_json else _show_attack(found)
        context.exit(int(found["verdict"] == "violated"))
    if delta or one_run:
        raise ValueError("--delta and --one-run are about --scores FILE. A mechanism's delta is --param delta=1e-5.")
    if every == (name is not None):
        raise ValueError("Give the name of one mechanism, or --all.")
    if every and (as_published or params):
        raise ValueError("--all audits every form on its example domain: leave --as-published and --param out.")
    if not every and page is not None:
        raise ValueError("--page is the table of all claims: add --all.")
    if name is not None:
        if epsilon is None:
            raise ValueError(f"Give a budget: noisette audit {name} --epsilon 1.")
        finding = _one(name, epsilon, as_published, params, samples, confidence, seed)
        click.echo(to_json(finding.spec() | {"seed": seed})) if as_json else _show_one(finding)
        context.exit(int(finding.verdict == "violated"))
    findings = _all(1.0 if epsilon is None else epsilon, samples, confidence, seed, page)
    if as_json:
        rows = [finding.spec() for finding in findings]
        click.echo(to_json({"samples": samples, "confidence": confidence, "seed": seed, "findings": rows}))
    else:
        _show_all(findings)
    context.exit(int(any(finding.verdict == "violated" and not finding.form for finding in findings)))


def build(name: str, epsilon: float, params: Sequence[str]) -> Any:
    """Return the example of a mechanism with some of its options, or of its domain's, replaced."""
    from noisette.mechanisms import from_spec

    cls = find(name)
    example = cls.example(epsilon)
    own = {field.name for field in fields(cls) if field.init}
    placed = "domain" in own  # levels say themselves where they lie
    spec, domain = example.spec(), example.domain.spec() if placed else {}
    own -= {"epsilon", "domain", "as_published"}
    given = dict(_parse(text) for text in params)
    unknown = sorted(set(given) - own - set(domain) - ({"domain"} if placed else set()) | set(given) & {"kind"})
    if unknown:
        known = ", ".join(sorted((own | set(domain)) - {"kind"}))
        raise ValueError(f"{name} has no option {unknown[0]!r}. Expected --param K=V with K one of {known}.")
    spec |= {key: value for key, value in given.items() if key in own}
    if placed:
        spec["domain"] = given.get("domain", domain | {key: value for key, value in given.items() if key in domain})
    return from_spec(spec)


def _parse(text: str) -> tuple[str, Any]:
    """Return an option and its value."""
    key, mark, value = text.partition("=")
    if not (mark and key and value):
        raise ValueError(f"Expected an option and its value, got --param {text!r}. Write e.g. --param dims=10.")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def _one(
    name: str,
    epsilon: float,
    as_published: bool,
    params: Sequence[str],
    samples: int,
    confidence: float,
    seed: int,
) -> Any:
    """Examine one mechanism."""
    from noisette.auditing import claims

    mechanism = build(name, epsilon, params)
    if as_published:
        if "as_published" not in {field.name for field in fields(mechanism)}:
            raise ValueError(f"The published form of {name} is the sound one: leave --as-published out.")
        mechanism = claims.published_form(mechanism)
    return claims.examine(mechanism, samples=samples, confidence=confidence, rng=seed)


def _all(epsilon: float, samples: int, confidence: float, seed: int, page: Path | None) -> Any:
    """Examine the catalogue, with a bar, and write the page where one is wanted; a bad path fails at once."""
    from noisette._files import whole_file
    from noisette.auditing import claims

    written = None if page is None else from_checkout("experiments.claims", "The page of claims is")
    with nullcontext() if page is None else whole_file(page) as stream, progress("Auditing") as advance:
        findings = claims.examine_all(epsilon, samples=samples, confidence=confidence, advance=advance, rng=seed)
        if stream is not None and written is not None:
            stream.write(written.page(findings).encode())
    return findings


def _show_attack(found: Mapping[str, Any]) -> None:
    """Print how well an attack does: a table, and the same in words."""

    def rate(measure: str) -> str:
        return "{value:.3f} [{low:.3f}, {high:.3f}]".format(**found[measure])

    shown = table(f"attack: {found['attack']}", ">value [interval]")
    if "auc" in found:
        shown.add_row("area under the curve (0.5 is a guess)", rate("auc"))
        shown.add_row("balanced accuracy", rate("balanced_accuracy"))
        shown.add_row("members found at 1 % false alarms", rate("hits_at_rare"))
    else:
        shown.add_row("right guesses", f"{found['correct']:,} of {found['guesses']:,}")
    shown.add_row("epsilon, at least", f"{found['lower_bound']:.4f}")
    shown.add_row("mu, at least, if the noise is Gaussian", f"{found['mu']:.4f}")
    if found["accountant"] is not None:
        shown.add_row("epsilon, at most, as claimed", _epsilon(found["accountant"]))
    out = console()
    out.print(shown)
    out.print(f"\n{found['words']}")
    if found["verdict"] is not None:
        out.print("[red]violated[/]" if found["verdict"] == "violated" else "[green]holds[/]")


def _show_one(finding: Any) -> None:
    """Print what was found of one mechanism."""
    from noisette.auditing.pairs import AtLeast

    shown = table("", ">epsilon")
    shown.add_row(f"claimed, per {finding.unit}", _epsilon(finding.claimed))
    known = "shown by the pairs compared, at least" if isinstance(finding.exact_epsilon, AtLeast) else "holds exactly"
    shown.add_row(known, _epsilon(finding.exact_epsilon))
    shown.add_row(f"shown by {finding.samples:,} reports an input, at least", f"{finding.lower_bound:.4f}")
    out = console()
    out.print(
        f"{finding.method} {finding.form}".rstrip() + (f", at δ = {finding.delta:g}" if finding.delta else ""),
        style="bold",
    )
    out.print(shown)
    out.print(f"\n{_verdict(finding)}")


def _show_all(findings: Sequence[Any]) -> None:
    """Print the table of claims."""
    shown = table("method", "unit", ">published", ">exactly", ">found", "verdict")
    for finding in findings:
        shown.add_row(
            f"{finding.method} {finding.form}".rstrip(),
            finding.unit,
            _epsilon(finding.claimed) + (" + δ" if finding.delta else ""),
            _epsilon(finding.exact_epsilon),
            f"{finding.lower_bound:.3f}",
            _verdict(finding),
        )
    out = console()
    out.print(shown)
    first = findings[0]
    out.print(
        f"\nEpsilon as published, as it is exactly, and what {first.samples:,} reports about each input show at least, "
        f"at confidence {first.confidence:g}.",
        style="dim",
    )


def _epsilon(value: float) -> str:
    return "∞" if value == float("inf") else f"{value:.6g}"


def _verdict(finding: Any) -> str:
    return "[red]violated[/]" if finding.verdict == "violated" else "[green]holds[/]"
