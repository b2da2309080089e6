"""How long the verifiers take: every entry of the catalogue at three budgets, kinds of questions, and runs.

`PYTHONPATH=src python benchmarks/verifying.py` prints processor time in Python, and in node where it is installed, for
the slowest certificates.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import noisette as nz
import noisette_verify
from noisette.certificates import CertificateError, FederatedRun, TrainingRun, certify
from noisette.collector.web.pages import CLIENT

BUDGETS = (0.3, 2.0, 12.0)
SHOWN = 6
_BEGINNING = """
import { verify } from "./verify.js";
import fs from "fs";
const certificates = JSON.parse(fs.readFileSync("certificates.json"));
"""
_NODE = """
const found = {};
for (const [name, text] of certificates) {
  const began = process.cpuUsage();
  if (!(await verify(text)).proved) throw new Error(name);
  const spent = process.cpuUsage(began);
  found[name] = (spent.user + spent.system) / 1e6;
}
console.log(JSON.stringify(found));
"""


def subjects() -> dict[str, Any]:
    """Return what is certified, by name."""
    found: dict[str, Any] = {}
    for name, cls in nz.CATALOGUE.items():
        found |= {f"{name}, epsilon {epsilon:g}": cls.example(epsilon) for epsilon in BUDGETS}
    number, choice = nz.Number("a", 0, 9), nz.Choice("b", ["x", "y", "z"])
    several, text = nz.Choices("c", ["p", "q", "r", "s"], most=2), nz.Text("t", longest=8)
    found["a survey of four kinds of questions"] = nz.Survey([number, choice, several, text], epsilon=4.0)
    found["a survey of quantiles"] = nz.Survey([nz.Number("a", 0, 9, want="quantiles")], epsilon=1.0)
    found["a survey of 3,000 options"] = nz.Survey(
        [nz.Choices("c", [f"o{i}" for i in range(3000)], most=3)], epsilon=1.0
    )
    found["a training run"] = TrainingRun(1.0, 0.01, 1000, 1e-5)
    wide = nz.TensorGaussian(nz.TensorDomain((3, 3)), epsilon=20.0)
    found["100 Gaussian rounds, epsilon 676"] = FederatedRun(wide, 100, 1e-6)
    return found


def certificates() -> list[tuple[str, str]]:
    """Return the texts of all that can be certified."""
    found = []
    for name, subject in subjects().items():
        try:
            found.append((name, certify(subject).text))
        except CertificateError:
            continue
    return found


def in_python(made: list[tuple[str, str]]) -> dict[str, float]:
    """Return the seconds of each verdict."""
    found = {}
    for name, text in made:
        began = time.process_time()
        assert noisette_verify.verify(text).proved, name
        found[name] = time.process_time() - began
    return found


def run_in_node(script: str, certificates: list[Any]) -> Any:
    """Return the JSON that a script prints. It knows `verify` of web pages, and `certificates`."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
        for name in ("verify.js", "spent.js", "bytes.js"):
            (folder / name).write_text(CLIENT.joinpath(name).read_text(encoding="utf-8"), encoding="utf-8")
        (folder / "run.mjs").write_text(_BEGINNING + script, encoding="utf-8")
        (folder / "certificates.json").write_text(json.dumps(certificates), encoding="utf-8")
        done = subprocess.run(["node", "run.mjs"], cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def in_node(made: list[tuple[str, str]]) -> dict[str, float]:
    """Return the seconds of each verdict, the first of each kind with its compilation."""
    return dict(run_in_node(_NODE, made))


def main() -> None:
    """Print the slowest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = certificates()
    ways = {"Python": in_python} | ({"node": in_node} if shutil.which("node") else {})
    for name, way in ways.items():
        found = sorted(way(made).items(), key=lambda pair: -pair[1])
        print(
            f"{name}: {len(found)} certificates, {sum(spent for _, spent in found):.2f} s of processor time; slowest:"
        )
        for subject, spent in found[:SHOWN]:
            print(f"  {spent:.3f} s  {subject}")


if __name__ == "__main__":
    main()
