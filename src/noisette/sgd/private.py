"""From a training loop to a private one, in one call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from noisette import _random, _validate
from noisette._random import Rng
from noisette.certificates import Certificate, TrainingRun, certify
from noisette.guarantees import Claim, Guarantee, PrivacyWarning, warn_known_noise, warn_unsound
from noisette.sgd.budget import Budget
from noisette.sgd.clipping import CLIPS, L2, Clip
from noisette.sgd.noise.geodp import Geo
from noisette.sgd.noise.perturbation import GaussianPerturbation, Layered, Perturbation
from noisette.sgd.noise.tensor import TensorPerturbation
from noisette.sgd.optimizer import PrivateOptimizer
from noisette.sgd.recording._heap import keep_freed
from noisette.sgd.recording.gradients import Recorder
from noisette.sgd.recording.models import check_model, hooks_of
from noisette.sgd.recording.verification import check_batch, check_call, check_gradients
from noisette.sgd.sampling import PoissonLoader, renew_chance

PERTURBATIONS: dict[str, type[Perturbation]] = {
    "gaussian": GaussianPerturbation,
    "geodp": Geo,
    "layered": Layered,
    "tensor": TensorPerturbation,
}


@dataclass(frozen=True)
class Private:
    """A model, an optimiser and a loader that train privately together, and what they guarantee at the end."""

    model: nn.Module
    optimizer: PrivateOptimizer
    loader: PoissonLoader
    guarantee: Guarantee

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.optimizer, self.loader))

    def certificate(self) -> Certificate:
        """Return a certificate of all steps, which `noisette-verify` proves by Renyi divergences.

        Its epsilon is a little above that of `guarantee`, which privacy loss distributions tell.
        """
        budget = self.optimizer.budget
        if budget.steps is None:
            raise ValueError(
                "Expected a run whose number of steps is known. Give make_private the epochs that it may make."
            )
        run = TrainingRun(budget.multiplier * budget.truth, budget.sampling_prob, budget.steps, budget.delta)
        return certify(run)


def make_private(
    model: nn.Module,
    optimizer: Optimizer,
    loader: DataLoader[Any],
    *,
    target: tuple[float, float],
    epochs: int,
    clip: float | str | Clip = 1.0,
    perturb: str | Perturbation = "gaussian",
    physical_batch: int = 1024,
    advice_steps: int = 0,
    loss_reduction: Literal["mean", "sum"] = "mean",
    valid: Callable[[Any], Any] | None = None,
    rng: Rng = None,
) -> Private:
    """Return the model, an optimiser and a loader for which the usual loop trains under ``target`` = (epsilon, delta).

    ``clip`` is a norm, a name of `CLIPS` or a rule; ``perturb`` a name of `PERTURBATIONS` or a perturbation. The loader
    draws Poisson samples whose expected size is the old batch size, in pieces of at most ``physical_batch``. The
    budget is for all epochs and for ``advice_steps`` rounds of `advise_clip`. Recorded gradients of the model are
    verified against a loop over three examples, on a copy, here and when it is first called; ``loss_reduction`` says
    whether the loss is a mean over the examples or a sum, and a loss that is seen to be neither is refused.

    ``valid`` is a public rule of one example, as the data set returns it: ``lambda example: 0 <= example[1] < 10``. An
    example for which it is false, or raises, or which the data set cannot return, adds nothing, and nobody is told.

    Among the processes of torch.distributed all call this together, and make one run, of one sample and one budget.

    *Guarantee*: (epsilon, delta) of the whole run for one example, central model, relation add-remove, computed from
    privacy loss distributions of both directions. When its steps are made, `BudgetSpent` is raised. With ``rng=None``
    samples and noise come from a cryptographic generator. The noise on the sums is exact: they are rounded to a
    lattice, real normal noise is added there to the last bit, and what rounding costs is inside epsilon.

    Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang (2016), Algorithm 1.

    >>> import torch
    >>> data = torch.utils.data.TensorDataset(torch.randn(500, 4), torch.randn(500, 1))
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> loader = torch.utils.data.DataLoader(data, batch_size=50)
    >>> private = make_private(model, optimizer, loader, target=(2.0, 1e-5), epochs=1)
    >>> model, optimizer, loader = private
    >>> for inputs, targets in loader:
    ...     optimizer.zero_grad()
    ...     torch.nn.functional.mse_loss(model(inputs), targets).backward()
    ...     optimizer.step()
    >>> optimizer.steps, optimizer.guarantee.epsilon <= 2.0
    (10, True)
    >>> print(private.guarantee)
    (2, 1e-05)-DP, unit example, model central, relation add-remove
    """
    epochs = _validate.integer(epochs, "epochs", low=1)
    if isinstance(model, nn.parallel.DistributedDataParallel):
        model = model.module  # sums are exchanged here, not gradients
    if isinstance(model, nn.DataParallel):
        raise ValueError(f"Expected the model itself, got {type(model).__name__}: give model.module.")
    if "_orig_mod" in model._modules:
        raise ValueError(
            "Expected the model itself, got a compiled one, whose layers cannot be seen. Give the model that went into "
            "torch.compile (model._orig_mod), with an optimiser of its parameters."
        )
    seeded = rng is not None
    warn_known_noise(rng)
    noise = _random.generator(rng)
    sampling = _random.generator(None if rng is None else int(noise.integers(2**63)))
    private_loader = PoissonLoader.like(loader, physical_batch=physical_batch, valid=valid, rng=sampling)
    if not isinstance(target, Sequence) or len(target) != 2:
        raise ValueError(f"Expected target={target!r} to be a pair (epsilon, delta), e.g. (3.0, 1e-5).")
    epsilon, delta = target
    steps = epochs * private_loader.steps + _validate.integer(advice_steps, "advice_steps", low=0)
    noise_kind: Perturbation = _named(perturb, PERTURBATIONS, "perturb") if isinstance(perturb, str) else perturb
    private_loader.ranks.agree(
        {
            "examples": private_loader.size,
            "data": private_loader.digest(),
            "sampling_prob": private_loader.sampling_prob,
            "physical_batch": physical_batch,
            "target": (epsilon, delta),
            "epochs": epochs,
            "advice_steps": advice_steps,
            "clip": repr(clip),
            "perturb": repr(perturb),
            "loss_reduction": loss_reduction,
            "parameters": [tuple(value.shape) for value in model.parameters() if value.requires_grad],
        }
    )
    private_loader.ranks.alike(model)
    budget = Budget.for_target(epsilon, delta, steps=steps, sampling_prob=private_loader.sampling_prob)
    if delta >= 1 / private_loader.size:
        warnings.warn(
            f"delta={delta:g} is not below 1/{private_loader.size}, one over the number of examples: a run that "
            "publishes one of them whole would meet it. Choose a delta far below.",
            PrivacyWarning,
            stacklevel=2,
        )
    budget = replace(budget, truth=noise_kind.truth(private_loader.expected_batch))
    keep_freed()
    check_model(model)
    whole, shared, example, looks = check_gradients(model, private_loader)
    recorder = Recorder(model, whole)
    recorder.shared = shared
    recorder.whole_numbers, recorder.looks = example, looks
    recorder.guard(model)

    def look(given: tuple[Any, ...], named: dict[str, Any]) -> None:
        recorder.verified = check_call(model, given, named, private_loader.given, whole, shared, looks)

    hooks = hooks_of(model)

    def look_again(given: tuple[Any, ...], named: dict[str, Any]) -> None:
        nonlocal hooks
        now = hooks_of(model)
        if now != hooks:  # gradients pass through what nobody has looked at
            hooks, recorder.verified = now, False
        check_batch(model, given, named, recorder.given or 0, whole, looks, wide=recorder.notes.batches > 1)

    try:
        recorder.verified, recorder.verify = False, torch.compiler.disable(look)  # type: ignore[no-untyped-call]  # slow to trace
        recorder.look = torch.compiler.disable(look_again)  # type: ignore[no-untyped-call]
        private_loader.shown, recorder.renew = recorder.notes.begin, partial(renew_chance, noise, always=False)
        private_optimizer = PrivateOptimizer(
            optimizer,
            recorder,
            private_loader,
            budget,
            clip=_rule(clip),
            perturb=noise_kind,
            loss_reduction=loss_reduction,
            rng=noise,
            seeded=seeded,
        )
    except BaseException:
        recorder.remove()
        raise
    stated = Guarantee(epsilon, delta, unit="example", model="central", relation="add-remove")
    if private_optimizer.budget.truth < 1:
        claim = Claim(epsilon, delta, unit="example", source="duan2024benchmarking")
        stated = replace(private_optimizer.budget.spent(steps), claim=claim)
        warn_unsound("geodp", stated)
    return Private(model, private_optimizer, private_loader, stated)


def _rule(clip: float | str | Clip) -> Clip:
    if isinstance(clip, Clip):
        return clip
    return _named(clip, CLIPS, "clip") if isinstance(clip, str) else L2(clip)


def _named(name: str, known: dict[str, Any], argument: str) -> Any:
    if name not in known:
        raise ValueError(f"Unknown {argument}={name!r}; expected one of {', '.join(known)}.")
    return known[name]()
