"""Compile with the piecewise backend and with plain Inductor, and compare the results.

Against plain Inductor the shape, dtype, strides and aliasing are always equal, and the bits are
where the arithmetic is elementwise. Against eager the values are within the dtype's tolerance.
"""

import contextlib
import subprocess
import sys
import threading
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree

from torch_piecewise.config import OWN

BACKEND = "piecewise"
SPLITS = ("auto", "seams")
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.uint8, torch.bool)
# eager rounds after every operation, Inductor at the end of a nest; atomic adds come in any order
TOLERANCE = {
    torch.bfloat16: (5e-2, 5e-2),
    torch.float16: (1e-2, 1e-2),
    torch.float32: (1e-4, 1e-4),
}


def compiled(fn, split="auto", backend=None, options=None, **kwargs):
    """torch.compile with the backend under test, or with the one named."""
    if backend == "inductor":
        options = {k: v for k, v in (options or {}).items() if k not in OWN}
    else:
        options = {"split": split, **(options or {})}
    return torch.compile(fn, backend=backend or BACKEND, options=options, **kwargs)


def plain(fn, options=None, **kwargs):
    return compiled(fn, backend="inductor", options=options, **kwargs)


def seeded(fn, *args, **kwargs):
    """Run from a fixed seed, so that random numbers can be compared."""
    torch.manual_seed(7)
    return fn(*args, **kwargs)


def clone(tree):
    """A deep copy that keeps strides, requires_grad and which tensors share memory."""
    memo, storages = {}, {}

    def one(t):
        if not isinstance(t, torch.Tensor):
            return t
        if id(t) not in memo:
            key = t.untyped_storage()._cdata
            storage = storages.setdefault(key, t.untyped_storage().clone())
            new = torch.empty(0, dtype=t.dtype).set_(
                storage, t.storage_offset(), t.size(), t.stride()
            )
            memo[id(t)] = new.requires_grad_(t.requires_grad)
        return memo[id(t)]

    return pytree.tree_map(one, tree)


def bits(t):
    """Integers that are equal where the values are the same, NaNs and zeros' signs included."""
    t = t.detach().resolve_conj().resolve_neg().contiguous()
    if t.is_complex():
        t = torch.view_as_real(t).contiguous()
    if not t.is_floating_point():
        return t
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    return torch.where(t.isnan(), torch.tensor(-1, dtype=whole), t.view(whole))


def _facts(t):
    if not isinstance(t, torch.Tensor):
        return type(t), t
    return t.shape, t.dtype, t.stride(), t.storage_offset(), t.requires_grad, t.is_conj()


def _aliases(tree):
    """For every tensor, the first one of the tree that shares its memory."""
    tensors = [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor) and t.numel()]
    keys = [t.untyped_storage().data_ptr() for t in tensors]
    return [keys.index(key) for key in keys]


def assert_same(got, expected, exact=True, what="", inputs=((), ())):
    """As plain Inductor has it: facts and aliasing always, bits where `exact`."""
    a, spec_a = pytree.tree_flatten(got)
    b, spec_b = pytree.tree_flatten(expected)
    assert spec_a == spec_b, what
    assert _aliases((inputs[0], got)) == _aliases((inputs[1], expected)), f"{what}: aliasing"
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        assert _facts(x) == _facts(y), f"{what}[{i}]: {_facts(x)} is not {_facts(y)}"
        if not isinstance(x, torch.Tensor):
            continue
        if exact:
            wrong = bits(x) != bits(y)
            assert not wrong.any(), _differences(f"{what}[{i}]", wrong, x, y)
        else:
            _close(x, y, what)


def _differences(what, wrong, x, y):
    first = tuple(wrong.nonzero()[0].tolist())[: x.dim()]
    return f"{what}: {int(wrong.sum())} differ, first at {first}: {x[first]} is not {y[first]}"


def assert_near(got, expected, what=""):
    """As eager has it, within the dtype's tolerance."""
    a, b = pytree.tree_leaves(got), pytree.tree_leaves(expected)
    assert len(a) == len(b), what
    for x, y in zip(a, b, strict=True):
        if not isinstance(y, torch.Tensor):
            assert type(x) is type(y) and x == y, what
            continue
        _close(x, y, what)


def _close(x, y, what):
    rtol, atol = TOLERANCE.get(y.dtype, (None, None))
    torch.testing.assert_close(
        x, y, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


@dataclass
class Runs:
    """One function, compiled by plain Inductor and by the backend once for each split mode."""

    fn: object
    exact: bool = True
    splits: tuple = ("seams",)
    eager: bool = True

    def __call__(self, *args, options=None, context=contextlib.nullcontext, **kwargs):
        """Run all on copies of `args` and compare results and what became of the arguments."""
        torch._dynamo.reset()
        variants = {"plain": plain(self.fn, options=options, **kwargs)}
        for split in self.splits:
            variants[split] = compiled(self.fn, split, options=options, **kwargs)
        self.check(variants, args, context)
        return variants

    def check(self, variants, args, context=contextlib.nullcontext):
        """Run already compiled variants on other arguments."""
        results = {}
        for name, fn in {"eager": self.fn, **variants}.items():
            if name == "eager" and not self.eager:
                continue
            mine = clone(args)
            with context():
                results[name] = (seeded(fn, *mine), mine)
        out, inputs = results.pop("plain")
        reference = results.pop("eager", None)
        for name, (got, mine) in results.items():
            assert_same(got, out, self.exact, name, inputs=(mine, inputs))
            assert_same(mine, inputs, self.exact, f"{name}: arguments")
            if reference is not None and not plains_own((got, mine), (out, inputs), reference):
                assert_near((got, mine), reference, f"{name} against eager")


def plains_own(got, plain, reference):
    """Whether plain Inductor differs from eager mode, and the result is the same as plain's.

    A sum of halves in one order, for one: what order that is depends on the number of threads.
    """
    try:
        assert_near(plain, reference)
    except AssertionError:
        a, b = pytree.tree_leaves(got), pytree.tree_leaves(plain)
        return all(torch.equal(x, y) for x, y in zip(a, b, strict=True) if torch.is_tensor(x))
    return False


def same_as_plain(fn, *args, exact=True, splits=("seams",), eager=True, **kwargs):
    """Compile `fn` and compare; the shortest way to write a case."""
    return Runs(fn, exact, splits, eager)(*args, **kwargs)


STARTED = """
import sys, torch
torch.set_num_threads(1)
options = {"split": "seams"} if sys.argv[1] == "piecewise" else {}
compiled = lambda fn: torch.compile(fn, backend=sys.argv[1], options=options)
"""


def raises_as_plain(code, message):
    """`code`, with `compiled`, prints "so far fine" and then raises with `message`, as plain does.

    In a process of its own: an exception that leaves a parallel region, even one of a single
    thread, ends the process. On some machines every exception of generated code does.
    """
    ends = []
    for backend in ("inductor", BACKEND):
        command = [sys.executable, "-c", STARTED + code, backend]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.stdout == "so far fine\n", ended.stderr
        ends.append((ended.returncode, message in ended.stderr))
    assert ends[0] == ends[1], ends
    assert ends[0][1] or ends[0][0] < 0, "no exception, and no end by a signal"


def run_all(tasks):
    """Start all at the same time; raise the first error."""
    barrier, errors = threading.Barrier(len(tasks)), []

    def guarded(task):
        try:
            barrier.wait()
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
