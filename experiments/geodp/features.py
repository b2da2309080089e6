"""Features of images that nobody's data have shaped, for linear models that are trained in private.

`scattering` has two layers of Morlet wavelets (Oyallon and Mallat 2015, with J = 2 and 8 directions). `dictionary` has
filters for windows of 6 x 6 pixels (Coates, Ng and Lee 2011) that are learned from dead leaves: images of random
shapes that hide each other, whose edges are much like those of photographs; `priors` makes features with it. Neither
looks at any data set.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

DIRECTIONS = 8
WINDOW = 6  # pixels a side
_BLOCK = 32  # images at a time: what is made of them stays in the cache
_SMOOTH = 0.01  # variance below which a window counts as flat


def morlet(scale: int, direction: int) -> Tensor:
    """Return a wavelet of width 0.8 x 2^scale as a complex (side, side) image: a wave under a bell, with sum 0."""
    width, angle, slant = 0.8 * 2**scale, math.pi * direction / DIRECTIONS, 0.5
    reach = math.ceil(4.5 * width)
    line = torch.arange(-reach, reach + 1, dtype=torch.float64)
    y, x = torch.meshgrid(line, line, indexing="ij")
    along, across = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
    bell = torch.exp(-(along**2 + (slant * across) ** 2) / (2 * width**2))
    wave = bell * torch.exp(0.75j * math.pi / 2**scale * along)
    return (wave - bell * (wave.sum() / bell.sum())) * slant / (2 * math.pi * width**2)


@lru_cache
def _wavelets(scale: int) -> Tensor:
    """Return real parts of the wavelets in all directions, then imaginary parts, as filters."""
    made = torch.stack([morlet(scale, direction) for direction in range(DIRECTIONS)])
    return torch.cat([made.real, made.imag])[:, None].float()


@lru_cache
def _bell(width: float) -> Tensor:
    line = torch.arange(-math.ceil(3 * width), math.ceil(3 * width) + 1, dtype=torch.float64)
    bell = torch.exp(-(line**2) / (2 * width**2))
    return torch.outer(bell, bell)[None, None].float() / bell.sum() ** 2


def _filtered(maps: Tensor, filters: Tensor, stride: int) -> Tensor:
    """Return (images, maps, filters, ...): each map through each filter, mirrored at its borders."""
    images, count = maps.shape[:2]
    padded = functional.pad(maps.flatten(0, 1)[:, None], (filters.shape[-1] // 2,) * 4, mode="reflect")
    return functional.conv2d(padded, filters, stride=stride).unflatten(0, (images, count))


def _modulus(maps: Tensor, scale: int, stride: int) -> Tensor:
    real, imaginary = _filtered(maps, _wavelets(scale), stride).chunk(2, 2)
    return torch.hypot(real, imaginary).flatten(1, 2)


def scattering(images: Tensor) -> Tensor:
    """Return means over 4 x 4 pixels of an image, of its wavelet moduli and of theirs: 81 maps for each channel."""
    fine, coarse = _modulus(images, 0, 1), _modulus(images, 1, 2)
    twice = _modulus(fine, 1, 2)
    smooth = [(images, 1.6, 4), (fine, 1.6, 4), (coarse, 0.8, 2), (twice, 0.8, 2)]
    return torch.cat([_filtered(maps, _bell(width), stride)[:, :, 0] for maps, width, stride in smooth], 1)


def dead_leaves(count: int, side: int, channels: int, rng: np.random.Generator) -> Tensor:
    """Return images of opaque shapes in random order, with radii of density r^-3, each of one colour with a slope."""
    made = np.empty((count, channels, side, side), np.float32)
    y, x = np.mgrid[:side, :side]
    for image in made:
        left = np.ones((side, side), dtype=bool)
        while left.any():
            radius = min(1.5 / math.sqrt(1 - rng.random()), side)
            top, start = rng.uniform(-radius / 2, side + radius / 2, 2)
            angle, flat = rng.uniform(0, math.pi), rng.uniform(0.4, 1)
            along = (x - start) * math.cos(angle) + (y - top) * math.sin(angle)
            across = (y - top) * math.cos(angle) - (x - start) * math.sin(angle)
            box = np.maximum(abs(along), abs(across) / flat) < 0.8 * radius
            shape = left & (box if rng.random() < 0.5 else along**2 + (across / flat) ** 2 < radius**2)
            colour = rng.random() + 0.12 * rng.standard_normal((channels, 1)) * (channels > 1)
            slope = rng.normal(0, 0.01, 2)
            image[:, shape] = colour + slope[0] * along[shape] + slope[1] * across[shape]
            left &= ~shape
    return torch.from_numpy(made + rng.normal(0, 0.01, made.shape).astype(np.float32))


@lru_cache
def dictionary(channels: int, atoms: int) -> Tensor:
    """Return filters: the main directions of whitened windows of dead leaves (spherical k-means), and their mirrors."""
    rng = np.random.default_rng(1)
    leaves = dead_leaves(60, 48, channels, rng)
    windows = functional.unfold(leaves, WINDOW, stride=2).transpose(1, 2).flatten(0, 1)
    windows = windows[torch.from_numpy(rng.permutation(len(windows))[:25_000])]
    windows = windows - windows.mean(1, keepdim=True)
    windows = windows / (windows.var(1, keepdim=True) + _SMOOTH).sqrt()
    values, vectors = torch.linalg.eigh(torch.cov(windows.T))
    whitening = vectors * (values + 0.1).rsqrt() @ vectors.T
    white = (windows - windows.mean(0)) @ whitening
    norms = white.norm(dim=1)
    white = functional.normalize(white[norms > norms.median()], dim=1)
    found = white[: atoms // 2].clone()
    for _ in range(8):
        alike, nearest = (white @ found.T).abs().max(1)
        signs = (white * found[nearest]).sum(1).sign()
        sums = torch.zeros_like(found).index_add_(0, nearest, (alike * signs)[:, None] * white)
        found = torch.where(sums.norm(dim=1, keepdim=True) > 0, functional.normalize(sums, dim=1), found)
    filters = found @ whitening
    filters = (filters - filters.mean(1, keepdim=True)).unflatten(1, (channels, WINDOW, WINDOW))
    return torch.cat([filters, filters.flip(3)])


KINDS: dict[str, Callable[[Tensor], Tensor]] = {"scattering": scattering}
_MADE_WITH = {"scattering": f"{DIRECTIONS}"}


@torch.no_grad()
def features(
    kind: str, images: np.ndarray, *, keep: str = "", each: Callable[[float], object] = lambda _: None
) -> Tensor:
    """Return the features of byte images as (images, numbers); ``keep`` names a file for the next time."""
    path = Path(tempfile.gettempdir()) / "noisette-features" / f"{kind}-{_MADE_WITH[kind]}-{keep}-{len(images)}.npy"
    if keep and path.exists():
        return torch.from_numpy(np.load(path)).float()
    pixels = torch.from_numpy(images.copy())
    pixels = pixels[:, None] if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)
    made = []
    for start in range(0, len(pixels), _BLOCK):
        made.append(KINDS[kind](pixels[start : start + _BLOCK].float() / 255).flatten(1).half())
        each(min((start + _BLOCK) / len(pixels), 1.0))
    whole = torch.cat(made)
    if keep:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, whole.numpy())
    return whole.float()


@lru_cache
@torch.no_grad()
def leaves(kind: str, channels: int, side: int, count: int) -> Tensor:
    """Return the features of dead leaves as (images, maps, rows, columns): what is known before any data are seen."""
    images = dead_leaves(count, side, channels, np.random.default_rng(2)).clamp(0, 1)
    return torch.cat([KINDS[kind](some) for some in images.split(_BLOCK)])


def sizes(known: Tensor) -> Tensor:
    """Return how large each map is on average, on dead leaves: a public scale for it."""
    return known.abs().mean((0, 2, 3))


def prepared(raw: Tensor, scale: Tensor) -> Tensor:
    """Return features with norm 1: roots, which keep rare maps in sight, over the norm. One image decides its own."""
    maps = raw.unflatten(1, (len(scale), -1)) / scale[:, None]
    return functional.normalize((maps.sign() * maps.abs().sqrt()).flatten(1), dim=1)


@torch.no_grad()
def directions(known: Tensor, kept: int) -> Tensor:
    """Return orthonormal columns that hold most of what varies on dead leaves: (features, kept).

    Each is a direction among maps times a direction among places, so that few images tell them all.
    """
    flat = prepared(known.flatten(1), sizes(known))
    maps = functional.normalize(flat - flat.mean(0), dim=1).unflatten(1, (known.shape[1], -1))
    among_maps, map_axes = torch.linalg.eigh(torch.einsum("nap,nbp->ab", maps, maps))
    among_places, place_axes = torch.linalg.eigh(torch.einsum("nap,naq->pq", maps, maps))
    weight = torch.outer(among_maps.clamp(min=0), among_places.clamp(min=0)).flatten()
    order = weight.argsort(descending=True, stable=True)[:kept]
    first, second = order // len(among_places), order % len(among_places)
    return torch.einsum("ak,pk->apk", map_axes[:, first], place_axes[:, second]).flatten(0, 1)
