"""Memory that an entry keeps from call to call, where nobody else holds it.

A fresh buffer of some megabytes costs more in page faults than the arithmetic that fills it. A
buffer is given out again only when no tensor but the pool's own holds its storage: what was
returned, what a view of that shares, and what a pending backward has saved stay as they are.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

MOST_KEPT = 4  # buffers of one form; more are in use at once only where calls overlap
LEAST = 1 << 16  # bytes, below which asking for memory costs less than looking for it


@dataclass(frozen=True)
class Held:
    """A buffer of the pool's, and where its memory was when it was made."""

    tensor: Tensor
    place: int

    @property
    def is_ours(self) -> bool:
        """Whether the memory is still that, and no other process has it too."""
        storage = self.tensor.untyped_storage()
        same = storage.data_ptr() == self.place and storage.nbytes() >= self.tensor.nbytes
        return same and not storage.is_shared()


@dataclass
class Pool:
    """The buffers of one entry; safe to use in several threads at once."""

    kept: dict[object, list[Held]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def empty(
        self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """An uninitialised tensor, in memory that no other tensor shares."""
        key = (tuple(shape), tuple(stride), dtype, device)
        with self.lock:
            kept = self.kept.setdefault(key, [])
            kept[:] = [held for held in kept if held.is_ours]
            for held in kept:
                if _holders(held.tensor) == ALONE:
                    return held.tensor.detach()
            made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
            if device.type == "cpu" and len(kept) < MOST_KEPT and made.nbytes >= LEAST:
                kept.append(Held(made, made.untyped_storage().data_ptr()))
                return made.detach()
            return made


def _holders(tensor: Tensor) -> int:
    """Counts the tensors that hold the memory of one, and the names that its storage has."""
    storage = tensor.untyped_storage()
    return int(torch._C._storage_Use_Count(storage._cdata)) + sys.getrefcount(storage)


def _alone() -> int:
    made = torch.empty(1)
    return _holders(made)


ALONE = _alone()  # what that is where nobody else holds the memory
