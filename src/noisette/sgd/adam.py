"""Adam with the variance of the noise taken off its second moments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from noisette import _validate


class AdamBC(Optimizer):
    """Adam with the variance of the noise taken off the second moment.

    With g the private gradient, whose entries have noise of deviation s: m and v are the usual running means of g and
    g^2, p that of s^2, each divided by 1 - beta^t, and the step is lr m / sqrt(max(v - p, floor)). `PrivateOptimizer`
    tells s, which is public, before each step; so the correction costs nothing.

    Tang, Shpilevskiy, Lecuyer (2024).

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> optimizer = AdamBC([weight], lr=0.1)
    >>> weight.grad = torch.tensor([3.0, 0.0])
    >>> optimizer.noise = 1.0
    >>> optimizer.step()
    >>> [round(value, 3) for value in weight.tolist()]  # -0.1 x 3 / sqrt(9 - 1)
    [-0.106, 0.0]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        floor: float = 1e-8,
    ) -> None:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"Expected betas={betas!r} in [0, 1).")
        floor = _validate.positive(floor, "floor")
        self.noise: float = 0.0
        super().__init__(params, {"lr": lr, "betas": betas, "floor": floor})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move the parameters by one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)
        return loss

    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        (first, second), state = group["betas"], self.state[parameter]
        if not state:
            zeros = torch.zeros_like(parameter)
            state.update(step=0, mean=zeros, square=zeros.clone(), noise=0.0)
        state["step"] += 1
        state["mean"].lerp_(parameter.grad, 1 - first)
        state["square"].mul_(second).addcmul_(parameter.grad, parameter.grad, value=1 - second)
        state["noise"] = second * state["noise"] + (1 - second) * self.noise**2
        short, long = 1 - first ** state["step"], 1 - second ** state["step"]
        spread = ((state["square"] - state["noise"]) / long).clamp(min=group["floor"]).sqrt_()
        parameter.addcdiv_(state["mean"], spread, value=-group["lr"] / short)
