"""The last look before a release: every step on a clean clone, and the page that says what was seen.

scripts/release_check.py                      all steps, in a clone of the last commit; writes docs/release-check.md
scripts/release_check.py --only wheel         some steps; prints them and writes nothing
scripts/release_check.py --only wheel --page  the same, and puts them in place of what the page has of them
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "release-check.md"
_PYTEST = ".venv/bin/python -m pytest -q -p no:cacheprovider --tier=all"


@dataclass(frozen=True)
class Step:
    """What is looked at, the command for it, and how much of what it prints is kept."""

    name: str
    title: str
    command: str
    lines: int = 1
    matching: str = ""  # only lines in which this is found
    must: tuple[str, ...] = ()  # what has to be among the lines that are kept
    never: str = r"\b[1-9]\d* (?:failed|errors?|skipped)\b"  # what must not: a test that was skipped has shown nothing


STEPS = (
    Step(
        "demo",
        "The first README command, set-up included",
        "make demo",
        2,
        r"intervals hold|Done in",
        (r"of 20 intervals hold", r"Done in"),
    ),
    Step("check", "The core's tests", "make check", 1, r"passed", never=r"\bfailed|errors?\b"),  # extras are skipped
    Step("test", "The second README command, set-up included", "make test", 1, r"passed", never=r"\bfailed|errors?\b"),
    Step(
        "wheel",
        "Wheel and sdist in an empty environment: the README's example and the demo",
        f"{_PYTEST} tests/test_packages.py",
        1,
        r"passed",
        (r"passed",),
    ),
    Step(
        "npm",
        "The npm package: its size, its tests in node and in a browser, before a real collector",
        f"make npm && {_PYTEST} tests/collector/test_npm.py",
        5,
        r"^dist/noisette.js: |^# (?:pass|fail)|package size|passed",
        (r"noisette.js: 1[0-4]\d{3} bytes", r"# fail 0", r"package size", r"passed"),
    ),
    Step(
        "docs",
        "The documentation, strictly",
        "NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet && find site -name '*.html' | wc -l",
        must=(r"^\d{3}$",),
    ),
    Step(
        "phone",
        "Its pages on a screen of 390 pixels",
        ".venv/bin/python scripts/phone.py site",
        4,
        must=(r"^\d+ pages at 390 pixels: 0 with",),
    ),
    Step(
        "form",
        "The form on a screen of 390 pixels",
        f"{_PYTEST} tests/collector/test_form.py tests/collector/test_form_drawn.py",
        1,
        r"passed",
        (r"passed",),
    ),
    Step(
        "console",
        "A campaign from the empty console to closed, in a browser",
        f"{_PYTEST} tests/collector/test_console.py",
        1,
        r"passed",
        (r"passed",),
    ),
    Step(
        "train",
        "A training run, and its certificate",
        ".venv/bin/noisette train --model softmax --data mnist --epsilon 3 --epochs 1 --certificate run.json",
        12,
        must=(r"Test accuracy \d+",),
    ),
    Step(
        "verify",
        "That certificate, by the verifier alone, and the same with another epsilon",
        ".venv/bin/python -I verifier/noisette_verify.py run.json && "
        'sed \'s/\\("epsilon": *\\)"[^"]*"/\\1"1"/\' run.json >forged.json && '
        "! .venv/bin/python -I verifier/noisette_verify.py forged.json",
        8,
        must=(r"^PROVED: epsilon", r"^NOT PROVED: "),
    ),
    Step(
        "federation",
        "A federation on Flower's simulation",
        ".venv/bin/noisette federate run -e 8 --clients 40 --per-client 200 --rounds 2",
        16,
        must=(r"^ *2 .* 40 ", r"^local +\(8, 1e-06\)-DP, unit record, model local"),
    ),
    Step(
        "quickstart",
        "The Flower quickstart, by the command of its README; the server that Flower leaves running is ended",
        "export PATH=$PWD/.venv/bin:$PATH FLWR_HOME=$PWD/.flwr && cd examples/flower_quickstart && "
        "flwr run . --stream --federation-config 'num-supernodes=200'; ended=$?; "
        "kill $(pgrep -f $FLWR_HOME/local-superlink); exit $ended",
        4,
        r"'(rejected|accuracy)':",
        (r"'rejected': '0', 'reports': '100'", r"'accuracy'"),
    ),
)


def look(step: Step, clone: Path) -> tuple[str, bool]:
    """Do one step; return its part of the page and whether it went well."""
    hidden = ("COLUMNS", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    environment = {**kept, "FLWR_TELEMETRY_ENABLED": "0"}
    start = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", step.command],
        cwd=clone,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    took = time.monotonic() - start
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.stdout).replace(str(clone), ".")
    told = [line.rstrip() for line in plain.splitlines() if line.strip() and re.search(step.matching, line)]
    seen = "\n".join(told[-step.lines :])
    well = done.returncode == 0 and shows(step, seen)  # Flower's command ends with 0 where a run fails
    verdict = "" if well else f" **It failed, with exit status {done.returncode}.**"
    if not well:
        print(done.stdout[-4000:], file=sys.stderr)
    return (
        f"## {step.title}\n\n```console\n$ {step.command}\n{seen}\n```\n\n{took:,.0f} s.{verdict}\n",
        well,
    )


def shows(step: Step, seen: str) -> bool:
    """Tell whether the lines that are kept show that a step went well."""
    there = all(re.search(one, seen, re.MULTILINE) for one in step.must)
    return bool(seen) and there and not re.search(step.never, seen)


def placed(page: str, parts: dict[str, str], commit: str) -> str:
    """Return a page with some of its parts anew; each says its commit, and what is no step any more goes."""
    head, *old = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    there = {part.partition("\n")[0].removeprefix("## "): part for part in old}
    there |= {title: f"{part.rstrip()} At {commit}.\n" for title, part in parts.items()}
    kept = [there[step.title] for step in STEPS if step.title in there]
    return "\n".join(one.rstrip("\n") + "\n" for one in [head, *kept])


def main() -> int:
    """Clone, look at everything in turn, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[step.name for step in STEPS])
    parser.add_argument("--page", action="store_true", help="with --only: put these parts into the page")
    parser.add_argument("--note", default="", help="what else the machine did")
    options = parser.parse_args()
    if not os.environ.get("NOISETTE_DATA"):
        parser.error("Name the folder of real data in NOISETTE_DATA: training and federations need MNIST.")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    steps = [step for step in STEPS if options.only is None or step.name in options.only]
    head = (
        f"# The last look at {version}\n\n"
        f"What was done with a clean clone of {commit} on {time.strftime('%Y-%m-%d')}, and what was seen. "
        f"Written by `python scripts/release_check.py`. {options.note}".rstrip()
    )
    parts, fine = [head + "\n"], True
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "noisette"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        if not any(step.name in {"demo", "check", "test"} for step in steps):
            subprocess.run(["make", ".venv/.stamp-test"], cwd=clone, check=True)  # what the other steps run in
        for step in steps:
            print(f"{step.name} ...", flush=True)
            part, well = look(step, clone)
            fine &= well
            parts.append(part)
            print(part, flush=True)
            if options.only is None:
                PAGE.write_text("\n".join(parts), encoding="utf-8")
            elif options.page:
                PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), {step.title: part}, commit), encoding="utf-8")
    return not fine


if __name__ == "__main__":
    sys.exit(main())
