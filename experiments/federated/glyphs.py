"""Glyphs that nobody wrote: random strokes, and along which directions of wavelet features they tell apart best.

A glyph is one to three curved strokes with random corners. Its copies differ as one person's writing does from
another's: corners move, the whole turns, leans and stretches, the pen is thinner or thicker. Like the digits of MNIST
they fill a box of 20 pixels and have their middle in that of the image. No image of any data set takes part.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
import torch

from experiments.geodp import features as wavelets

Vectors = npt.NDArray[np.float64]
Images = npt.NDArray[np.uint8]
_SIDE, _BOX = 28, 20.0
_STROKES, _POINTS = 3, 56  # at most in a glyph; along a stroke, near enough to leave no gap
_MAIN = 900  # main directions of the features, among which the best are sought
_SLACK = 0.02  # of the mean variance within a glyph, added to all: copies are few
_BLOCK = 2000  # images worked on at a time


def draw(kinds: int, copies: int, rng: np.random.Generator) -> tuple[Images, npt.NDArray[np.int64]]:
    """Return images of so many copies of each of so many glyphs, mixed, and which glyph each is."""
    corners = rng.uniform(0, 1, (kinds, _STROKES, 4, 2))
    for stroke in range(1, _STROKES):  # often a stroke begins where the last one ended
        joined = rng.random(kinds) < 0.6
        corners[joined, stroke, 0] = corners[joined, stroke - 1, 3]
    strokes = rng.choice([1, 2, 3], kinds, p=[0.4, 0.4, 0.2])
    labels = rng.permutation(np.repeat(np.arange(kinds), copies))
    parts = np.array_split(labels, max(1, len(labels) // 100))
    return np.concatenate([_written(corners[part], strokes[part], rng) for part in parts]), labels


def _written(corners: Vectors, strokes: npt.NDArray[Any], rng: np.random.Generator) -> Images:
    """Return an image of each glyph as somebody might write it."""
    count, along = len(corners), np.linspace(0, 1, _POINTS)
    curve = np.stack([(1 - along) ** 3, 3 * along * (1 - along) ** 2, 3 * along**2 * (1 - along), along**3])  # Bezier's
    points = np.einsum("nscx,cp->nspx", corners + rng.normal(0, 0.08, corners.shape), curve) - 0.5
    turn, lean = (rng.normal(0, spread, (count, 1, 1)) for spread in (0.15, 0.2))
    x = points[..., 0] * np.exp(rng.normal(0, 0.15, (count, 1, 1))) + lean * points[..., 1]
    y = points[..., 1]
    points = np.stack([np.cos(turn) * x - np.sin(turn) * y, np.sin(turn) * x + np.cos(turn) * y], -1)
    there = np.repeat(np.arange(_STROKES) < strokes[:, None], _POINTS, axis=1)[..., None]
    ink = np.linalg.norm(np.gradient(points, axis=2), axis=-1).reshape(count, -1, 1) * there
    points = points.reshape(count, -1, 2)
    points = np.where(there, points, points[:, :1])  # strokes that a glyph has not lie on its first point
    reach = (points.max(axis=1) - points.min(axis=1)).max(axis=1)
    points = points * (_BOX / np.maximum(reach, 1e-3))[:, None, None]
    middle = (points * ink).sum(axis=1) / ink.sum(axis=1)
    points = (points - middle[:, None] + (_SIDE - 1) / 2).astype(np.float32)
    pen = rng.uniform(0.8, 1.8, (count, 1, 1))
    across = (np.arange(_SIDE, dtype=np.float32) - points[..., :1]) ** 2
    down = (np.arange(_SIDE, dtype=np.float32) - points[..., 1:]) ** 2
    nearest = np.full((count, _SIDE, _SIDE), np.inf, np.float32)
    for point in range(points.shape[1]):
        np.minimum(nearest, down[:, point, :, None] + across[:, point, None, :], out=nearest)
    return np.asarray(255 * np.clip(pen + 0.5 - np.sqrt(nearest), 0, 1)).astype(np.uint8)


@dataclass(frozen=True)
class Glyphs:
    """Describe an image by two layers of wavelets, along the directions that tell glyphs apart best.

    Along each the copies of a glyph vary by one and glyphs by ``between``; it is multiplied by the root of the share
    that glyphs have of that, so that what only copies vary in says little.
    """

    kept: int
    kinds: int = 1000
    copies: int = 15

    def __call__(self, images: Images, keep: str = "") -> Vectors:
        """Return vectors of length one; ``keep`` names a file for the features, for the next time."""
        known = _directions(self.kinds, self.copies)
        axes = known.axes[:, : self.kept] * np.sqrt(self._share)
        raw = wavelets.features("scattering", images, keep=keep)
        along = [(wavelets.prepared(part, known.scale) - known.centre).numpy() @ axes for part in raw.split(_BLOCK)]
        found = np.concatenate(along).astype(np.float64)
        return np.asarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9))

    @property
    def expected(self) -> Vectors:
        """The share of each direction in the squares of these vectors, if images were glyphs."""
        squares = (1 + self._between) * self._share
        return np.asarray(squares / squares.sum())

    @property
    def _between(self) -> Vectors:
        return np.maximum(_directions(self.kinds, self.copies).between[: self.kept], 1e-3)

    @property
    def _share(self) -> Vectors:
        return np.asarray(self._between / (1 + self._between))


@dataclass(frozen=True)
class _Known:
    """What glyphs say: the scale of each map of features, their mean, directions, and how glyphs vary along each."""

    scale: Any
    centre: Any
    axes: npt.NDArray[np.float32]
    between: Vectors


@lru_cache
def _directions(kinds: int, copies: int) -> _Known:
    """Find the directions in which glyphs differ most, in units of how far copies of one do."""
    images, labels = draw(kinds, copies, np.random.default_rng(7))
    raw = wavelets.features("scattering", images)
    maps = raw.unflatten(1, (-1, (_SIDE // 4) ** 2))
    scale = wavelets.sizes(maps[..., None])
    flat = wavelets.prepared(raw, scale)
    centre = flat.mean(0)
    main = _main(flat - centre, min(_MAIN, len(flat) // 2))
    along = ((flat - centre) @ main).double().numpy()
    means = np.zeros((kinds, along.shape[1]))
    np.add.at(means, labels, along / copies)
    apart = along - means[labels]
    within = apart.T @ apart / (len(along) - kinds)
    between = means.T @ means / kinds - within / copies
    within += _SLACK * np.trace(within) / len(within) * np.eye(len(within))
    ratios, axes = scipy.linalg.eigh(between, within)
    return _Known(scale, centre, (main.numpy() @ axes[:, ::-1]).astype(np.float32), ratios[::-1])


def _main(rows: Any, kept: int) -> Any:
    """Return the main directions of rows, from the smaller of their two second moments."""
    if len(rows) >= rows.shape[1]:
        return torch.linalg.eigh(rows.T @ rows).eigenvectors[:, -kept:]
    sizes, axes = torch.linalg.eigh(rows @ rows.T)
    return rows.T @ axes[:, -kept:] / sizes[-kept:].clamp(min=1e-12).sqrt()
