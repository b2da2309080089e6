"""Which tests run: the tiers of the Makefile, and what is skipped where an extra is not installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    "core/test_core.py": """
import pytest
def test_quick(): pass
@pytest.mark.slow
def test_slow(): pass
@pytest.mark.long
def test_long(): pass
""",
    "module/test_torch.py": "import torch\ndef test_of_torch(): pass\n",
    "folder/conftest.py": "import flwr\n",
    "folder/test_folder.py": "def test_of_flower(): pass\n",
    "inside/test_inside.py": """
import pytest
def test_import_inside():
    import ray
@pytest.mark.needs("ray")
def test_process(): raise AssertionError
""",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of tests with our conftest.py and markers; the extras are modules that nobody can import."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n slow: s\n long: l\n needs: n\n", encoding="utf-8")
    return tmp_path


def _run(project: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    return subprocess.run([*command, *options], cwd=project, capture_output=True, text=True, check=False).stdout


@pytest.mark.long
def test_check_is_the_core_without_any_extra(project: Path) -> None:
    told = _run(project, "--tier=check")
    assert "1 passed, 4 skipped, 2 deselected" in told
    for name in ("torch", "flwr", "ray"):
        assert f"make check runs without {name}" in told


@pytest.mark.parametrize(("tier", "counts"), [("test", "2 passed, 1 deselected"), ("all", "3 passed")])
def test_each_tier_leaves_out_its_markers(project: Path, tier: str, counts: str) -> None:
    assert counts in _run(project, f"--tier={tier}", "core")


@pytest.mark.long
def test_what_is_missing_and_no_extra_is_an_error(project: Path) -> None:
    """The twin: a package that no extra brings is a mistake, and so is an extra's module that does not exist."""
    (project / "core" / "test_core.py").write_text("import no_such_package\n", encoding="utf-8")
    assert "1 error" in _run(project, "--tier=check", "core")
    (project / "core" / "test_core.py").write_text("import sqlalchemy.no_such_module\n", encoding="utf-8")
    told = _run(project, "core")
    assert "1 error" in told or "needs sqlalchemy: pip install 'noisette[collector]'" in told
