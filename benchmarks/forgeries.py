"""Forge certificates by the thousand, and make as many sound ones: what do the two verifiers say?

`PYTHONPATH=src python benchmarks/forgeries.py --write` forges a thousand certificates of every kind of law and
certifies a thousand random mechanisms, asks the verifier in Python, and in node the one of web pages, and writes the
counts to `benchmarks/forgeries.json`. It fails where a forged one is proved or a sound one is not. `--count` takes
another number.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.certificates.test_certificates import FORGED, forged, sound_ones, written

import noisette_verify
from noisette.certificates import certify
from verifying import run_in_node

RECORD = Path(__file__).with_suffix(".json")
SOUND = "sound"
LONGEST = 100_000  # characters that a page is asked to read
_NODE = """
const found = [];
for (const text of certificates) found.push((await verify(text)).proved);
console.log(JSON.stringify(found));
"""


def in_python(texts: list[str]) -> list[bool]:
    """Return of each text whether it is proved."""
    return [noisette_verify.verify(text).proved for text in texts]


def in_node(texts: list[str]) -> list[bool]:
    """Return the same as the verifier of web pages says it."""
    return list(run_in_node(_NODE, texts))


def _keep(record: dict[str, Any], write: bool) -> None:
    """Write the counts so far, where that was asked for: a run that is cut short keeps its kinds."""
    if write:
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Count the verdicts, print them and fail where one is wrong."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--count", type=int, default=1000, help="forgeries of each kind, and sound mechanisms")
    asked.add_argument("--only", nargs="*", choices=[*FORGED, SOUND], help="some kinds; the record keeps the others")
    asked.add_argument("--write", action="store_true", help=f"write {RECORD.name}")
    options = asked.parse_args()
    ways: dict[str, Callable[[list[str]], list[bool]]] = {"python": in_python}
    if shutil.which("node"):
        ways["node"] = in_node
    warnings.simplefilter("ignore")
    began, wrong = time.process_time(), 0
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    record: dict[str, Any] = {"forged": {}, "sound": {}}
    if options.only is not None and RECORD.exists():
        record = json.loads(RECORD.read_text(encoding="utf-8"))
    record.pop("commit", None)  # each count names the commit that it was made at
    kinds = [*FORGED, SOUND] if options.only is None else options.only
    for name in kinds:
        if name == SOUND:
            continue
        texts = [text for _, text in forged(name, options.count, random.Random(f"forged {name}"))]
        record["forged"][name] = {"commit": commit}
        for way, verify in ways.items():
            # a text in which a key stands out of order is refused by its form alone: a page is shown written ones
            shown = texts if way == "python" else [written(text) for text in texts if len(text) < LONGEST]
            proved = sum(verify(shown))
            wrong += proved
            record["forged"][name][way] = {"made": len(shown), "refused": len(shown) - proved}
        print(f"{name}: {record['forged'][name]}", flush=True)
        _keep(record, options.write)
    if SOUND in kinds:
        texts = [certify(mechanism).text for mechanism in sound_ones(options.count, seed=17)]
        record["sound"]["commit"] = commit
        for way, verify in ways.items():
            proved = sum(verify(texts))
            wrong += len(texts) - proved
            record["sound"][way] = {"made": len(texts), "proved": proved}
    print(f"sound: {record['sound']}\n{time.process_time() - began:.0f} s of processor time")
    _keep(record, options.write)
    if wrong:
        sys.exit(f"{wrong} verdicts are wrong.")


if __name__ == "__main__":
    main()
