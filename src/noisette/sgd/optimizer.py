"""Any torch optimiser, fed with private gradients."""

from __future__ import annotations

import copy
import hashlib
import math
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Literal, NoReturn, Protocol

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from noisette._validate import FloatArray
from noisette.guarantees import Guarantee, PrivacyWarning
from noisette.sgd.adam import AdamBC
from noisette.sgd.budget import Budget
from noisette.sgd.clipping import Clip, Sums, added_up, copied
from noisette.sgd.noise._lattice import add_exactly, noisy_count, on_lattice, widened
from noisette.sgd.noise.perturbation import GaussianPerturbation, Perturbation
from noisette.sgd.recording.gradients import Recorder
from noisette.sgd.recording.layers import Part, sums_quickly
from noisette.sgd.sampling import PoissonLoader, most

_TOGETHER = 1 << 18  # sums that are given noise at a time, enough for several cores
_owners: weakref.WeakKeyDictionary[Optimizer, weakref.ref[PrivateOptimizer]] = weakref.WeakKeyDictionary()


class Watcher(Protocol):
    """Sees what no noise protects: for analysis."""

    def collect(self, parts: Mapping[str, Part], scale: float) -> None:
        """See the gradients of a piece of a batch."""

    def release(self, sums: Sums, released: Sums, multiplier: float) -> None:
        """See what a batch summed to and what was made of it, before the parameters move."""


