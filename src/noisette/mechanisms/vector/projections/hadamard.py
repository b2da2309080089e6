"""A public random rotation and projection: signs, Walsh and Hadamard's transform, and some of its rows.

Whoever holds the seed has the same signs and rows. numba is imported by the first transform.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette._validate import FloatArray, IntArray
from noisette.mechanisms.vector._vectors import log_half_beta

SEEDS = 1 << 32
_SORTED_ROWS = 8  # times the rows that are chosen: up to so many rows all are sorted; beyond, repeated ones are skipped
_SALT = 0x9E3779B97F4A7C15


def hashed(seed: int | IntArray, places: IntArray) -> npt.NDArray[np.uint64]:
    """Return 64 bits for each place under a seed, mixed as by SplitMix64."""
    with np.errstate(over="ignore"):
        word = np.asarray(seed, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95) + np.uint64(_SALT)
        word = (word ^ (word >> np.uint64(32))) + places.astype(np.uint64) * np.uint64(_SALT)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(word ^ (word >> np.uint64(31)))


@dataclass(frozen=True)
class HadamardRows:
    """W = sqrt(d/k) S H D from ``dims`` numbers to k = ``rows`` of them, d the next power of two.

    H is Hadamard's matrix divided by sqrt(d). D has signs on its diagonal, which ``rotation`` determines and all users
    share. S takes k different rows, which a seed determines. Where k is at least ``dims``, W does nothing.
    """

    dims: int
    rows: int
    rotation: int = 0

    @property
    def idle(self) -> bool:
        """Whether vectors stay as they are."""
        return self.rows >= self.dims

    @property
    def width(self) -> int:
        """Length of a projected vector."""
        return min(self.rows, self.dims)

    @property
    def padded(self) -> int:
        """Length of a vector that is transformed."""
        return self.dims if self.idle else 1 << (self.dims - 1).bit_length()

    @property
    def length(self) -> float:
        """C = E|Wv| for a unit vector, of rows that are orthonormal and uniform (Haar).

        C = sqrt(d/k) G((k+1)/2) G(d/2) / (G(k/2) G((d+1)/2)), G the gamma function.
        """
        if self.idle:
            return 1.0
        betas = log_half_beta(self.padded / 2) - log_half_beta(self.width / 2)
        return math.sqrt(self.padded / self.width) * math.exp(betas)

    @cached_property
    def _signs(self) -> npt.NDArray[np.int8]:
        words = hashed(self.rotation, np.arange(-(-self.dims // 64))).astype("<u8")
        return np.asarray(1 - 2 * np.unpackbits(words.view(np.uint8), count=self.dims).view(np.int8), dtype=np.int8)

    def spectrum(self, vectors: FloatArray) -> FloatArray:
        """Return sqrt(d) H D v for each vector along the last axis."""
        if self.idle:
            return vectors
        rows = np.zeros((*vectors.shape[:-1], self.padded))
        np.multiply(vectors, self._signs, out=rows[..., : self.dims])
        transform(rows)
        return rows

    def back(self, spectra: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return D H' sqrt(d) y for each vector along the last axis, which is overwritten."""
        if self.idle:
            return spectra
        transform(spectra)
        return np.asarray(spectra[..., : self.dims] * self._signs)

    def chosen(self, seeds: IntArray) -> IntArray:
        """Return the places of S under each seed: k of d, in order, every set with the same chance."""
        if self.idle:
            return np.broadcast_to(np.arange(self.width), (*seeds.shape, self.width))
        if self.padded <= _SORTED_ROWS * self.width:
            words = hashed(seeds[..., None], np.arange(self.padded))
            return np.sort(np.argpartition(words, self.width - 1, axis=-1)[..., : self.width], axis=-1)
        found = np.empty((seeds.size, self.width), dtype=np.int64)
        for number, seed in enumerate(seeds.reshape(-1).tolist()):
            found[number] = self._distinct(seed)
        return found.reshape(*seeds.shape, self.width)

    def _distinct(self, seed: int) -> IntArray:
        """Return the first k different places that a seed names, in order."""
        count = self.width
        while True:
            count += count // 4
            places = (hashed(seed, np.arange(count)) & np.uint64(self.padded - 1)).astype(np.int64)
            kept, first = np.unique(places, return_index=True)
            if kept.size >= self.width:
                return np.sort(kept[np.argsort(first)[: self.width]])

    def directions(self, spectra: FloatArray, seeds: IntArray) -> FloatArray:
        """Return Wv/|Wv| from each vector's spectrum; the first axis where Wv is zero."""
        shape = np.broadcast_shapes(spectra.shape[:-1], seeds.shape)
        spread = np.broadcast_to(spectra, (*shape, spectra.shape[-1]))
        places = np.broadcast_to(self.chosen(seeds), (*shape, self.width))
        seen = np.take_along_axis(spread, places, axis=-1)
        largest = np.abs(seen).max(axis=-1, keepdims=True)
        seen = np.where(largest > 0, seen, np.eye(1, self.width)[0])
        seen = seen / np.where(largest > 0, largest, 1.0)  # so that no square vanishes
        return np.asarray(seen / np.sqrt(np.einsum("...i,...i->...", seen, seen))[..., None])

    @property
    def share(self) -> float:
        """What `back` is multiplied by to become W'z/C."""
        return 1.0 if self.idle else 1 / (math.sqrt(self.width) * self.length)


def transform(rows: npt.NDArray[Any]) -> None:
    """Multiply vectors along the last axis by Hadamard's matrix, in place; their length is a power of two."""
    from noisette.mechanisms._walsh import walsh

    walsh(rows.reshape(-1, rows.shape[-1]))  # of an array without gaps, so that this is no copy
