"""What is published works by itself: the sdist's wheel, in an environment of its own, runs the README's example.

Long: both are built. The environment holds the wheel and what its metadata ask for, down to the last, and nothing else;
that the index has it all is seen by `make setup`, which installs the same requirements with the same constraints.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, PathDistribution, distribution
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any
from zipfile import Path as ZipPath
from zipfile import ZipFile

import pytest
from tests.test_docs import _examples

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parent.parent
# Examples of the README, as a program of its own: it ends with an error where one prints something else.
PROGRAM = """
import doctest, sys
test = doctest.DocTestParser().get_doctest(sys.stdin.read(), {}, "README", "README", 0)
flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
found = doctest.DocTestRunner(optionflags=flags).run(test)
assert found.attempted >= 10, found
sys.exit(found.failed)
"""
# Every page of the collector, and whatever a page names: styles, scripts, the modules that these import.
PAGES = """
import re
from fastapi.testclient import TestClient
from noisette.collector import Store, create_app
from noisette.collector.web.access import Keys
from noisette.survey.campaigns import Campaign

asked = {"id": "q", "epsilon": 1.0, "users": 100, "attributes": [{"name": "x", "range": [0, 1]}]}
key = "a-key-for-the-devices"
app = create_app([Campaign.from_dict(asked)], Store("sqlite:///pages.db"), Keys({"device": [key]}))
client = TestClient(app, headers={"Authorization": f"Bearer {key}"})
waiting = ["/", "/dashboard", "/console", "/c/q", "/c/worker.js", "/c/q/table", "/c/q/certificate"]
waiting += ["/campaigns/q/table"]
waiting += [f"/static/words-{one}.js" for one in ("de", "en", "es", "fr", "zh")]
seen = set()
while waiting:
    path = waiting.pop()
    answer = client.get(path)
    assert answer.status_code == 200 and answer.text, (path, answer)
    seen.add(path)
    named = re.findall(r'"(?:\\./|/static/)([\\w-]+\\.(?:js|css|svg))"', answer.text)
    waiting += {f"/static/{name}" for name in named} - seen
print(*sorted(seen))
"""


def _run(*command: Any, path: Any = "", **options: Any) -> str:
    """Run a command outside this project, with no paths but the given one, and return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(path)}
    words = list(map(str, command))
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and with the wheel that pip makes of it: who installs either gets the same files."""
    folder, tool = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("hatchling")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    _run(*pip, "install", "--no-compile", "--target", tool, "hatchling", cwd=folder)
    _run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", folder, ROOT, path=tool, cwd=folder)
    [sdist] = folder.glob("*.tar.gz")
    make = (*pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder)
    _run(*make, sdist, path=tool, cwd=folder)
    return folder


def _needed(package: Distribution, extras: tuple[str, ...]) -> dict[str, Distribution]:
    """Return what a package needs, with what these need in turn, as it is installed here."""
    from packaging.requirements import Requirement

    found: dict[str, Distribution] = {}
    waiting = [(package, extra) for extra in ("", *extras)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        asking, extra = waiting.pop()
        for requirement in map(Requirement, asking.requires or ()):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            own = requirement.name == package.name
            needed = package if own else distribution(requirement.name)
            if not own:
                found[needed.name] = needed
            more = {(needed.name, name) for name in ("", *requirement.extras)} - seen
            seen |= more
            waiting += [(needed, name) for _, name in more]
    return found


def _give(environment: Path, packages: dict[str, Distribution]) -> None:
    """Give an environment packages that are installed here: the same files by other names, compiled or not."""
    [there] = environment.glob("lib/python*/site-packages")
    here = Path(str(distribution("pip").locate_file(".")))
    for package in packages.values():
        files = [str(name) for name in package.files or () if not str(name).startswith("..")]
        files += [cache_from_source(name) for name in files if name.endswith(".py")]
        for name in files:
            source, target = here / name, there / name
            if source.exists() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(source, target)
                except OSError:  # on another disk
                    shutil.copy2(source, target)


def test_an_empty_environment_is_enough(built: Path, tmp_path: Path) -> None:
    """What the sdist became, alone and then with the extras of the demo."""
    [wheel] = built.glob("*.whl")
    [metadata] = [one for one in ZipPath(wheel).iterdir() if one.name.endswith(".dist-info")]
    package = PathDistribution(metadata)
    _run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    examples = _examples((ROOT / "README.md").read_text(encoding="utf-8"))

    alone = _needed(package, ())
    assert {"numpy", "pandas", "llvmlite"} <= {*alone}
    assert not {"fastapi", "torch", "pytest"} & {*alone}
    _give(tmp_path / "venv", alone)
    _run(*pip, "install", "--quiet", "--no-compile", "--no-index", wheel, cwd=tmp_path)  # fails where one is missing
    assert str(tmp_path) in _run(python, "-c", "import noisette; print(noisette.__file__)", cwd=tmp_path)
    _run(python, "-c", PROGRAM, input=examples, cwd=tmp_path)
    assert "laplace" in _run(python.with_name("noisette"), "mechanisms", cwd=tmp_path)
    _give(tmp_path / "venv", _needed(package, ("collector", "plot")))
    _run(*pip, "install", "--quiet", "--no-compile", "--no-index", f"{wheel}[collector,plot]", cwd=tmp_path)
    told = _run(python.with_name("noisette"), "demo", "--users", 1000, "--json", cwd=tmp_path)
    assert json.loads(told)["accepted"] == 1000
    assert (tmp_path / "noisette-demo.html").stat().st_size > 10_000
    pages = _run(python, "-c", PAGES, cwd=tmp_path).split()
    scripts = {f"/static/{one.name}" for one in (ROOT / "clients" / "js" / "src").glob("*.js")}
    assert scripts <= {*pages}  # the form loads the whole client


def test_the_wheel_has_what_the_package_reads(built: Path) -> None:
    """Every file of the package that is no program: pages, styles, the stored list of mechanisms."""
    [wheel] = built.glob("*.whl")
    source = ROOT / "src"
    told = _run("git", "ls-files", "src/noisette", cwd=ROOT).split() if (ROOT / ".git").exists() else []
    wanted = {str((ROOT / name).relative_to(source)) for name in told}
    told = _run("git", "ls-files", "clients/js/src", cwd=ROOT).split() if told else []
    wanted |= {f"noisette/collector/web/client/{Path(name).name}" for name in told}
    assert wanted <= set(ZipFile(wheel).namelist())
