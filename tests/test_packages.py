"""What is published works by itself: wheel and sdist, each in an empty environment, run the README's example.

Long: both are built, and installed with all that they need from the index that pip uses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def _run(*command: Any, **options: Any) -> str:
    """Run a command outside this project, without its paths, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = list(map(str, command))
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and with the wheel that pip makes of it: who installs either gets the same files."""
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT, cwd=folder)
    [sdist] = folder.glob("*.tar.gz")
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, sdist, cwd=folder)
    return folder


def test_an_empty_environment_is_enough(built: Path, tmp_path: Path) -> None:
    """What the sdist became, alone and then with the extras of the demo."""
    [wheel] = built.glob("*.whl")
    _run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    install = (*pip, "install", "--quiet", "--no-compile", "-c", ROOT / "constraints.txt")
    examples = _examples((ROOT / "README.md").read_text(encoding="utf-8"))

    _run(*install, wheel, cwd=tmp_path)
    assert str(tmp_path) in _run(python, "-c", "import noisette; print(noisette.__file__)", cwd=tmp_path)
    _run(python, "-c", PROGRAM, input=examples, cwd=tmp_path)
    assert "laplace" in _run(python.with_name("noisette"), "mechanisms", cwd=tmp_path)
    _run(*install, f"{wheel}[collector,plot]", cwd=tmp_path)
    told = _run(python.with_name("noisette"), "demo", "--users", 1000, "--json", cwd=tmp_path)
    assert json.loads(told)["accepted"] == 1000
    assert (tmp_path / "noisette-demo.html").stat().st_size > 10_000
    pages = _run(python, "-c", PAGES, cwd=tmp_path).split()
    scripts = {f"/static/{one.name}" for one in (ROOT / "clients" / "js" / "src").glob("*.js")}
    assert scripts <= {*pages}  # the form loads the whole client


def test_the_wheel_has_what_the_package_reads(built: Path) -> None:
    """Every file of the package that is no program: pages, styles, the stored list of mechanisms."""
    from zipfile import ZipFile

    [wheel] = built.glob("*.whl")
    source = ROOT / "src"
    told = _run("git", "ls-files", "src/noisette", cwd=ROOT).split() if (ROOT / ".git").exists() else []
    wanted = {str((ROOT / name).relative_to(source)) for name in told}
    told = _run("git", "ls-files", "clients/js/src", cwd=ROOT).split() if told else []
    wanted |= {f"noisette/collector/web/client/{Path(name).name}" for name in told}
    assert wanted <= set(ZipFile(wheel).namelist())
