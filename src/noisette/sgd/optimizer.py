"""Any torch optimiser, fed with private gradients."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch.optim import Optimizer

from noisette._validate import FloatArray
from noisette.guarantees import Guarantee, PrivacyWarning
from noisette.sgd._lattice import add_exactly, noisy_count, on_lattice, widened
from noisette.sgd.budget import Budget
from noisette.sgd.clipping import Clip, Sums, added_up
from noisette.sgd.gradients import Recorder
from noisette.sgd.layers import Part
from noisette.sgd.perturbation import Perturbation
from noisette.sgd.sampling import PoissonLoader


class Watcher(Protocol):
    """Sees what no noise protects: for analysis."""

    def collect(self, parts: Mapping[str, Part], scale: float) -> None:
        """See the gradients of a piece of a batch."""

    def release(self, sums: Sums, released: Sums, multiplier: float) -> None:
        """See what a batch summed to and what was made of it, before the parameters move."""


class PrivateOptimizer(Optimizer):
    """Wraps an optimiser: each step first turns the recorded gradients into one private gradient.

    A piece of a batch that is not its last only adds to the sum, and the parameters stay. `stepped` tells whether the
    last call moved them. The state that is saved holds the budget.
    """

    def __init__(
        self,
        inner: Optimizer,
        recorder: Recorder,
        loader: PoissonLoader,
        budget: Budget,
        *,
        clip: Clip,
        perturb: Perturbation,
        loss_reduction: Literal["mean", "sum"],
        rng: np.random.Generator,
        seeded: bool,
    ) -> None:
        if loss_reduction not in ("mean", "sum"):
            raise ValueError(f"Expected loss_reduction={loss_reduction!r} to be 'mean' or 'sum', as in the loss.")
        _check_one_gradient(inner)
        self.inner, self.recorder, self.loader, self.budget = inner, recorder, loader, budget
        self.clip, self.perturb, self._loss_reduction = clip, perturb, loss_reduction
        self._rng, self._seeded = rng, seeded
        self.steps = 0
        self.stepped = False
        self._calls = 0
        self.watcher: Watcher | None = None
        self._sums: Sums | None = None
        known = {id(parameter) for _, _, parameter in recorder.parameters()}
        for group in inner.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and id(parameter) not in known:
                    raise ValueError(
                        "The optimiser holds a parameter that is not the model's. Build it from model.parameters() "
                        "after the model has its final layers."
                    )
        shapes: dict[str, dict[str, torch.Size]] = {}
        for layer, name, parameter in recorder.parameters():
            shapes.setdefault(layer, {})[name] = parameter.shape
        clip.leave_room(loader.size, loader.physical_batch)
        clip.start({layer: sum(map(torch.Size.numel, own.values())) for layer, own in shapes.items()})
        perturb.start(clip, shapes)
        self._entries = sum(shape.numel() for own in shapes.values() for shape in own.values())
        self._widened(clip.share)  # refused now if it cannot be

    # What schedulers and loops expect of an optimiser is the inner one's.
    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.inner.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self.inner.defaults

    @property
    def guarantee(self) -> Guarantee:
        """What holds for the steps made so far."""
        return self.budget.spent(self.steps)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients; what a batch has added to the sum stays until its step."""
        self.recorder.clear()
        self.inner.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Add the recorded gradients to the sum and, at the end of a batch, make a private step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.budget.check(self.steps)
        self._check_source()
        self._collect()
        self.stepped = self.loader.complete
        if self.stepped:
            self._release()
            if isinstance(self.inner, torch.optim.LBFGS):
                # it calls once, for the value; torch leaves its step untyped
                self.inner.step(lambda: 0.0 if loss is None else loss)  # type: ignore[no-untyped-call]
            else:
                self.inner.step()
            self.steps += 1
        return loss

    @property
    def scale(self) -> float:
        """What recorded gradients are multiplied with to be those of one example's own loss."""
        return float(self.recorder.examples) if self._loss_reduction == "mean" else 1.0

    def release_counts(self, norms: Callable[[], FloatArray], edges: FloatArray) -> FloatArray:
        """Return noisy counts of a sample's gradient norms between public edges; to the budget this is a step.

        An example adds one to one count: noise of the multiplier's size makes this as private as a step.
        """
        self.budget.check(self.steps)
        if self._sums is not None:
            raise RuntimeError("A batch is half summed. Count norms before training, or after a batch's last piece.")
        counts = np.bincount(np.searchsorted(edges, norms()), minlength=len(edges) + 1).astype(np.float64)
        self.steps += 1
        size = widened(self.budget.multiplier, counts.size, 2.0**-20)
        counts /= size
        add_exactly(counts, self._rng)
        return on_lattice(counts, size)

    def _widened(self, share: float) -> float:
        """Return the multiplier of noise on its lattice, where the rule of clipping takes a share of the squared mu."""
        return widened(
            self.budget.multiplier / math.sqrt(1 - share), self._entries, self.perturb.room(self.loader.size)
        )

    def _check_source(self) -> None:
        """Warn, once, of examples that the Poisson loader did not draw."""
        self._calls += 1
        if self._calls == self.loader.given + 1:
            warnings.warn(
                "This step is not on a batch of the private loader, for whose Poisson samples the guarantee is. "
                "Iterate over the loader that make_private returned: model, optimizer, loader = private.",
                PrivacyWarning,
                stacklevel=3,
            )

    def _collect(self) -> None:
        parts, scale = self.recorder.parts(), self.scale
        self.recorder.clear()  # parts hold what they need
        if self.watcher is not None:
            self.watcher.collect(parts, scale)
        added = self.perturb.collect(self.clip, parts, scale)
        self._sums = added_up(self._sums, added)

    def _release(self) -> None:
        assert self._sums is not None
        share, expected = self.clip.share, self.loader.expected_batch
        multiplier = self._widened(share)
        released = self.perturb.release(self._sums, self.clip, multiplier, expected, self._rng)
        if self.watcher is not None:
            self.watcher.release(self._sums, released, multiplier)
        self._sums = None
        for layer, name, parameter in self.recorder.parameters():
            parameter.grad = released[layer][name].to(parameter)
        noise = self.perturb.noise(self.clip, multiplier, expected)
        self.clip.learn(released, noise if math.isfinite(noise) else 0.0)
        if share > 0:
            spread = self.budget.multiplier / math.sqrt(share)
            self.clip.ask(expected, lambda count, reach: noisy_count(count, reach, spread, self._rng))

    def state_dict(self) -> dict[str, Any]:
        """Return the inner optimiser's state and what has been spent.

        The generators' states are in it only if the run was seeded: of a run with secret noise they would reveal what
        comes next, so that one goes on with fresh noise.
        """
        if self._sums is not None:
            raise RuntimeError("A batch is half summed. Save when its last piece has made a step (optimizer.stepped).")
        private = {
            "steps": self.steps,
            "multiplier": self.budget.multiplier,
            "sampling_prob": self.budget.sampling_prob,
            "delta": self.budget.delta,
            "allowed": self.budget.steps,
            "truth": self.budget.truth,
            "clip": self.clip.state(),
            "position": self.loader.position % self.loader.steps,
        }
        if self._seeded:
            private["generators"] = {
                "noise": _state(self._rng),
                "sampling": _state(self.loader.rng),
                "torch": torch.get_rng_state(),
            }
        return {"inner": self.inner.state_dict(), "private": private}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where a saved run stopped, with the budget that it had."""
        private = state_dict["private"]
        for name in ("sampling_prob", "delta", "truth"):
            mine = getattr(self.budget, name)
            if private[name] != mine:
                raise ValueError(
                    f"The saved run had {name}={private[name]!r}, this one has {mine!r}. Build it with the same data, "
                    "batch size, delta and perturbation."
                )
        self.inner.load_state_dict(state_dict["inner"])
        self.budget = Budget(
            private["multiplier"],
            private["sampling_prob"],
            private["delta"],
            private["allowed"],
            truth=private["truth"],
        )
        self.steps = int(private["steps"])
        self.clip.restore(private["clip"])
        self.loader.position = int(private["position"])
        if self._seeded and "generators" in private:
            _restore(self._rng, private["generators"]["noise"])
            _restore(self.loader.rng, private["generators"]["sampling"])
            torch.set_rng_state(private["generators"]["torch"])


def _check_one_gradient(optimizer: Optimizer) -> None:
    """Refuse an optimiser that wants more than one gradient a step: each would be a release of its own."""
    for group in optimizer.param_groups:
        if isinstance(optimizer, torch.optim.LBFGS) and (group["max_iter"] != 1 or group["line_search_fn"]):
            raise ValueError(
                f"LBFGS with max_iter={group['max_iter']} and line_search_fn={group['line_search_fn']!r} takes several "
                "gradients a step, and the budget is for one. Build it with max_iter=1 and line_search_fn=None."
            )


def _state(rng: np.random.Generator) -> dict[str, Any]:
    return dict(rng.bit_generator.state)


def _restore(rng: np.random.Generator, state: dict[str, Any]) -> None:
    rng.bit_generator.state = state
