"""Products of a linear layer by oneDNN, which torch has beside the library that it calls for them.

torch multiplies matrices of single precision by MKL, which uses half of the width of some processors' registers: there
a product takes twice as long as by oneDNN, whose loops are made for the processor at hand. Both add the same products
in single precision. Where oneDNN is not at hand, or a product is so small that the call is what takes time, torch's
own function is called.

A layer with few outputs of many numbers, as the last one of a classifier, is a loop of our own: oneDNN takes twice as
long, and memory as large as what enters. Whether it is used follows from the layer alone, and it computes an example's
outputs in one way, so that they have the same bits in a batch of any size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from noisette.mechanisms._compiled import compiled
from noisette.mechanisms._team import Loop, in_parts
from noisette.sgd.recording import _rows

_LARGE = 1 << 19  # multiplications from which oneDNN is the quicker one
_MOST_OUTPUTS = 16  # outputs up to which the loop here is the quicker one
_LEAST_WEIGHTS = 1 << 12  # weights from which it is, for sixteen examples and more


def _fill_few(entered: Any, weight: Any, bias: Any, out: Any, low: int, high: int) -> None:
    """Fill the outputs of some examples, two of them at a time.

    Each number is computed in one way, whoever is beside its example: the last one of an odd number has its
    predecessor beside it once more, or itself.
    """
    zero = np.float32(0.0)
    for start in range(low, high, 2):
        other = min(start + 1, high - 1)
        place = max(min(start, high - 2), low)
        x, y = entered[place], entered[other]
        for first in range(0, weight.shape[0] // 5 * 5, 5):
            a, b, c = weight[first], weight[first + 1], weight[first + 2]
            d, e = weight[first + 3], weight[first + 4]
            f, g, h, i, j = zero, zero, zero, zero, zero
            p, q, r, s, t = zero, zero, zero, zero, zero
            for column in range(x.size):
                one, two = x[column], y[column]
                f += one * a[column]
                g += one * b[column]
                h += one * c[column]
                i += one * d[column]
                j += one * e[column]
                p += two * a[column]
                q += two * b[column]
                r += two * c[column]
                s += two * d[column]
                t += two * e[column]
            for step, (left, right) in enumerate(((f, p), (g, q), (h, r), (i, s), (j, t))):
                out[place, first + step] = left + bias[first + step]
                out[other, first + step] = right + bias[first + step]
        for single in range(weight.shape[0] // 5 * 5, weight.shape[0]):
            a, f, p = weight[single], zero, zero
            for column in range(x.size):
                f += x[column] * a[column]
                p += y[column] * a[column]
            out[place, single] = f + bias[single]
            out[other, single] = p + bias[single]


_few = compiled(_fill_few, fastmath={"reassoc", "contract"})
_filling = Loop(_few, compiled(lambda given, team: in_parts(_few, given, team)))


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
    made: Tensor
    if (
        entered.ndim == 2
        and len(weight) <= _MOST_OUTPUTS
        and weight.numel() >= _LEAST_WEIGHTS
        and _fit(entered, weight, bias)
    ):
        made = entered.new_empty(len(entered), len(weight))
        shift = entered.new_zeros(len(weight)) if bias is None else bias
        arrays = (tensor.detach().numpy() for tensor in (entered, weight, shift, made))
        _rows.shared(_filling, *arrays, places=len(made), size=entered.numel(), least=2)
        return made
    large = entered.numel() * len(weight) >= _LARGE
    if large and _call is not None and entered.dtype == torch.float32 and _backend.enabled:
        made = _call(entered, weight, bias, "none", [], "")
        return made
    return functional.linear(entered, weight, bias)


def _fit(*tensors: Tensor | None) -> bool:
    """Tell whether the loop takes these: numbers of single precision, one row behind the other."""
    return all(t is None or (t.is_cpu and t.dtype == torch.float32 and t.is_contiguous()) for t in tensors)


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
