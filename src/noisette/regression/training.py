"""Private training by gradients: the server sends a model, each user answers once, the server takes a step."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from noisette import _random, _validate
from noisette._random import Rng
from noisette._validate import FloatArray
from noisette.domains import Categorical, Interval
from noisette.guarantees import Guarantee
from noisette.regression.channels import FIVE_LEVELS, Gathered, VectorChannel, channel_of, one_entry
from noisette.regression.designs import BadValue, Design
from noisette.regression.losses import Logistic, Loss, Squared

_USERS_AT_ONCE = 1 << 14  # users worked on at a time
_SMALLEST_BATCH = 256  # users of a batch where the budget is so large that a formula would ask for fewer


@dataclass(frozen=True, eq=False)
class Model:
    """What everybody may see: the weights that devices take their gradient at, and their average so far."""

    weights: FloatArray
    average: FloatArray
    rounds: int = 0
    users: int = 0

    def to_json(self) -> str:
        """Return a portable text, which a server sends to devices."""
        return json.dumps({key: v.tolist() if isinstance(v, np.ndarray) else v for key, v in vars(self).items()})

    @classmethod
    def from_json(cls, text: str) -> Model:
        """Read back what `to_json` gave."""
        record = json.loads(text)
        weights, average = (np.asarray(record[key], dtype=np.float64) for key in ("weights", "average"))
        return cls(weights, average, record["rounds"], record["users"])


@dataclass(frozen=True, eq=False)
class State:
    """Where a run stands: the model, and the sums of a batch that is not full yet."""

    model: Model
    pending: Gathered | None = None


@dataclass(frozen=True)
class Training:
    """A linear or logistic model from one private gradient of each user.

    Formula: with x the user's design row, y her target on [-1, 1] (0 or 1 for a class) and w the model, her gradient is
    g = slope(<w, x>, y) x, the slope within [-bound, bound]; the server averages the reports of a batch of users and
    steps, w <- w - gamma_t (mean + ridge w), the constant's weight without ridge. A batch has at least
    d ln(d) / e^2 users. ``step=None`` takes gamma_t = 1 / max(L, r s sqrt(t)), with r the largest
    length of a row, L the largest curvature that this allows and s the noise of a batch, which the mechanism states; a
    number takes gamma_t = step / sqrt(t). The result is the average of the models, later ones weighing more, or with
    ``average=False`` the last one. ``target`` decides the loss: an Interval has the squared one, two categories the
    logistic one. ``mechanism`` is a name, or a graded mechanism for rows (value, level) as it is, whatever ``epsilon``
    says; graded ones take for an entry of the gradient the level of its attribute's value on [-1, 1], by ``levels``
    (low, high, epsilon), whose budgets are scaled to ``epsilon`` in total.

    *Guarantee*: that of the mechanism, for a user's whole record, attributes and target, in the local model: she takes
    part in one batch and sends one report. Clipping is part of the gradient, so it holds for any record.
    *Utility*: the mean of a batch is unbiased for the gradient of the loss.
    Wang et al. 2019, section 5, with ``step=1.0, average=False, mechanism="harmony" | "piecewise" | "hybrid"``.

    >>> design = Design((Interval(0, 10),))
    >>> training = Training(design, Interval(0, 20), epsilon=2.0)
    >>> model = training.start()
    >>> report = training.report(model, [[4.0]], [8.0], rng=7)  # on the device
    >>> model = training.receive(model, report)  # on the server
    >>> model.rounds, training.guarantee.epsilon
    (1, 2.0)
    """

    design: Design
    target: Interval | Categorical
    epsilon: float
    _: KW_ONLY
    mechanism: str | Any = "auto"
    bound: float = 1.0
    ridge: float = 1e-4
    batch: int | None = None
    step: float | None = None
    average: bool = True
    entries: int | None = None
    levels: tuple[tuple[float, float, float], ...] = FIVE_LEVELS

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _validate.epsilon(self.epsilon))
        if isinstance(self.target, Categorical):
            if self.target.size != 2:
                raise ValueError(
                    f"Expected a target of two classes, got {self.target.size}. Train one against the rest."
                )
        elif not isinstance(self.target, Interval):
            raise TypeError(
                f"Expected target={self.target!r} to be an Interval of numbers or a Categorical of two classes."
            )
        ridge = _validate.number(self.ridge, "ridge")
        if not 0 <= ridge < math.inf:
            raise ValueError(f"Expected ridge={self.ridge!r} >= 0 and finite.")
        object.__setattr__(self, "ridge", ridge)
        if self.step is not None:
            object.__setattr__(self, "step", _validate.positive(self.step, "step"))
        if self.batch is not None:
            object.__setattr__(self, "batch", _validate.integer(self.batch, "batch", low=1))
        _ = self.loss, self.channel  # a wrong bound or mechanism is refused now, not at the first report

    @cached_property
    def loss(self) -> Loss:
        """The loss that the target calls for."""
        return Logistic() if isinstance(self.target, Categorical) else Squared(self.bound)

    @cached_property
    def channel(self) -> VectorChannel:
        """How a gradient leaves a device."""
        bound, dims = self.loss.bound, self.design.width
        if not isinstance(self.mechanism, str):
            return one_entry(self.mechanism, dims=dims, bound=bound)
        radius = bound * self.design.radius
        return channel_of(
            self.mechanism,
            self.epsilon,
            dims=dims,
            bound=bound,
            radius=radius,
            report=self.entries,
            levels=self.levels,
        )

    @property
    def guarantee(self) -> Guarantee:
        """What a user's one report protects: her whole record."""
        return self.channel.guarantee

    @property
    def batch_users(self) -> int:
        """Users of a batch."""
        if self.batch is not None:
            return self.batch
        dims = self.design.width
        return max(_SMALLEST_BATCH, math.ceil(dims * math.log(dims) / self.epsilon**2))

    def step_size(self, number: int) -> float:
        """Return gamma_t of batch t = 1, 2, ..."""
        if self.step is not None:
            return self.step / math.sqrt(number)
        radius = self.design.radius
        noise = math.sqrt(self.channel.noise / self.batch_users)
        return 1 / max(self.loss.curvature * radius**2 + self.ridge, radius * noise * math.sqrt(number))

    def start(self) -> Model:
        """Return the model before the first batch, which is zero: it predicts the middle."""
        zero = np.zeros(self.design.width)
        return Model(zero, zero)

    def gradients(self, model: Model, rows: FloatArray, target: FloatArray) -> FloatArray:
        """Return the gradient of each user's loss from her design row and her target on the model's scale."""
        slope = self.loss.slope(rows @ model.weights, target)
        return np.asarray(slope[:, None] * rows)

    def report(self, model: Model, rows: Any, target: Any, *, clip: bool = False, rng: Rng = None) -> Any:
        """Return the private reports of some users: what a device does with the public model and its own record."""
        matrix = self.design.encode(rows, outside="clip" if clip else "refuse")
        values = self.encode_target(target, clip=clip)
        if len(matrix) != len(values):
            raise ValueError(f"Expected as many targets as rows, got {len(values)} and {len(matrix)}.")
        levels = self.design.levels(matrix, values)
        return self.channel.privatize(self.gradients(model, matrix, values), levels, rng=rng)

    def receive(self, model: Model, reports: Any) -> Model:
        """Return the next model from the reports of a batch: what a server does."""
        return self.update(model, self.channel.gather(reports))

    def update(self, model: Model, gathered: Gathered) -> Model:
        """Return the next model from the sums of a batch's reports; a batch that is not full moves it less."""
        number = model.rounds + 1
        full = min(1.0, gathered.users / self.batch_users)
        penalty = self.ridge * model.weights
        penalty[0] = 0.0
        step = full * self.step_size(number)
        weights = model.weights - step * (self.channel.mean(gathered) + penalty)
        # with this share the models so far weigh as 1 : 2 : 3 : ...
        share = 2 * full / (number + 1) if self.average else 1.0
        average = model.average + share * (weights - model.average)
        return Model(weights, average, number, model.users + gathered.users)

    def advance(self, state: State, rows: Any, target: Any, *, clip: bool = False, rng: Rng = None) -> State:
        """Let some users report, and take a step whenever a batch is full."""
        source = _random.generator(rng)
        table, targets = np.asarray(rows), np.asarray(target)
        model, pending, start = state.model, state.pending, 0
        while start < len(table):
            missing = self.batch_users - (0 if pending is None else pending.users)
            block = slice(start, start + min(missing, _USERS_AT_ONCE))
            try:
                reports = self.report(model, table[block], targets[block], clip=clip, rng=source)
            except BadValue as error:
                raise error.moved(start) from None
            gathered = self.channel.gather(reports)
            pending = gathered if pending is None else pending.merge(gathered)
            if pending.users >= self.batch_users:
                model, pending = self.update(model, pending), None
            start = block.stop
        return State(model, pending)

    def finish(self, state: State) -> Model:
        """Return the model once the stream is over, with the last batch that was not full."""
        return state.model if state.pending is None else self.update(state.model, state.pending)

    def run(
        self,
        stream: Iterable[tuple[Any, Any]],
        *,
        clip: bool = False,
        rng: Rng = None,
        watch: Callable[[Model], None] | None = None,
    ) -> Model:
        """Train on a stream of (rows, targets), each row a user who has not taken part before."""
        source = _random.generator(rng)
        state = State(self.start())
        for rows, target in stream:
            state = self.advance(state, rows, target, clip=clip, rng=source)
            if watch is not None:
                watch(state.model)
        model = self.finish(state)
        if model.users == 0:
            raise ValueError("Expected at least one user to learn from, got an empty stream.")
        return model

    def predict(self, model: Model, rows: Any) -> FloatArray:
        """Return the predicted target of each row, for classes the probability of the second one."""
        mean = self.loss.mean(self.design.encode(rows, outside="keep") @ model.average)
        return self.target.from_canonical(mean) if isinstance(self.target, Interval) else mean

    def coefficients(self, model: Model) -> tuple[FloatArray, float]:
        """Return coefficients and intercept for attributes and target in their own units, classes as log-odds."""
        slopes, constant = self.design.plain(model.average)
        if isinstance(self.target, Categorical):
            return slopes, constant
        half = self.target.diameter / 2
        return slopes * half, self.target.low + half + half * constant

    def encode_target(self, target: Any, *, clip: bool = False) -> FloatArray:
        """Return targets on the model's scale: [-1, 1], or 0 and 1 for classes."""
        column: npt.NDArray[Any] = np.asarray(target)
        if column.ndim != 1:
            raise ValueError(f"Expected one target for each user, got an array of shape {column.shape}.")
        own = Design((self.target,), names=("target",))
        encoded = own.encode(column[:, None], outside="clip" if clip else "refuse")
        return encoded[:, -1]

    def spec(self) -> dict[str, Any]:
        """Return a JSON description of what is public."""
        return {
            "design": self.design.spec(),
            "target": self.target.spec(),
            "loss": type(self.loss).__name__.lower(),
            "mechanism": self.channel.spec(),
            "bound": self.loss.bound,
            "ridge": self.ridge,
            "batch": self.batch_users,
            "step": self.step,
            "average": self.average,
        }
