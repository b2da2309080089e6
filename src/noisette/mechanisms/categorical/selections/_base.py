"""What mechanisms for several options of one list share: rows of codes in, the share of each option and the number out.

An estimate has a quantity for each option, the share of users who chose it, and last the mean number of options that a
user chose.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray, IntArray
from noisette.core import Aggregate, Capabilities, Moments, Readout, Tail, Tally
from noisette.domains import Selection
from noisette.mechanisms._base import BLOCK, blocks
from noisette.mechanisms.categorical._base import Supporting, central

NUMBER = "number"  # of options chosen: the name of the last quantity


class SelectionMechanism(Supporting):
    """A mechanism that takes several options of a list; a report supports some options.

    It supports an option that was chosen with probability ``p_own``, any other one with ``p_other``.
    """

    kind: ClassVar[str] = "selection"
    capabilities: ClassVar[Capabilities] = Capabilities((Selection,), tabled=True)
    domain: Selection

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        if not isinstance(self.domain, Selection):
            raise TypeError(f"Expected domain={self.domain!r} to be Selection. Build it as Selection(size, most).")

    @classmethod
    def example(cls, epsilon: float) -> Self:
        """Return the mechanism on up to two of five options."""
        return cls(epsilon=epsilon, domain=Selection(5, 2))  # type: ignore[call-arg]

    @property
    def share(self) -> float:
        """The share of reports that are about an option: of most mechanisms all are."""
        return 1.0

    @abstractmethod
    def _fill(self, rows: IntArray, reports: npt.NDArray[Any], rng: np.random.Generator) -> None:
        """Write the reports of admissible selections."""

    @abstractmethod
    def _sums(self, reports: npt.NDArray[Any]) -> tuple[IntArray, IntArray, int]:
        """Return for each option how many reports are about it and support it, and the sum of squares of the number."""

    @abstractmethod
    def _number(self, chosen: int) -> tuple[float, float]:
        """Return variance and third absolute central moment of the number that one report says, of so many options."""

    @property
    def spread(self) -> tuple[float, float]:
        """Variance that one user leaves in the share of an option that nobody chose, and of one that all chose."""
        own, other = self._support_law
        gap = (own - other) ** 2
        return tuple(float(p * (1 - p) / gap) / self.share for p in (other, own))  # type: ignore[return-value]  # two

    def number_variance(self) -> float:
        """Return the largest variance that one user leaves in the mean number."""
        return max(self._number(chosen)[0] for chosen in {0, self.domain.most // 2, self.domain.most})

    def target(self, x: Any) -> FloatArray:
        """Return the share of each option, and the number of options."""
        members = self.domain.members(self._inputs(x))
        return np.concatenate([members, members.sum(axis=-1, keepdims=True)], axis=-1, dtype=np.float64)

    def moments(self, x: Any) -> Moments:
        """Return the exact moments of what one report says of each option, and last of their number."""
        members = self.domain.members(self._inputs(x))
        gap = float(self._support_law[0] - self._support_law[1])
        rows = []
        for place in (0, 1):
            sizes = [central(p, gap)[place] for p in self._support_law]
            number = {many: self._number(many)[place] for many in np.unique(members.sum(axis=-1)).tolist()}
            last = np.vectorize(number.__getitem__, otypes=[float])(members.sum(axis=-1, keepdims=True))
            rows.append(np.concatenate([np.where(members, *sizes), last], axis=-1))
        return Moments(np.zeros(rows[0].shape), *rows)

    @property
    @abstractmethod
    def _most_supported(self) -> int:
        """The most options that one report supports."""

    @property
    def supported(self) -> tuple[int, int]:
        """How many options a report supports, at least and at most."""
        return 0, self._most_supported

    @property
    def report_ends(self) -> tuple[FloatArray, FloatArray]:
        """A report supports an option or not, and up to some of all."""
        last = np.arange(self.domain.size + 1) == self.domain.size
        return self._said(np.zeros(last.size), np.where(last, self._most_supported, 1.0))

    @property
    def readout(self) -> Readout:
        """Supported less what comes by chance; the number is the sum over all options."""
        p_own, p_other = self._support_law
        gap, size = float(p_own - p_other), self.domain.size
        last = np.arange(size + 1) == size
        several = self._most_supported / self.share  # how far apart two reports can be
        offset, scale = -float(p_other) / gap, 1 / gap
        return Readout(
            offset=np.where(last, size * offset, offset),
            scale=np.where(last, scale / self.share, scale),
            low=0.0,
            high=np.where(last, float(self.domain.most), 1.0),
            tail=Tail(np.where(last, (several / gap) ** 2 / 4, 1 / gap**2 / 4), np.zeros(size + 1)),
        )

    def _answer(self, x: Any, *, clip: bool, rng: Rng) -> Any:
        """Return one report for each selection; there is no nearest one, so ``clip`` moves nothing."""
        rows = self._inputs(x)
        source = _random.generator(rng)
        flat = rows.reshape(-1, self.domain.most)
        reports = np.empty((len(flat), *self.report_shape), dtype=self.report_dtype)
        for block in blocks(len(flat), max(1, 4 * BLOCK // self.domain.most)):
            self._fill(flat[block], reports[block], source)
        return reports.reshape(rows.shape[:-1] + self.report_shape)[()]

    def tally(self, reports: Any) -> Tally:
        flat = self._reports(reports)
        count, total = np.zeros((2, self.domain.size + 1), dtype=np.int64)
        squares = 0
        for block in blocks(len(flat), max(1, 32 * BLOCK // max(1, flat[:1].size))):
            self.check_support(flat[block])
            about, supported, more = self._sums(flat[block])
            count[:-1] += about
            total[:-1] += supported
            squares += more
        count[-1], total[-1] = len(flat), total[:-1].sum()
        return Tally(len(flat), count, total, np.append(total[:-1], squares))

    def aggregate(self, reports: Any) -> Aggregate:
        """Sum a batch of reports; the domain's labels name the estimated shares."""
        labels = self.domain.labels
        return replace(super().aggregate(reports), names=None if labels is None else (*labels, NUMBER))

    def _inputs(self, x: Any) -> IntArray:
        """Return rows of codes, refusing what is no selection."""
        array = np.asarray(x)
        if array.size == 0:
            raise ValueError(f"Expected at least one selection, got an empty array of shape {array.shape}.")
        if array.dtype.kind not in "iu":
            raise TypeError(
                f"Expected selections as rows of {self.domain.most} integers, got an array of {array.dtype}. "
                "Call domain.encode first."
            )
        rows = array.astype(np.int64, copy=False)
        inside = self.domain.contains(rows)
        if not np.all(inside):
            bad = rows.reshape(-1, self.domain.most)[int(np.argmin(inside.reshape(-1)))].tolist()
            raise ValueError(
                f"Expected rows of different options 0 ... {self.domain.size - 1}, filled up with -1, got {bad}. "
                "There is no nearest selection to clip to."
            )
        return rows
