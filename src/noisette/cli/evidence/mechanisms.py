"""`noisette mechanisms`: what there is."""

from __future__ import annotations

import inspect
import json
import math
import sys
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

_BUDGET = 1.0
# What `describe` returns: computing it imports and calibrates every mechanism. `make catalogue` writes it anew.
STORED = Path(__file__).with_suffix(".json")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def mechanisms(as_json: bool) -> None:
    """List the mechanisms: what each protects, what was published, and whether that holds.

    Each stands at a budget of epsilon = 1 on its example domain.
    """
    listed = _listed()
    if as_json:
        click.echo(json.dumps(listed, indent=2, ensure_ascii=False, allow_nan=False))
        return
    from noisette._terminal import console, table

    shown = table("name", "estimates", "δ", "unit", "model", "relation", "claim", "holds?")
    for entry in listed["mechanisms"]:
        guarantee, published = entry["guarantee"], entry["published"]
        proved = math.inf if published["proved"]["epsilon"] is None else published["proved"]["epsilon"]
        verdict = "[green]yes[/]" if published["holds"] else f"[red]no: {proved:.3g}[/]"
        shown.add_row(
            entry["name"],
            entry["kind"],
            "δ" if guarantee["delta"] else "",
            *(guarantee[key] for key in ("unit", "model", "relation")),
            "none" if published["epsilon"] is None else f"{published['epsilon']:.3g}",
            verdict,
        )
    out = console()
    out.print(shown)
    out.print(
        "\nAt a budget of epsilon = 1, with a δ of 1e-6 where one is marked. The claim is the epsilon that was "
        "published for these parameters. Where it does not hold, the mechanism is mended by default and "
        "as_published=True builds the printed form, whose true epsilon stands beside the no.",
        style="dim",
    )


def _listed() -> Any:
    """Return what is stored of the catalogue, and what was registered since; that has imported the catalogue."""
    listed = json.loads(STORED.read_text(encoding="utf-8"))
    known = {entry["name"] for entry in listed["mechanisms"]}
    catalogue = sys.modules["noisette.mechanisms"].CATALOGUE if "noisette.mechanisms" in sys.modules else {}
    added = [_entry(name, cls) for name, cls in catalogue.items() if name not in known]
    if added:
        from noisette._terminal import to_json

        listed["mechanisms"] += json.loads(to_json({"added": added}))["added"]
    return listed


def describe() -> str:
    """Return the catalogue as JSON, computed from the mechanisms themselves; each has a line of its own."""
    from noisette import CATALOGUE
    from noisette._terminal import to_json

    plain = json.loads(to_json({name: _entry(name, cls) for name, cls in CATALOGUE.items()}))
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in plain.values())
    return f'{{"epsilon": {_BUDGET}, "mechanisms": [\n{lines}\n]}}\n'


def _entry(name: str, cls: type[Any]) -> dict[str, Any]:
    """Describe a mechanism: the guarantee of its sound form, and what became of the published claim."""
    example = cls.example(_BUDGET)
    published = example
    if "as_published" in {field.name for field in fields(cls)}:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning is what the table says
            published = replace(example, as_published=True)
    proved = published.guarantee
    claim = proved.claim
    return {
        "name": name,
        "kind": cls.kind,
        "summary": (inspect.getdoc(cls) or "").partition("\n")[0],
        "domain": example.domain.spec(),
        "guarantee": {key: value for key, value in example.guarantee.spec().items() if key != "claim"},
        "published": {
            "epsilon": None if claim is None else claim.epsilon,
            "delta": None if claim is None else claim.delta,
            "unit": None if claim is None else claim.unit,
            "source": None if claim is None else claim.source,
            "holds": proved.claim_holds,
            "proved": {"epsilon": proved.epsilon, "delta": proved.delta, "unit": proved.unit},
        },
    }
