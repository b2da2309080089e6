"""Which models can be trained privately: every example on its own."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator

import torch
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

_MIXING = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_GROUPS = 32
_HOOKS: dict[type, str] = {WeightNorm: "remove_weight_norm", SpectralNorm: "remove_spectral_norm"}


def trained_layers(model: nn.Module, whole: Collection[str] = ()) -> Iterator[tuple[str, nn.Module, bool]]:
    """Yield the layers that own parameters to train, with their names; and modules that are taken whole, marked so."""
    above: list[str] = []
    for name, layer in model.named_modules():
        if any(name.startswith(f"{top}.") or not top for top in above):
            continue
        if name in whole and any(parameter.requires_grad for parameter in layer.parameters()):
            above.append(name)
            yield name, layer, True
        elif any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
            yield name, layer, False


def needs_whole(model: nn.Module) -> Iterator[str]:
    """Yield the names of modules that are known to use weights of the layers inside of them, past these layers."""
    for name, layer in model.named_modules():
        if isinstance(layer, nn.MultiheadAttention) or is_parametrized(layer):
            yield name


def calling_parent(model: nn.Module, name: str) -> str | None:
    """Return the name of the nearest module above one that has a forward pass, None where there is none."""
    while name:
        name = name.rpartition(".")[0]
        if type(model.get_submodule(name)).forward is not nn.Module.forward:
            return name
    return None


def hooks_of(model: nn.Module) -> list[tuple[int, ...]]:
    """Return the numbers of all hooks in a model, of which no two in a process are the same."""
    names = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
    return [tuple(getattr(layer, name)) for layer in model.modules() for name in names]


def check_model(model: nn.Module) -> None:
    """Refuse a model in which one example's gradient depends on others."""
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
        if (
            isinstance(layer, nn.Embedding | nn.EmbeddingBag)
            and layer.weight.requires_grad
            and layer.scale_grad_by_freq
        ):
            raise ValueError(
                f"Layer {name!r} divides gradients by how often a word is in the batch, so no gradient is one "
                "example's own. Build it with scale_grad_by_freq=False."
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
            raise ValueError(
                f"Layer {name!r} shortens the rows that a batch looks up, in place, and no noise protects that. "
                "Build it with max_norm=None."
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.weight.requires_grad and layer.sparse:
            raise ValueError(
                f"Layer {name!r} has sparse gradients, which leave out the words that no example has; with noise, "
                "every word has one. Build it with sparse=False."
            )
        if isinstance(layer, torch.jit.ScriptModule):
            raise ValueError(
                f"Layer {name!r} was made by torch.jit.script or trace, which hide its layers. Give make_private the "
                "model from before; afterwards torch.compile(private.model) works."
            )
        for hook in layer._forward_pre_hooks.values():
            if type(hook) in _HOOKS:
                raise ValueError(
                    f"Layer {name!r} computes its weight in a hook of {type(hook).__module__}, before each call and "
                    f"outside of the layer. Take it off by torch.nn.utils.{_HOOKS[type(hook)]}, and put "
                    "torch.nn.utils.parametrizations.weight_norm in its place."
                )
            if isinstance(hook, prune.BasePruningMethod):
                raise ValueError(
                    f"Layer {name!r} computes its {hook._tensor_name} in a hook of torch.nn.utils.prune, before each "
                    "call and outside of the layer. Make it permanent by torch.nn.utils.prune.remove, and keep entries "
                    "at zero by a parametrization that multiplies with the mask."
                )
        for own, parameter in layer.named_parameters(recurse=False):
            if parameter.requires_grad and parameter.is_complex():
                raise ValueError(
                    f"Parameter {f'{name}.{own}'.strip('.')!r} is complex, and noise is for real numbers. Keep its "
                    "real part and its imaginary part as two parameters, and join them by torch.complex where used."
                )
        if isinstance(layer, nn.RNNBase):
            raise ValueError(
                f"Layer {name!r} is {type(layer).__name__}, whose kernels show no gradient of an example. "
                "Replace it, e.g. model = noisette.sgd.with_open_recurrence(model)."
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("Expected a model with parameters to train; it has none. Set requires_grad_(True) on some.")


def without_batch_norm(model: nn.Module) -> nn.Module:
    """Return a copy of a model with group normalisation in place of batch normalisation.

    There are at most 32 groups, of two channels or more: a value that is normalised alone becomes 0. Features without
    positions are normalised all together.

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
    most = 1 if isinstance(layer, nn.BatchNorm1d) else max(min(_GROUPS, channels // 2), 1)
    groups = max(count for count in range(1, most + 1) if channels % count == 0)
    return nn.GroupNorm(groups, channels, eps=layer.eps, affine=layer.affine)
