"""Features of images at several sizes whose priors are synthetic: dead leaves tell all that is not drawn in private.

Windows at two scales are compared with atoms of whitened windows of dead leaves, in both signs, and added up in a grid
of cells. How large each map is, the centre, and the directions that are kept come from dead leaves as well. Products
are in bfloat16, which one image's features alone depend on, so that no guarantee does.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from experiments.geodp import features

SCALES = ((1, 2), (2, 1))  # pixels a side that are averaged first, and the step from window to window
CELLS = 3  # a side
LEAVES = 1500  # synthetic images that tell sizes, centre and directions
_THRESHOLD = 1.0
_SMOOTH = 0.01  # variance below which a window counts as flat
_TINY = 1e-6  # norm of an image without anything on it
_BLOCK = 16  # images at a time: what is made of them stays in the cache
_PART = 5000  # images in a file: an interrupted run has them already


def windows(images: Tensor, step: int) -> Tensor:
    """Return windows as rows, (images, places, numbers), each less its mean and over its deviation."""
    cut = functional.unfold(images, features.WINDOW, stride=step).transpose(1, 2)
    cut = cut - cut.mean(2, keepdim=True)
    return cut * (cut.square().mean(2, keepdim=True) + _SMOOTH).rsqrt()


@lru_cache
def _cells(side: int) -> Tensor:
    """Return the share that each of side x side places has in each cell: (cells, places)."""
    places = torch.arange(side) * CELLS
    within = torch.stack([(places < (cell + 1) * side) & (places > cell * side - CELLS) for cell in range(CELLS)])
    return torch.einsum("ax,by->abxy", within.float(), within.float()).flatten(2).flatten(0, 1) / side**2


def pooled(images: Tensor, atoms: Tensor, step: int) -> Tensor:
    """Return how strongly each atom is present in each cell, in each sign: (images, cells, maps).

    The second half of the atoms mirrors the first, and the mean of an image's maps and its mirror's is
    taken, so that both have the same features.
    """
    rows = windows(images, step)
    found = (rows.bfloat16().flatten(0, 1) @ atoms).unflatten(0, rows.shape[:2])
    share = _cells(math.isqrt(rows.shape[1])).bfloat16().expand(len(images), -1, -1)
    signed = []
    for above in (found - _THRESHOLD, torch.rsub(found, -_THRESHOLD)):
        own, other = torch.bmm(share, above.relu_()).float().chunk(2, 2)
        signed.append((own + other.unflatten(1, (CELLS, CELLS)).flip(2).flatten(1, 2)) / 2)
    return torch.cat(signed, 2)


@dataclass(frozen=True)
class Scale:
    """What dead leaves tell about one scale."""

    pixels: int
    step: int
    sizes: Tensor  # of maps
    centre: Tensor  # (cells, maps)
    among_places: Tensor  # (cells, cells): directions as columns
    among_maps: list[Tensor]  # for each of them (maps, kept): directions as columns

    def __call__(self, images: Tensor, atoms: Tensor) -> Tensor:
        """Return numbers along the directions that are kept."""
        turned = torch.einsum("npa,pq->qna", self.roots(images, atoms) - self.centre, self.among_places)
        return torch.cat([some @ axes for some, axes in zip(turned, self.among_maps, strict=True)], 1)

    def roots(self, images: Tensor, atoms: Tensor) -> Tensor:
        """Return roots of the maps over their sizes, with norm 1 among all scales: rare maps stay in sight."""
        smaller = functional.avg_pool2d(images, self.pixels) if self.pixels > 1 else images
        return rooted(pooled(smaller, atoms, self.step), self.sizes)


def rooted(maps: Tensor, sizes: Tensor) -> Tensor:
    """Return roots of maps over their sizes; the squares of an image's numbers add up to its share among scales."""
    roots = (maps / sizes).sqrt()
    norms = roots.flatten(1).norm(dim=1).clamp(min=_TINY)
    return roots / (norms * math.sqrt(len(SCALES)))[:, None, None]


