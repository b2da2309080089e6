"""A collector of its own for the demonstration: a process, a port, a database and keys, gone when it ends."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_SERVE = [sys.executable, "-c", "from noisette.cli import main; main()", "serve"]
_PATIENCE = 15  # seconds to finish what has begun


@dataclass(frozen=True)
class Collector:
    """Where it is, and the keys of the roles."""

    url: str
    keys: dict[str, str]
    process: subprocess.Popen[str]

    def header(self, role: str) -> dict[str, str]:
        """Return the header that carries the key of a role."""
        return {"Authorization": f"Bearer {self.keys[role]}"}


@contextmanager
def serving(campaign: dict[str, Any]) -> Iterator[Collector]:
    """Start a collector for a campaign and stop it in the end, as an operator would."""
    import yaml

    keys = {role: secrets.token_urlsafe(24) for role in ("device", "analyst", "auditor")}
    with TemporaryDirectory(prefix="noisette-demo-") as name:
        folder = Path(name)
        (folder / "campaign.yaml").write_text(yaml.safe_dump(campaign, allow_unicode=True), encoding="utf-8")
        (folder / "keys.yaml").write_text(yaml.safe_dump({role: [key] for role, key in keys.items()}), encoding="utf-8")
        files = [str(folder / "campaign.yaml"), "--keys", str(folder / "keys.yaml")]
        command = [*_SERVE, *files, "--database", f"sqlite:///{folder / 'reports.db'}", "--port", "0", "--json"]
        log = folder / "log"
        with (
            log.open("w", encoding="utf-8") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            try:
                yield Collector(_address(process, log), keys, process)
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(_PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()


def _address(process: subprocess.Popen[str], log: Path) -> str:
    """Read what the collector says about itself when it listens."""
    said = ""
    for line in process.stdout or ():
        said += line
        if line == "}\n":  # the end of the JSON object
            return str(json.loads(said)["url"])
    raise RuntimeError(f"The collector did not start: {log.read_text(encoding='utf-8').strip()[-500:]}")
