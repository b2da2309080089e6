"""`scripts/browser.sh`: finds a browser, installs one where it may, and says what to do where it may not."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "browser.sh"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with bash and little else: programs are what a test puts into its folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "bash").symlink_to("/bin/bash")
    return folder


def _program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def _run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    run = ["/bin/bash", str(SCRIPT)]
    return subprocess.run(
        run, env={"PATH": str(folder), **environment}, capture_output=True, text=True, check=False, cwd=folder
    )


def test_a_browser_that_is_there_is_used(machine: Path) -> None:
    _program(machine, "chromium", "exit 0")
    done = _run(machine)
    assert (done.returncode, done.stdout.strip()) == (0, str(machine / "chromium"))


def test_a_browser_can_be_named(machine: Path) -> None:
    _program(machine, "chromium", "exit 0")
    _program(machine, "mine", "exit 0")
    done = _run(machine, NOISETTE_BROWSER=str(machine / "mine"))
    assert done.stdout.strip() == str(machine / "mine")


def test_root_installs_it(machine: Path) -> None:
    _program(machine, "id", "echo 0")
    _program(
        machine,
        "apt-get",
        'echo "$@" >> log; if [ "$1" = install ]; then printf "#!/bin/bash\\n" > chromium; /bin/chmod +x chromium; fi',
    )
    done = _run(machine)
    assert (done.returncode, done.stdout.strip()) == (0, str(machine / "chromium")), done.stderr
    steps = (machine / "log").read_text(encoding="utf-8").splitlines()
    assert steps[0].startswith("update")
    assert steps[1].split()[-1] == "chromium"


@pytest.mark.parametrize("user", ["0", "1000"])
def test_who_may_not_install_is_told_what_to_do(machine: Path, user: str) -> None:
    """Neither a user without rights nor a system without apt-get gets further, and neither passes for a success."""
    _program(machine, "id", f"echo {user}")
    if user != "0":
        _program(machine, "apt-get", "exit 7")
    done = _run(machine)
    assert done.returncode == 1
    assert "apt-get install chromium" in done.stderr
    assert "NOISETTE_BROWSER" in done.stderr


def test_make_test_looks_for_it() -> None:
    folder = SCRIPT.parents[1]
    said = subprocess.run(
        ["make", "--dry-run", "--always-make", "test"],
        cwd=folder,
        env=os.environ | {"MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.index("scripts/browser.sh") < said.stdout.index("-m pytest")