@dataclass(frozen=True)
class Prior:
    """Atoms, and what dead leaves tell about each scale; ``order`` sorts directions by how much leaves vary there."""

    atoms: Tensor
    scales: tuple[Scale, ...]
    order: Tensor

    def __call__(self, images: Tensor) -> Tensor:
        """Return features of images with values in [0, 1]: (images, kept)."""
        return torch.cat([scale(images, self.atoms) for scale in self.scales], 1)[:, self.order]


@lru_cache
def _leaves(count: int) -> Tensor:
    return features.dead_leaves(count, 32, 3, np.random.default_rng(2)).clamp(0, 1)


@lru_cache(maxsize=1)
@torch.no_grad()
def prior(atoms: int, kept: int, leaves: int = LEAVES) -> Prior:
    """Return what dead leaves tell; ``kept`` directions are a direction among maps times one among places."""
    bank = features.dictionary(3, atoms).flatten(1).T.contiguous().bfloat16()
    images = _leaves(leaves)
    scales, weights = [], []
    for pixels, step in SCALES:
        smaller = functional.avg_pool2d(images, pixels) if pixels > 1 else images
        maps = torch.cat([pooled(some, bank, step) for some in smaller.split(_BLOCK)])
        sizes = maps.mean((0, 1)) + _TINY
        roots = rooted(maps, sizes)
        centre = roots.mean(0)
        moved = roots - centre
        place_sizes, places = torch.linalg.eigh(torch.einsum("npa,nqa->pq", moved, moved))
        map_sizes, axes = torch.linalg.eigh(moved.flatten(0, 1).T @ moved.flatten(0, 1))
        scales.append(Scale(pixels, step, sizes, centre, places, [axes] * len(places)))
        weights.append(torch.outer(place_sizes.clamp(min=0), map_sizes.clamp(min=0)) / place_sizes.sum())
    ranked = torch.cat([weight.flatten() for weight in weights]).sort(descending=True).values
    least = float(ranked[min(kept, len(ranked)) - 1])
    held = [weight >= least for weight in weights]
    cut = tuple(
        Scale(own.pixels, own.step, own.sizes, own.centre, own.among_places, _columns(own, which))
        for own, which in zip(scales, held, strict=True)
    )
    known = torch.cat([weight[which] for weight, which in zip(weights, held, strict=True)])
    return Prior(bank, cut, known.argsort(descending=True, stable=True)[:kept])


def _columns(scale: Scale, held: Tensor) -> list[Tensor]:
    """Return the directions among maps that are held, for each direction among places."""
    return [axes[:, which].contiguous() for axes, which in zip(scale.among_maps, held, strict=True)]


@torch.no_grad()
def described(
    images: npt.NDArray[np.uint8],
    atoms: int,
    kept: int,
    *,
    leaves: int = LEAVES,
    keep: str = "",
    each: Callable[[float], object] = lambda _: None,
) -> Tensor:
    """Return features of byte images in half precision; ``keep`` names files, one for every few thousand images."""
    folder, parts = Path(tempfile.gettempdir()) / "noisette-features", []
    for start in range(0, len(images), _PART):
        path = folder / f"priors-{atoms}-{kept}-{keep}-{start}.npy"
        some = images[start : start + _PART]
        if keep and path.exists():
            parts.append(torch.from_numpy(np.load(path)))
        else:
            known, pixels = prior(atoms, kept, leaves), torch.from_numpy(some.copy()).permute(0, 3, 1, 2)
            parts.append(torch.cat([known(own.float() / 255).half() for own in pixels.split(_BLOCK)]))
            if keep:
                path.parent.mkdir(parents=True, exist_ok=True)
                np.save(path, parts[-1].numpy())
        each((start + len(some)) / len(images))
    return torch.cat(parts)
