"""What happened in a run, round by round, on the disk: a server that is restarted goes on where it stopped."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from noisette._files import whole_file
from noisette._validate import FloatArray
from noisette.federated.layout import ModelLayout
from noisette.federated.terms import Terms

_FORMAT = 1


@dataclass
class History:
    """Rounds so far, how often each client took part, the model after the last round, and who was asked since."""

    terms: Terms
    layout: ModelLayout
    rounds: list[dict[str, Any]] = field(default_factory=list)
    taken_part: dict[int, int] = field(default_factory=dict)
    weights: FloatArray | None = None
    pending: list[int] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Rounds that are over."""
        return len(self.rounds)

    @property
    def largest_part(self) -> int:
        """Rounds that the busiest client was asked in: what a guarantee must cover."""
        return max(self.taken_part.values(), default=0)

    @property
    def smallest_round(self) -> int:
        """Reports of the round with the fewest."""
        return min((entry["counted"] for entry in self.rounds if entry["counted"]), default=0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything in one step: a crash leaves the last state or this one."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        head = {
            "format": _FORMAT,
            "terms": self.terms.spec(),
            "names": self.layout.names,
            "shapes": self.layout.shapes,
            "rounds": self.rounds,
            "taken_part": {str(node): times for node, times in self.taken_part.items()},
            "pending": self.pending,
        }
        weights = np.zeros(0) if self.weights is None else self.weights
        with whole_file(target) as file:
            np.savez(file, head=np.frombuffer(json.dumps(head).encode(), dtype=np.uint8), weights=weights)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> History:
        """Read what `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                head = json.loads(stored["head"].tobytes())
                weights = stored["weights"]
            if head["format"] != _FORMAT:
                raise ValueError(
                    f"its format is {head['format']}: use the version that wrote it, not that of {_FORMAT}"
                )
        except (ValueError, KeyError, OSError, EOFError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise ValueError(f"{path} holds no run that can be resumed: {error}. Choose another file.") from error
        layout = ModelLayout(tuple(head["names"]), tuple(tuple(shape) for shape in head["shapes"]))
        return cls(
            Terms.read(json.dumps(head["terms"])),
            layout,
            head["rounds"],
            {int(node): times for node, times in head["taken_part"].items()},
            weights if weights.size else None,
            head["pending"],
        )
