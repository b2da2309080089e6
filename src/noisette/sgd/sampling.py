"""Poisson samples of a data set: every example joins a batch on its own, with the same probability."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    default_collate,
)
from torch.utils.data.distributed import DistributedSampler

from noisette import _random, _validate
from noisette.sgd._ranks import Ranks

_OURS = secrets.randbits(63)  # what our states say that they were seeded with
_STATE = torch.Generator().manual_seed(_OURS).get_state().numpy()  # of a Mersenne twister before its first draw
_WORDS = slice(24, 24 + 8 * 624)  # where its words lie, of 32 bits each in room for 64


class PoissonLoader:
    """Batches in which each example is present with probability ``sampling_prob``, in an epoch of ``steps`` batches.

    A batch can be empty; it still counts as a step. A batch of more than ``physical_batch`` examples arrives in pieces,
    and `complete` says whether the piece that was given last ends its batch: memory follows the piece, privacy the
    batch. ``members`` are the places of the data set that are drawn from, all by default. Where several processes train
    together, each gets its share of every batch.

    ``valid`` is a public rule of one example: one for which it is false, or for which it or the data set raises an
    exception, adds nothing wherever it is drawn, and still counts in ``size``.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        sampling_prob: float,
        *,
        steps: int,
        physical_batch: int = 1024,
        collate: Callable[[list[Any]], Any] = default_collate,
        members: npt.NDArray[np.int64] | None = None,
        valid: Callable[[Any], Any] | None = None,
        rng: np.random.Generator,
    ) -> None:
        self.dataset = dataset
        self.valid = valid
        self._examples: list[Any] = []  # the first that are valid, as they were when they were looked for
        self._looked = 0  # at how many, for these
        self._members = members
        self.size = _size(dataset) if members is None else len(members)
        if self.size == 0:
            raise ValueError("Expected a data set with examples; it is empty.")
        _check_once(dataset, members)
        if not 0 < sampling_prob <= 1:
            raise ValueError(
                f"Expected sampling_prob={sampling_prob!r} in (0, 1]: batches of {sampling_prob * self.size:g} from "
                f"{self.size} examples. Use a batch size of at most {self.size}."
            )
        self.sampling_prob = sampling_prob
        self.steps = _validate.integer(steps, "steps", low=1)
        self.physical_batch = _validate.integer(physical_batch, "physical_batch", low=1)
        self.complete = True
        self._given: deque[tuple[int, int, bool]] = deque()  # batch, examples, whether the piece ends its batch
        self._batches = 0
        self.rng = rng
        self.ranks = Ranks()
        self.position = 0
        self.collate = collate
        self.shown: Callable[[Any, int], Any] = _as_it_is  # what a loop gets to see of a piece and its number

    @classmethod
    def like(
        cls,
        loader: DataLoader[Any],
        *,
        physical_batch: int = 1024,
        valid: Callable[[Any], Any] | None = None,
        rng: np.random.Generator,
    ) -> PoissonLoader:
        """Return a Poisson loader with the data and the expected batch size of a plain one."""
        if not isinstance(loader, DataLoader) or loader.batch_size is None:
            raise TypeError(
                "Expected a torch DataLoader with a batch_size and without a batch_sampler, which would give way to "
                f"Poisson sampling; got {type(loader).__name__}."
            )
        size, batch = _size(loader.dataset), loader.batch_size
        if type(loader.sampler) is DistributedSampler and loader.sampler.num_replicas == Ranks().size:
            members, batch = None, batch * Ranks().size  # each process was to have its own part of every batch
        else:
            members = _members(loader.sampler, size)
        probability = batch / max(size if members is None else len(members), 1)
        return cls(
            loader.dataset,
            probability,
            steps=max(round(1 / probability), 1),
            physical_batch=physical_batch,
            collate=loader.collate_fn,
            members=members,
            valid=valid,
            rng=rng,
        )

    @property
    def expected_batch(self) -> float:
        """The mean number of examples in a batch."""
        return self.sampling_prob * self.size

    @property
    def pieces(self) -> int:
        """In how many pieces every batch arrives, however many examples were drawn.

        Loops count pieces, in schedules of learning rates and in logs: so none of that tells how many examples there
        were. A batch has more with a chance below 10^-9.
        """
        return -(-min(most(self.expected_batch), self.size) // (self.physical_batch * self.ranks.size))

    def __len__(self) -> int:
        """Return how many pieces an epoch has: ``steps`` where every batch arrives in one piece."""
        return self.steps * self.pieces

    def __iter__(self) -> Iterator[Any]:
        self._given.clear()  # a loop that was left has left its batches
        self.position %= self.steps  # one that took the last batch and asked for no more has had its epoch
        while self.position < self.steps:
            pieces = self._pieces()
            self._batches += 1
            batch = self._batches
            for place, piece in enumerate(pieces):
                self.complete = place == len(pieces) - 1
                if self.complete:
                    self.position += 1
                fetched, examples = self.fetch(piece)
                self._given.append((batch, examples, self.complete))
                yield self.shown(fetched, examples)
        self.position = 0

    @property
    def given(self) -> int:
        """How many examples the piece has that was given last, 0 where none waits for its step."""
        return self._given[-1][1] if self._given else 0

    def account_for(self, examples: int) -> tuple[int, bool] | None:
        """Take a piece of this many examples off those that were given; tell its batch and whether it ends it, or None.

        Pieces that were given before it are passed over. Where one waits for its step and none has this many examples,
        that is an error: the examples were on another axis, or other ones were trained on.
        """
        last = self.given if self._given else None
        while self._given:
            batch, size, complete = self._given.popleft()
            if size == examples:
                return batch, complete
        if last is not None:
            raise RuntimeError(
                f"Layers saw {examples} rows, and the batch that the private loader gave last has {last} examples. "
                "Train on its batches, whole, with examples along the first axis of what the model is called with."
            )
        return None

    def draw(self) -> Iterator[tuple[int, Any]]:
        """Yield one more batch in its pieces, each with its number of examples, which is no part of the epoch."""
        for piece in self._pieces():
            fetched, examples = self.fetch(piece)
            yield examples, fetched

    def _pieces(self) -> list[npt.NDArray[np.intp]]:
        """Draw the examples of a batch, in pieces: as many in every process."""
        # multiples of 2^-53 are drawn: below this limit they are with a chance of at most sampling_prob
        limit = math.floor(self.sampling_prob * 2.0**53) / 2.0**53
        chosen = self.ranks.from_first(lambda: np.flatnonzero(self.rng.random(self.size) < limit))
        needed = -(-len(chosen) // (self.physical_batch * self.ranks.size))
        return np.array_split(self.ranks.share(chosen), max(needed, self.pieces))

    def fetch(self, indices: Any) -> tuple[Any, int]:
        """Return the valid ones of some examples as a batch, and how many they are."""
        renew_chance(self.rng)
        if self._members is not None:
            indices = self._members[np.asarray(indices, dtype=np.int64)]
        if type(self.dataset) is TensorDataset and self.collate is default_collate and self.valid is None:
            chosen = torch.as_tensor(indices, dtype=torch.int64)
            return [tensor[chosen] for tensor in self.dataset.tensors], len(indices)
        items = [item for index in indices for item in self._fetched(int(index))]
        if items:
            return self.collate(items), len(items)
        return _emptied(self.collate([self.example(0)])), 0

    def _fetched(self, index: int) -> list[Any]:
        """Return the example at a place of the data set, or nothing if it is not valid."""
        if self.valid is None:
            return [self.dataset[index]]
        try:
            item = self.dataset[index]
            return [item] if self.valid(item) else []
        except Exception:
            return []

    def digest(self) -> str:
        """Return a digest of a data set of tensors, by which processes tell that they hold the same; else nothing."""
        if self.ranks.size == 1 or type(self.dataset) is not TensorDataset:
            return ""
        seen = hashlib.sha256()
        for tensor in self.dataset.tensors:
            seen.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
        return seen.hexdigest()

    def example(self, place: int) -> Any:
        """Return one of the examples that are drawn from, as the data set has it, and of valid ones the next."""
        if self.valid is None:
            return self.dataset[self._place(place)]
        while len(self._examples) <= place and self._looked < self.size:
            self._examples += self._fetched(self._place(self._looked))
            self._looked += 1
        if not self._examples:
            raise ValueError(
                f"None of the {self.size} examples is valid. Try the rule, and the data set, on one: valid(dataset[0])."
            )
        return self._examples[place % len(self._examples)]

    def _place(self, place: int) -> int:
        return place if self._members is None else int(self._members[place])


def renew_chance(rng: np.random.Generator, *, always: bool = True) -> None:
    """Give torch's generators a state that nobody knows, where ``rng`` is secret; or only if they were seeded since.

    Dropout and augmentation draw for a whole batch: with one example more, those behind it draw other numbers. So what
    the others bring has one law with and without it, and is the same for nobody who knows the numbers: from a seed, or
    by trying all 2^32 that torch tells apart.
    """
    if not _random.is_secret(rng) or not (always or torch.default_generator.initial_seed() != _OURS):
        return
    state = _STATE.copy()
    state[_WORDS].view(np.uint64)[:] = _random.bits64(rng, 312).view(np.uint32)
    torch.default_generator.set_state(torch.from_numpy(state))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(int(rng.integers(2**63)))


def _as_it_is(batch: Any, examples: int) -> Any:
    return batch


def most(expected: float) -> int:
    """Return a number of examples that a sum of coins with this mean is above with a chance below 10^-9."""
    return math.ceil(expected + 8 * math.sqrt(expected) + 16)


def _members(sampler: Any, size: int) -> npt.NDArray[np.int64] | None:
    """Return the places that a sampler draws from, None for all; refuse one that Poisson sampling is not like."""
    if type(sampler) is SubsetRandomSampler:
        return _counted(list(sampler.indices), size)
    whole = type(sampler) in (SequentialSampler, RandomSampler) and len(sampler.data_source) == size
    if whole and (type(sampler) is SequentialSampler or (not sampler.replacement and sampler.num_samples == size)):
        return None
    raise ValueError(
        f"The loader's {type(sampler).__name__} does not draw every example once, and Poisson sampling, for which the "
        "guarantee is, would draw from all of them. Give a loader with shuffle=True over the examples that are to be "
        "trained on, e.g. DataLoader(torch.utils.data.Subset(dataset, indices), batch_size=..., shuffle=True)."
    )


def _size(dataset: Any) -> int:
    """Return how many examples there are, or an error for data that only comes in a row."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise TypeError(
            "Expected a data set with a length, so that each example can be drawn on its own. Give list(dataset), or a "
            "torch Dataset with __len__ and __getitem__ where that is too large for memory."
        )
    return len(dataset)


def _counted(indices: Any, size: int) -> npt.NDArray[np.int64]:
    """Return places of a data set of ``size`` examples from its start, as -1 stands for the last one."""
    places = np.asarray(indices).reshape(-1)
    whole = places.astype(np.int64)
    if not np.array_equal(whole, places) or np.any((whole < -size) | (whole >= size)):
        raise ValueError(f"Expected places from 0 to {size - 1} in a Subset or a SubsetRandomSampler, got others.")
    return np.where(whole < 0, whole + size, whole)


def _check_once(dataset: Any, members: npt.NDArray[np.int64] | None) -> None:
    """Refuse places in data sets, and data sets made of others, in which an example is there several times."""
    if members is None and not isinstance(dataset, Subset | ConcatDataset):
        return
    held, places = _origins(dataset)
    if members is not None:
        held, places = held[members], places[members]
    order = np.lexsort((places, held))
    if np.any((np.diff(held[order]) == 0) & (np.diff(places[order]) == 0)):
        name = type(dataset).__name__ if members is None else "SubsetRandomSampler"
        raise ValueError(f"Expected a {name} without repetitions: an example would count several times.")


def _origins(dataset: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for each example which data set it comes from in the end, and its place there."""
    if isinstance(dataset, Subset):
        held, places = _origins(dataset.dataset)
        chosen = _counted(dataset.indices, len(places))
        return held[chosen], places[chosen]
    if isinstance(dataset, ConcatDataset) and dataset.datasets:
        parts = [_origins(one) for one in dataset.datasets]
        return np.concatenate([held for held, _ in parts]), np.concatenate([places for _, places in parts])
    size = len(dataset)
    return np.full(size, id(dataset), dtype=np.int64), np.arange(size)


def _emptied(batch: Any) -> Any:
    """Return a batch of the same form with no example in it."""
    if isinstance(batch, torch.Tensor):
        return batch[:0]
    if isinstance(batch, dict):
        return {key: _emptied(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return [_emptied(value) for value in batch]
    raise TypeError(f"Expected batches of tensors, lists and dicts, got {type(batch).__name__}. Give collate_fn.")
