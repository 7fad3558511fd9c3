"""Memory that an entry keeps from call to call, where nobody else holds it.

A fresh buffer of some megabytes costs more in page faults than the arithmetic that fills it. Memory
is given out again only when no tensor holds it: what was returned, what a view of that shares, and
what a pending backward has saved stay as they are.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, UntypedStorage

MOST_KEPT = 4  # of one size; more are in use at once only where calls overlap
LEAST = 1 << 16  # bytes, below which asking for memory costs less than looking for it


@dataclass(frozen=True)
class Held:
    """Memory of the pool's, and where it was when it was made."""

    storage: UntypedStorage
    place: int
    bytes: int

    @property
    def is_ours(self) -> bool:
        """Whether the memory is still that, and no other process has it too."""
        same = self.storage.data_ptr() == self.place and self.storage.nbytes() >= self.bytes
        return same and not self.storage.is_shared()


@dataclass
class Pool:
    """The memory of one entry; safe to use in several threads at once.

    Within a call, what is dead already is given out again to buffers of as many bytes.
    """

    kept: dict[int, list[Held]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def empty(
        self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """An uninitialised tensor, in memory that no other tensor shares."""
        size = extent(shape, stride) * dtype.itemsize
        if device.type != "cpu" or size < LEAST:
            return torch.empty_strided(shape, stride, dtype=dtype, device=device)
        with self.lock:
            kept = self.kept.setdefault(size, [])
            kept[:] = [held for held in kept if held.is_ours]
            for held in kept:
                if _holders(held) == ALONE:
                    return torch.empty(0, dtype=dtype).set_(held.storage, 0, shape, stride)  # type: ignore[call-overload, no-any-return]
            made = torch.empty_strided(shape, stride, dtype=dtype)
            if len(kept) < MOST_KEPT:
                storage = made.untyped_storage()
                kept.append(Held(storage, storage.data_ptr(), size))
            return made


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements of memory a tensor reaches over."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def _holders(held: Held) -> int:
    """Counts the tensors that hold some memory, and the names that its storage has.

    One of these names is here, since how many a call adds changes as Python warms up.
    """
    storage = held.storage
    return int(torch._C._storage_Use_Count(storage._cdata)) + sys.getrefcount(storage)


# what that is where nobody else holds the memory; no tensor: those being traced have none
ALONE = _holders(Held(UntypedStorage(1), 0, 1))
