"""Products of a linear layer by oneDNN, which torch has beside the library that it calls for them.

torch multiplies matrices of single precision by MKL, which uses half of the width of some processors' registers: there
a product takes twice as long as by oneDNN, whose loops are made for the processor at hand. Both add the same products
in single precision. Where oneDNN is not at hand, or a product is so small that the call is what takes time, torch's
own function is called.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_LARGE = 1 << 19  # multiplications from which oneDNN is the quicker one


def _found() -> Any:
    """Return the function of torch that calls oneDNN, None where there is none."""
    try:
        made = torch.ops.mkldnn._linear_pointwise.default
        ones = torch.ones(2, 2)
        right = bool((made(ones, ones.T, ones[0], "none", [], "") == 3.0).all())
    except Exception:  # an earlier or a later torch, or one without oneDNN
        return None
    return made if right else None


_call = _found()
_backend: Any = torch.backends.mkldnn


def linear(entered: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return what a linear layer makes of its input; no gradient is recorded."""
    large = entered.numel() * len(weight) >= _LARGE
    if large and _call is not None and entered.dtype == torch.float32 and _backend.enabled:
        made: Tensor = _call(entered, weight, bias, "none", [], "")
        return made
    return functional.linear(entered, weight, bias)


def takes(entered: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Tell whether `linear` does what the layer would: on the processor, in one precision that nothing else chooses."""
    return (
        type(entered) is Tensor
        and entered.is_cpu
        and weight.is_cpu
        and entered.dtype == weight.dtype
        and (bias is None or bias.dtype == weight.dtype)
        and entered.shape[-1] == weight.shape[-1]
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )
