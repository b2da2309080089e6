"""`scripts/setup.sh`: builds an environment, shows how far it is, and says what to do where something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "setup.sh"
PROGRAMS = ("awk", "bash", "cat", "chmod", "date", "dirname", "env", "grep", "mkdir", "rm", "sed", "tail", "tee")
OLD = "exit 1"  # a Python that is too old says so by its exit code
# A Python of this machine's version whose venv module is missing until apt-get has installed it.
YOUNG = """case "$*" in
  *version_info*\\<*) exit 0 ;;
  *version_info\\[*) echo 3.11 ;;
  "-m venv "*) [ -e installed ] || { echo "ensurepip is not available"; exit 1; }
    mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  "-m pip --version") exit 0 ;;
  "-m pip install "*) echo "$@" >> pip-arguments
    [ -e offline ] && { echo "WARNING: deprecated"; echo "ERROR: no index"; exit 1; }
    echo "Collecting numpy>=2"; echo "  Downloading numpy-2.4.6.whl (16 MB)"; echo "WARNING: a page of them"
    echo "Installing collected packages: numpy" ;;
esac"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with the usual small programs and little else: others are what a test puts into its folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in (*PROGRAMS, "cp"):
        (folder / name).symlink_to(
            Path("/usr/bin") / name if (Path("/usr/bin") / name).exists() else Path("/bin") / name
        )
    return folder


def _program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def _user(folder: Path, number: int) -> None:
    """Be root or somebody else; apt-get works for root."""
    _program(folder, "id", f"echo {number}")
    _program(folder, "apt-get", '[ "$1" = install ] && touch installed || true' if number == 0 else "exit 100")
    (folder / "touch").symlink_to("/usr/bin/touch")


def _run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    work = folder.parent
    command = ["/bin/bash", str(SCRIPT), ".venv", "constraints.txt", "-e", ".[check]"]
    variables = {"PATH": str(folder), **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, cwd=work)


@pytest.mark.parametrize("user", [0, 1000])
def test_without_python_it_says_what_to_install(machine: Path, user: int) -> None:
    _user(machine, user)
    _program(machine, "python3", OLD)
    done = _run(machine)
    assert done.returncode == 1
    assert "needs Python 3.11 or later" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_a_named_python_that_is_none_is_named(machine: Path) -> None:
    _user(machine, 1000)
    assert "PYTHON=/no/such/python is none" in _run(machine, PYTHON="/no/such/python").stderr


def test_root_gets_the_venv_module(machine: Path) -> None:
    _user(machine, 0)
    _program(machine, "python3", YOUNG)
    done = _run(machine)
    assert done.returncode == 0, done.stderr
    assert "lacks python3.11-venv" in done.stderr


def test_a_plain_user_is_told_to_install_the_venv_module(machine: Path) -> None:
    _user(machine, 1000)
    _program(machine, "python3", YOUNG)
    done = _run(machine)
    assert done.returncode == 1
    assert "ensurepip is not available" in done.stderr
    assert "sudo apt-get install python3.11-venv" in done.stderr
    assert not (machine.parent / ".venv").exists()


@pytest.mark.parametrize("built", [False, True])
def test_a_plain_user_in_a_clone_of_somebody_else_is_told_so(built: bool) -> None:
    """For whom nothing that Debian has would help."""
    nobody = 65534 if os.geteuid() == 0 else None  # root may write anywhere
    with TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        (clone / ".venv" if built else clone).mkdir(parents=True)
        copy = shutil.copy(SCRIPT, folder)
        Path(folder).chmod(0o755)
        for path in [clone / ".venv"] * built + [clone]:
            path.chmod(0o555)
        command = ["/bin/bash", copy, ".venv", "constraints.txt", "-e", ".[check]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=clone, user=nobody)
        clone.chmod(0o755)
    assert done.returncode == 1
    assert f"you may not write in {clone / '.venv' if built else clone}:" in done.stderr
    assert f"cp -r {clone}" in done.stderr
    assert "apt-get" not in done.stderr


def test_progress_instead_of_warnings(machine: Path) -> None:
    _user(machine, 1000)
    _program(machine, "python3", YOUNG)
    (machine.parent / "installed").touch()
    done = _run(machine)
    assert done.returncode == 0, done.stderr
    assert "found numpy" in done.stderr
    assert "unpacking 1 packages" in done.stderr
    assert "WARNING" not in done.stderr + done.stdout
    assert "WARNING" in (machine.parent / ".venv" / "pip.log").read_text(encoding="utf-8")
    assert "-c constraints.txt -e .[check]" in (machine.parent / "pip-arguments").read_text(encoding="utf-8")


def test_where_pip_fails_its_last_words_are_shown(machine: Path) -> None:
    _user(machine, 1000)
    _program(machine, "python3", YOUNG)
    (machine.parent / "installed").touch()
    (machine.parent / "offline").touch()
    done = _run(machine)
    assert done.returncode == 1
    assert "ERROR: no index" in done.stderr
    assert "PIP_INDEX_URL" in done.stderr


@pytest.mark.long
def test_this_machine_s_python_is_found(machine: Path) -> None:
    """With the real interpreter: an environment that can run pip, and nothing is installed without being asked."""
    _user(machine, 1000)
    work = machine.parent
    (work / "constraints.txt").touch()
    command = ["/bin/bash", str(SCRIPT), ".venv", "constraints.txt", "pip"]
    variables = {"PATH": f"{machine}:/usr/bin:/bin", "PYTHON": sys.executable}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, cwd=work)
    assert done.returncode == 0, done.stderr
    assert (work / ".venv" / "bin" / "python").exists()


def test_make_keeps_compiled_modules() -> None:
    """Without them each of the many processes of demo and tests would compile all that it imports."""
    command = ["make", "--no-print-directory", "--eval=show: ; @env", "show"]
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    told = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, cwd=SCRIPT.parents[1])
    assert "PATH=" in told.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in told.stdout


@pytest.mark.parametrize(("what", "tier"), [("check", "check"), ("test", "test"), ("demo", None), ("all", None)])
def test_what_tests_use_is_compiled_once_before_they_run(what: str, tier: str | None) -> None:
    command = ["make", "--no-print-directory", "--always-make", "--dry-run", f".venv/.stamp-{what}"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=SCRIPT.parents[1]).stdout
    assert [line.split()[-1] for line in told.splitlines() if "warm.py" in line] == ([tier] if tier else [])
