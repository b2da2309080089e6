"""Check that every fragment in changelog.d/ is `<slug>.<type>.md` and holds one sentence on one line."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def problems(directory: Path, types: set[str], ignored: set[str]) -> list[str]:
    """What is wrong with the fragments of a directory, one message each."""
    name = re.compile(rf"[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(sorted(types))})\.md")
    found = []
    for path in sorted(directory.iterdir()):
        if path.name in ignored:
            continue
        if not name.fullmatch(path.name):
            kinds = ", ".join(sorted(types))
            found.append(f"{path.name}: expected <slug>.<type>.md, lower case, type among {kinds}.")
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) != 1 or not lines[0].strip().endswith("."):
            found.append(f"{path.name}: expected one line that ends with a full stop.")
    return found


def main() -> int:
    """Print the problems; the exit status says whether there are any."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    found = problems(
        ROOT / settings["directory"],
        {kind["directory"] for kind in settings["type"]},
        set(settings["ignore"]),
    )
    for line in found:
        print(f"changelog.d/{line}", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