class PrivateOptimizer(Optimizer):
    """Wraps an optimiser: each step first turns the recorded gradients into one private gradient.

    A piece of a batch that is not its last only adds to the sum, and the parameters stay. `stepped` says whether the
    last call moved them. The state that is saved holds the budget: the steps that each run has made, by its name, so
    that runs that go on from each other add up and none is counted twice.

    The wrapped optimiser steps from here alone, and only over parameters whose gradients are private.
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
        # rules learn the model and more: what serves a second run, with another model, must not change this one
        clip, perturb = copy.deepcopy(clip), copy.deepcopy(perturb)
        self._clip, self._perturb, self._loss_reduction = clip, perturb, loss_reduction
        self._rng, self._seeded = rng, seeded
        self._run = uuid.uuid4().hex
        self._made: dict[str, int] = {self._run: 0}
        self._terms = {
            "clip": _described(clip),
            "perturb": _described(perturb),
            "loss_reduction": loss_reduction,
            "examples": loader.size,
        }
        self.stepped = False
        self.watcher: Watcher | None = None
        self._sums: Sums | None = None
        self._summed: int | None = None  # the batch whose pieces the sums hold
        self._rule: tuple[Any, ...] = ()  # of clipping, as it was for the first of them
        recorder.notes.mean = loss_reduction == "mean"
        recorder.planned = min(loader.physical_batch, self._most())
        self._trained = list(recorder.parameters())  # as it is now: what is unfrozen later is not private
        self._known = {id(parameter) for _, _, parameter in self._trained}
        if self._unknown(inner.param_groups):
            raise ValueError(
                "The optimiser holds a parameter that is not the model's. Build it from model.parameters() after the "
                "model has its final layers."
            )
        shapes: dict[str, dict[str, torch.Size]] = {}
        for layer, name, parameter in self._trained:
            shapes.setdefault(layer, {})[name] = parameter.shape
        clip.leave_room(loader.size, loader.physical_batch, loader.ranks.size, self._few())
        clip.start({layer: sum(map(torch.Size.numel, own.values())) for layer, own in shapes.items()})
        perturb.start(clip, shapes)
        self._entries = sum(shape.numel() for own in shapes.values() for shape in own.values())
        self._widened(clip.share)  # refused now if it cannot be
        if isinstance(inner, AdamBC) and not math.isfinite(perturb.noise(clip, 1.0, loader.expected_batch)):
            raise ValueError(
                f"AdamBC needs noise of one size in all entries, and {type(perturb).__name__} has several. Take "
                "perturb='gaussian', or torch.optim.Adam."
            )
        self._stepping = False
        self._elsewhere: dict[str, nn.Parameter] = {}  # trained, and given a gradient outside of their layers
        owner = weakref.ref(self)
        for layer, name, parameter in self._trained:
            note = partial(_note_elsewhere, owner, f"{layer}.{name}".strip("."))
            parameter.register_post_accumulate_grad_hook(note)  # type: ignore[no-untyped-call]
        _owners[inner] = weakref.ref(self)
        inner.register_step_pre_hook(self._admit_step)

    def _unknown(self, groups: Iterable[dict[str, Any]]) -> bool:
        """Tell whether there is a parameter that trains, or would, and whose gradients nobody clips."""
        return any(
            id(parameter) not in self._known and (parameter.requires_grad or parameter.grad is not None)
            for group in groups
            for parameter in group["params"]
        )

    def _admit_step(self, inner: Optimizer, *_: Any) -> None:
        """Refuse a step of the wrapped optimiser that is not from here."""
        owner = _owners.get(inner)
        if owner is None or owner() is not self:
            return  # a later run has taken the optimiser over
        if not self._stepping:
            raise RuntimeError(
                "This optimiser belongs to a private run, and its own step would apply gradients that no noise "
                "protects. Step with the one that make_private returned: model, optimizer, loader = private."
            )

    def _refuse_lost(self) -> None:
        """Refuse a step where the loss uses a weight beside its layer: that part would be lost without a word."""
        name = next((name for name, parameter in self._elsewhere.items() if parameter.grad is not None), None)
        self._elsewhere.clear()
        if name is not None:
            raise RuntimeError(
                f"The parameter {name!r} got a gradient outside of its layer, such as one of a penalty on weights in "
                "the loss. It is no example's, and would be lost. No step was made. Give the optimiser weight_decay in "
                "place of a penalty, and call optimizer.zero_grad() after a backward pass for something else."
            )

    def _refuse_changed(self) -> None:
        """Refuse a step where a parameter has begun to train since `make_private`, or no longer trains."""
        frozen = next(
            (f"{layer}.{own}".strip(".") for layer, own, value in self._trained if not value.requires_grad), None
        )
        if frozen is not None:
            raise RuntimeError(
                f"The parameter {frozen!r} was frozen after make_private, and noise and clipping are for all that was "
                "trained then. No step was made. Freeze it first, then call make_private; or give it a group of its "
                "own in the optimiser and set that group's lr to 0."
            )
        other = self.recorder.replaced()
        if other is not None:
            raise RuntimeError(
                f"The model has something else in place of {other!r} than when make_private was called, and what the "
                "optimiser holds is not used. No step was made. Replace layers and parameters first, also by "
                "load_state_dict(assign=True), then call make_private."
            )
        if self._unknown(self.inner.param_groups):
            raise RuntimeError(
                "The optimiser holds a parameter that was unfrozen or added after make_private: it would be trained on "
                "its raw gradient. No step was made. Unfreeze and add all that is to be trained first, then call "
                "make_private."
            )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters that are recorded already; others are refused, since nobody clips their gradients."""
        given = param_group["params"]
        group = {**param_group, "params": [given] if isinstance(given, torch.Tensor) else list(given)}
        if any(id(parameter) not in self._known for parameter in group["params"]):
            raise ValueError(
                "Expected parameters that were trained when make_private was called: others would be trained on their "
                "raw gradients. Add them first, then call make_private."
            )
        self.inner.add_param_group(group)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse a copy: two holders of one budget would spend it twice."""
        raise TypeError(
            "A private optimiser is not copied or pickled: its budget would be spent twice. Save its state_dict(), "
            "load that into a run built by make_private with the same settings; a model is copied by its state_dict()."
        )

    @property
    def clip(self) -> Clip:
        """The rule of clipping; another one would not know the model."""
        return self._clip

    @property
    def perturb(self) -> Perturbation:
        """The noise on the sums."""
        return self._perturb

    @property
    def steps(self) -> int:
        """Releases made so far, by this run and by those that it goes on from."""
        return sum(self._made.values())

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
        self._elsewhere.clear()
        if not set_to_none:
            self.inner.zero_grad(set_to_none)
            return
        for group in self.inner.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Add the recorded gradients to the sum and, at the end of a batch, make a private step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.budget.check(self.steps)
        self.loader.ranks.check()
        self._refuse_changed()
        self._refuse_lost()
        complete = self._source()
        parts, scale = self.recorded()
        if self.watcher is not None:
            self.watcher.collect(parts, scale)
        by_layers = complete and self._sums is None and self._divisible()
        if not by_layers:
            self._collect(parts, scale, complete)
            parts.clear()  # what they hold takes memory
        self.stepped = complete
        if complete:
            self._made[self._run] += 1
            self._release(self._some_sums(parts, scale) if by_layers else self._whole_sums())
            self._stepping = True
            try:
                if isinstance(self.inner, torch.optim.LBFGS):
                    # it calls once, for a value that its state keeps: none that no noise protects. It is left untyped
                    self.inner.step(lambda: 0.0)  # type: ignore[no-untyped-call]
                else:
                    self.inner.step()
            finally:
                self._stepping = False
        return loss

    @property
    def scale(self) -> float:
        """What recorded gradients are multiplied with to be those of one example's own loss."""
        return self._scale_of(self.recorder.examples)

    def _scale_of(self, examples: int) -> float:
        return examples / self.recorder.notes.seed if self._loss_reduction == "mean" else 1.0

    def release_counts(self, norms: Callable[[], FloatArray], edges: FloatArray) -> FloatArray:
        """Return noisy counts of a sample's gradient norms between public edges; to the budget this is a step.

        An example adds one to one count: noise of the multiplier's size makes this as private as a step.
        """
        self.budget.check(self.steps)
        if self._sums is not None:
            raise RuntimeError("A batch is half summed. Count norms before training, or after a batch's last piece.")
        ranks = self.loader.ranks
        counts = ranks.counts(np.bincount(np.searchsorted(edges, norms()), minlength=len(edges) + 1).astype(np.float64))
        self._made[self._run] += 1
        size = widened(self.budget.multiplier, counts.size, 2.0**-20)

        def noisy() -> FloatArray:
            white = counts / size
            add_exactly(white, self._rng)
            return on_lattice(white, size)

        return np.asarray(ranks.from_first(noisy))

    def _widened(self, share: float) -> float:
        """Return the multiplier of noise on its lattice, where the rule of clipping takes a share of the squared mu."""
        return widened(
            self.budget.multiplier / math.sqrt(1 - share), self._entries, self.perturb.room(self.loader.size)
        )

    def _source(self) -> bool:
        """Tell whether the recorded piece ends its batch; warn of examples that the Poisson loader did not draw.

        A model that nobody could verify is refused here: nothing that it computed was released.

        Sums hold pieces of one batch. What was summed of a batch whose last piece never came is forgotten: an example
        that is in two batches would count twice in one step. Examples of others' are a batch of their own.
        """
        examples = self.recorder.examples
        found = self.loader.account_for(examples)
        if found is None:
            warnings.warn(
                "This step is not on a batch of the private loader, for whose Poisson samples the guarantee is. "
                "Iterate over the loader that make_private returned: model, optimizer, loader = private.",
                PrivacyWarning,
                stacklevel=3,
            )
        elif examples > self.recorder.refused and not (self.recorder.verified or self.recorder.looks.known):
            raise RuntimeError(
                "The model was never seen with examples that could be told apart, so its gradients could not be "
                "verified. Call it with the tensors of the private loader's batch, examples along the first axis: not "
                "with nothing, nor with objects that hold them."
            )
        batch, complete = (None, True) if found is None else found
        if self._sums is not None and (batch is None or batch != self._summed):
            self._forget()
        self._summed = batch
        return complete

    def _forget(self) -> None:
        """Forget what pieces of a batch have added up to."""
        self._sums = None
        self.clip.forget()

    def recorded(self) -> tuple[dict[str, Part], float]:
        """Return the gradients of a backward pass and their scale, and forget them; refuse a loss that mixes examples.

        The scale is what they are multiplied with to be those of one example's own loss.
        """
        examples = self.recorder.examples
        self.recorder.notes.check(examples, self._loss_reduction)
        parts, scale = self.recorder.parts(), self._scale_of(examples)
        self.recorder.clear()  # parts hold what they need
        self.recorder.notes.finish()
        return parts, scale

    def _divisible(self) -> bool:
        """Tell whether noise and clipping take sums of one layer after the other, and nobody wants to see them all."""
        return (
            type(self.perturb) is GaussianPerturbation
            and type(self.clip).total is Clip.total
            and type(self.clip).learn is Clip.learn
            and self.watcher is None
            and self.loader.ranks.size == 1
        )

    def _most(self) -> int:
        """Return how many examples a batch has at most: more come once in 10^9 steps."""
        return min(self.loader.size, most(self.loader.expected_batch))

    def _few(self) -> int:
        """Return the most examples of a batch for which sums in single precision are asked for; 0 if for none."""
        expected, few = self.loader.expected_batch, self._most()
        worth = any(map(sums_quickly, self.recorder.layers.values())) and type(self.clip).totals is Clip.totals
        return few if worth and self._divisible() and expected <= self.loader.physical_batch else 0

    def _some_sums(self, parts: dict[str, Part], scale: float) -> Iterator[Sums]:
        """Yield the sums of a batch of one piece, of some layers at a time: in double precision they take much room.

        Only these are in single precision where that is quicker, and have room left for it.
        """
        some: Sums = {}
        for layer, entries in self.clip.totals(parts, scale, quick=True):
            some[layer] = entries
            if sum(value.numel() for own in some.values() for value in own.values()) >= _TOGETHER:
                yield some
                some = {}
        parts.clear()  # what they hold takes memory
        if some:
            yield some

    def _whole_sums(self) -> Iterator[Sums]:
        """Yield what the pieces of a batch have added up to, and forget it."""
        assert self._sums is not None
        sums, self._sums = self._sums, None
        yield sums

    def _collect(self, parts: dict[str, Part], scale: float, complete: bool) -> None:
        if self._sums is None:
            self._rule = () if complete else _in_force(self.clip)  # a batch of one piece has no time to change it in
        elif self._rule != _in_force(self.clip):
            self._forget()
            raise RuntimeError(
                "The rule of clipping was changed between two pieces of a batch, and noise follows one of them. No "
                "step was made. Change it when optimizer.stepped is true."
            )
        added = self.perturb.collect(self.clip, parts, scale)
        self._sums = added_up(self._sums, added)

    def _release(self, groups: Iterator[Sums]) -> None:
        share, expected = self.clip.share, self.loader.expected_batch
        multiplier = self._widened(share)
        ranks = self.loader.ranks
        noise = self.perturb.noise(self.clip, multiplier, expected)
        if isinstance(self.inner, AdamBC):
            self.inner.noise = noise
        for sums in groups:
            seen = None if self.watcher is None else copied(sums)
            released = ranks.released(
                sums, lambda whole: self.perturb.release(whole, self.clip, multiplier, expected, self._rng)
            )
            if self.watcher is not None and seen is not None:
                self.watcher.release(seen, released, multiplier)
            self.clip.learn(released, noise if math.isfinite(noise) else 0.0)
            sums.clear()
            for layer, name, parameter in self._trained:
                if layer in released:  # no two of them in both precisions at a time
                    parameter.grad = released[layer].pop(name).to(parameter)
        if share > 0:
            spread = self.budget.multiplier / math.sqrt(share)

            def ask(count: float, reach: float) -> float:
                whole = float(ranks.counts(np.array([count]))[0])
                return float(ranks.from_first(lambda: noisy_count(whole, reach, spread, self._rng)))

            self.clip.ask(expected, ask)

    def state_dict(self) -> dict[str, Any]:
        """Return the inner optimiser's state and what has been spent.

        The generators' states are in it only if the run was seeded: of a run with secret noise they would reveal what
        comes next, so that one goes on with fresh noise.
        """
        if self._sums is not None:
            raise RuntimeError("A batch is half summed. Save when its last piece has made a step (optimizer.stepped).")
        private = {
            "steps": self.steps,
            "made": dict(self._made),
            "terms": dict(self._terms),
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
        """Go on where a saved run stopped, with the budget that it had; steps that were made here count too."""
        private = state_dict.get("private")
        if private is None or "made" not in private:
            raise ValueError(
                "Expected the state of a private optimiser, which says what was spent; this one does not. Save "
                "optimizer.state_dict() of the optimiser that make_private returned."
            )
        mine = {
            "sampling_prob": self.budget.sampling_prob,
            "delta": self.budget.delta,
            "truth": self.budget.truth,
            **self._terms,
            "multiplier": self.budget.multiplier,
            "allowed": self.budget.steps,
        }
        for name, here in mine.items():
            saved = {**private, **private["terms"]}[name]
            if saved != here:
                raise ValueError(
                    f"The saved run had {name}={saved!r}, this one has {here!r}. Build it with the same data, batch "
                    "size, target, epochs, clip, loss_reduction and perturbation: the guarantee is for all its steps."
                )
        self.inner.load_state_dict(state_dict["inner"])
        for run, steps in private["made"].items():
            self._made[run] = max(int(steps), self._made.get(run, 0))
        self._forget()
        self.clip.restore(private["clip"])
        self.loader.position = int(private["position"])
        if self._seeded and "generators" in private:
            _restore(self._rng, private["generators"]["noise"])
            _restore(self.loader.rng, private["generators"]["sampling"])
            torch.set_rng_state(private["generators"]["torch"])


def _note_elsewhere(owner: weakref.ref[PrivateOptimizer], name: str, parameter: nn.Parameter) -> None:
    """Note that a weight has a gradient itself: its layer leaves none, so the loss uses the weight elsewhere too."""
    found = owner()
    if found is not None:
        found._elsewhere[name] = parameter


def _in_force(clip: Clip) -> tuple[Any, ...]:
    """Return all that bounds an example's gradient, to tell whether it was changed."""
    return _described(clip), clip.bound, clip.kept, clip.share, repr(clip.state())


def _described(rule: Any) -> str:
    """Return a rule's name and settings as text, in which a digest stands for each array."""
    settings = {field.name: getattr(rule, field.name) for field in fields(rule) if field.init}
    return f"{type(rule).__name__}({', '.join(f'{name}={_as_text(value)}' for name, value in settings.items())})"


def _as_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_as_text(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_as_text, value)) + ")"
    if isinstance(value, np.ndarray | torch.Tensor):
        numbers = np.ascontiguousarray(np.asarray(value, dtype=np.float64))
        return f"{numbers.shape} {hashlib.sha256(numbers.tobytes()).hexdigest()[:16]}"
    return repr(value)


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
