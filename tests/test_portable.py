"""The library on a system that is not POSIX: what Windows lacks is taken away, and everything but services works.

No Windows machine is at hand; a process from which the modules and functions are removed that Windows does not have
comes near it.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow

LIKE_WINDOWS = """
import os, signal, sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "pwd", "grp", "termios", "pty", "syslog"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Lacking())
import multiprocessing, subprocess, tempfile, asyncio  # the standard library's own use of them comes first
tempfile._O_TMPFILE_WORKS = False
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules.pop(name, None)
for owner, names in (
    (os, "fork register_at_fork O_TMPFILE sched_getaffinity getuid geteuid fchmod link chown"),
    (signal, "SIGKILL SIGHUP SIGUSR1 SIGALRM"),
):
    for name in names.split():
        if hasattr(owner, name):
            delattr(owner, name)
"""


def run(code: str, folder: object) -> subprocess.CompletedProcess[str]:
    whole = LIKE_WINDOWS + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", whole], cwd=str(folder), capture_output=True, text=True, check=False)


@pytest.mark.long
def test_the_library_works_without_posix(tmp_path):
    done = run(
        """
        import importlib, pkgutil
        import noisette as nz

        OTHERS = "collector device federated sgd shuffler scale regression demo cli _service".split()
        for found in pkgutil.walk_packages(nz.__path__, "noisette."):
            if found.name.split(".")[1] not in OTHERS:
                importlib.import_module(found.name)
        assert "fcntl" not in sys.modules and "resource" not in sys.modules

        survey = nz.Survey([nz.Number("age", 18, 99), nz.Choice("diet", ["none", "vegan"])], epsilon=2.0)
        people = {"age": [20, 40, 60] * 400, "diet": ["none", "vegan", "none"] * 400}
        survey.privatize(people).save("reports.parquet")
        survey.save("survey.yaml")
        results = nz.Survey.read("survey.yaml").estimate("reports.parquet")
        assert results.users == 1200
        from noisette.accounting import Ledger
        ledger = Ledger("ledger.db")
        ledger.open_account("me", epsilon=1.0)
        ledger.debit("me", 0.8)
        ledger.close()
        nz.certify(nz.Piecewise(epsilon=1.0)).save("certificate.json")
        from noisette.cli import verbs
        verbs(["verify", "certificate.json"], standalone_mode=False)
        print("all of it")
        """,
        tmp_path,
    )
    assert done.stdout.endswith("all of it\n"), done.stderr[-2000:]


@pytest.mark.long
@pytest.mark.needs("fastapi", "uvicorn", "sqlalchemy")
@pytest.mark.parametrize("verb", ["serve", "demo"])
def test_a_service_says_what_it_needs(tmp_path, verb):
    done = run(f"from noisette.cli import main; sys.argv = ['noisette', {verb!r}]; main()", tmp_path)
    assert done.returncode == 1
    assert "needs Linux or macOS" in done.stderr
    assert "Traceback" not in done.stderr
