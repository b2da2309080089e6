"""A stand-in for CIFAR-10 on which choices cost no privacy: Fashion-MNIST in colour, before clouds of noise.

Each garment is turned, moved, resized, mirrored at random, given a colour with a texture, and put before noise whose
power falls with frequency: 50,000 images of 32 x 32 to learn from and 10,000 to classify. No image of CIFAR-10 is seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from noisette import datasets

SIDE = 32
_BLOCK = 500
_SEED = 77
Images = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.float64]


def garments(train: int = 50_000, test: int = 10_000) -> tuple[Images, npt.NDArray[Any], Images, npt.NDArray[Any]]:
    """Return images and labels to learn from, and others to classify."""
    data, rng = datasets.images("fashion-mnist"), np.random.default_rng(_SEED)
    made = []
    for images, labels, count in ((data.train, data.train_labels, train), (data.test, data.test_labels, test)):
        parts = [_composed(images[start : min(start + _BLOCK, count)], rng) for start in range(0, count, _BLOCK)]
        made += [np.concatenate(parts), labels[:count].astype(np.int64)]
    return made[0], made[1], made[2], made[3]


def _composed(images: Images, rng: np.random.Generator) -> Images:
    """Put garments before noise."""
    shape = moved(images, rng)
    cover = np.clip(6 * shape, 0, 1)
    count = len(shape)
    behind = background(count, rng)
    texture = clouds(count, 1, np.full((count, 1, 1, 1), 1.2), rng)
    colour = rng.uniform(0.1, 0.95, (count, 1, 1, 1)) + rng.normal(0, 0.15, (count, 3, 1, 1))
    contrast = rng.uniform(0.2, 0.7, (count, 1, 1, 1)) * rng.choice([-1, 1], (count, 1, 1, 1), p=[0.25, 0.75])
    front = colour + contrast * (shape - 0.5) + rng.uniform(0, 0.12, (count, 1, 1, 1)) * texture
    whole = cover * front + (1 - cover) * behind + rng.normal(0, 0.015, behind.shape)
    return (np.clip(whole, 0, 1) * 255).astype(np.uint8).transpose(0, 2, 3, 1)


def moved(images: Images, rng: np.random.Generator) -> Numbers:
    """Return images of one channel turned, resized, mirrored and moved at random: (images, 1, side, side) in [0, 1]."""
    count = len(images)
    size, angle = rng.uniform(0.85, 1.35, count), rng.normal(0, 0.2, count)
    mirror = rng.choice([-1.0, 1.0], count)
    turn = np.zeros((count, 2, 3))
    turn[:, 0, 0], turn[:, 0, 1] = size * np.cos(angle) * mirror, -size * np.sin(angle)
    turn[:, 1, 0], turn[:, 1, 1] = size * np.sin(angle) * mirror, size * np.cos(angle)
    turn[:, :, 2] = rng.uniform(-0.25, 0.25, (count, 2))
    grid = functional.affine_grid(torch.from_numpy(turn).float(), [count, 1, SIDE, SIDE], align_corners=False)
    found = functional.grid_sample(torch.from_numpy(images.copy()).float()[:, None] / 255, grid, align_corners=False)
    return np.asarray(found.double())


def background(count: int, rng: np.random.Generator) -> Numbers:
    """Return clouds in colours of their own, from smooth to rough: (images, 3, side, side)."""
    fall = rng.uniform(1.0, 2.0, (count, 1, 1, 1))
    found = clouds(count, 3, fall, rng)
    mix = np.linalg.qr(rng.standard_normal((count, 3, 3)))[0] * np.array([1, 0.4, 0.2])
    found = np.einsum("bij,bjxy->bixy", mix, found)
    found = found * rng.uniform(0.05, 0.22, (count, 1, 1, 1)) + rng.uniform(0.2, 0.8, (count, 1, 1, 1))
    return found + rng.normal(0, 0.08, (count, 3, 1, 1))


def clouds(count: int, channels: int, fall: Numbers, rng: np.random.Generator) -> Numbers:
    """Return noise of deviation 1 whose amplitude falls as frequency to the power ``fall``."""
    shape = (count, channels, SIDE, SIDE // 2 + 1)
    waves = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    frequency = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE)[None])
    frequency[0, 0] = 1 / SIDE
    found = np.fft.irfft2(waves * frequency**-fall, s=(SIDE, SIDE))
    return found / found.std((2, 3), keepdims=True)
