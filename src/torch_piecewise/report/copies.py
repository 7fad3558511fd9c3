"""Copies of arguments, and a module's buffers put back: a trial run leaves no trace.

A copy is laid out as its original: strides, offset, and which tensors share memory, since all of
that decides what is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map


def copied(tree: Any) -> Any:
    """The tree with copies of its tensors; parameters and all that is no tensor stay themselves."""
    copies = _Copies()

    def one(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, torch.nn.Parameter):
            return copies.of(leaf)
        return leaf

    with torch.enable_grad():  # what requires a gradient does so wherever it is copied
        return tree_map(one, tree)


class _Copies:
    """Copies made so far, of tensors and of their memory, so that what was shared stays shared."""

    def __init__(self) -> None:
        self.tensors: dict[torch.Tensor, torch.Tensor] = {}  # compared by identity
        self.storages: dict[int, torch.UntypedStorage] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor not in self.tensors:
            copy = self._made(tensor)
            for name, value in vars(tensor).items():  # such as the marks of mark_dynamic
                vars(copy).setdefault(name, value)  # a subclass has its own: the inner tensors
            self.tensors[tensor] = copy
        return self.tensors[tensor]

    def _made(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_meta:
            return tensor  # it has no values to keep
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_quantized
        if not plain or tensor.layout != torch.strided:
            return _with_grad(tensor, tensor.detach().clone())
        base = tensor._base
        if base is not None and base.dtype == tensor.dtype:
            return _view(tensor, self.of(base))
        return _with_grad(tensor, _marked(tensor, self._set(tensor)))

    def _set(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.storages:
            self.storages[key] = storage.clone()
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        layout = (tensor.storage_offset(), tensor.size(), tensor.stride())
        return empty.set_(self.storages[key], *layout)  # type: ignore[call-overload]


def _marked(tensor: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
    """With the marks that stand for a conjugation or negation still to be done."""
    if tensor.is_conj() != copy.is_conj():
        copy = copy.conj()
    if tensor.is_neg() != copy.is_neg():
        copy = torch._neg_view(copy)
    return copy


def _view(tensor: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """A copy that is a view for autograd too, as its original is of the original of `base`."""
    if base.requires_grad and not tensor.requires_grad:
        base = base.detach()
    view = base.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
    view = _marked(tensor, view)
    return view if view.requires_grad else view.requires_grad_(tensor.requires_grad)


def _with_grad(tensor: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
    """Let the copy require a gradient as its original does, as a leaf or as a result."""
    if tensor.requires_grad and not tensor.is_leaf:
        copy = _Result.apply(torch.empty(0, requires_grad=True), copy)  # type: ignore[no-untyped-call]
        return copy
    return copy.requires_grad_(tensor.requires_grad)


class _Result(torch.autograd.Function):
    """Makes a tensor the result of something, in place: unlike a leaf it may be written to."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[None, None]:
        return None, None


@contextmanager
def buffers_kept(fn: Any) -> Iterator[None]:
    """Puts buffers back, of a module or of that behind a method: the same tensors and values."""
    owner = getattr(fn, "__self__", fn)
    modules = list(owner.modules()) if isinstance(owner, torch.nn.Module) else []
    saved = [dict(module._buffers) for module in modules]
    buffers = {b for own in saved for b in own.values() if b is not None}
    values = [(buffer, buffer.detach().clone()) for buffer in buffers]
    try:
        yield
    finally:
        for module, own in zip(modules, saved, strict=True):
            module._buffers.clear()
            module._buffers.update(own)
        with torch.no_grad():
            for buffer, value in values:
                buffer.copy_(value)
