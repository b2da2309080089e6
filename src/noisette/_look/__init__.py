"""How every page of ours looks: the style sheet that all of them begin with."""

from __future__ import annotations

from importlib.resources import files


def style() -> str:
    """Return the style sheet that all pages begin with."""
    return files("noisette._look").joinpath("look.css").read_text(encoding="utf-8")
