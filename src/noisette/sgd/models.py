"""Which models can be trained privately: every example on its own, every weight in one place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

_MIXING = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_GROUPS = 32


def trained_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers that own parameters to train, with their names."""
    for name, layer in model.named_modules():
        if any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
            yield name, layer


def check_model(model: nn.Module) -> None:
    """Refuse a model in which one example's gradient depends on others, or has no single place."""
    for name, layer in model.named_modules():
        if isinstance(layer, _MIXING):
            raise ValueError(
                f"Layer {name!r} is {type(layer).__name__}: it mixes the examples of a batch, so no gradient is one "
                "example's own. Replace it, e.g. model = noisette.sgd.without_batch_norm(model)."
            )
        if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
            raise ValueError(
                f"Layer {name!r} keeps running statistics of the data, which no noise protects. "
                "Build it with track_running_stats=False."
            )
        if isinstance(layer, nn.RNNBase):
            raise ValueError(
                f"Layer {name!r} is {type(layer).__name__}, whose kernels show no gradient of an example. "
                "Replace it, e.g. model = noisette.sgd.with_open_recurrence(model)."
            )
    owners: dict[int, str] = {}
    for name, layer in trained_layers(model):
        for own, parameter in layer.named_parameters(recurse=False):
            if id(parameter) in owners:
                raise ValueError(
                    f"Parameter {own!r} of layer {name!r} is that of {owners[id(parameter)]!r} too. "
                    "Share the layer itself, not its parameter, or give each its own."
                )
            owners[id(parameter)] = name
    if not owners:
        raise ValueError("Expected a model with parameters to train; it has none. Set requires_grad_(True) on some.")


def without_batch_norm(model: nn.Module) -> nn.Module:
    """Return a copy of a model with group normalisation in place of batch normalisation.

    Each group has at least one channel and there are at most 32 of them.

    >>> print(without_batch_norm(nn.Sequential(nn.BatchNorm2d(48)))[0])
    GroupNorm(24, 48, ...)
    """
    model = copy.deepcopy(model)
    if isinstance(model, _MIXING):
        return _grouped(model)
    for _, parent in list(model.named_modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, _MIXING):
                setattr(parent, name, _grouped(child))
    return model


def _grouped(layer: nn.modules.batchnorm._BatchNorm) -> nn.GroupNorm:
    channels = layer.num_features
    groups = max(count for count in range(1, min(_GROUPS, channels) + 1) if channels % count == 0)
    return nn.GroupNorm(groups, channels, eps=layer.eps, affine=layer.affine)


def check_examples_apart(model: nn.Module, loader: Any) -> None:
    """Refuse a model whose answer about one example changes with another: try it on two."""
    if loader.size < 2:
        return
    batch = loader.fetch([0, 1])
    inputs = batch[0] if isinstance(batch, list | tuple) else batch
    if not isinstance(inputs, Tensor):
        return
    changed = torch.stack([inputs[0], torch.zeros_like(inputs[1])])
    state = torch.get_rng_state()
    answers = []
    for tried in (inputs, changed):
        torch.set_rng_state(state)  # the same dropout
        with torch.no_grad():
            answers.append(model(tried))
    torch.set_rng_state(state)
    first, second = (answer[0] if isinstance(answer, tuple) else answer for answer in answers)
    if (
        isinstance(first, Tensor)
        and first.shape[:1] == inputs.shape[:1]
        and not torch.allclose(first[0], second[0], rtol=1e-3, atol=1e-5, equal_nan=True)
    ):
        raise ValueError(
            "The model's answer about one example changed when another example did: a layer mixes the examples of a "
            "batch, so no gradient is one example's own. Take that layer out, or let it work on each example."
        )
