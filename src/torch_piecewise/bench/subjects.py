"""A workload or a model, made ready to be measured: one function, its arguments, its step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torch_piecewise.bench import models, programs, workloads
from torch_piecewise.bench.seams import Tensors
from torch_piecewise.bench.settings import Settings, Task
from torch_piecewise.bench.workloads import Step

GPU_BATCH = 64  # times the batch of a model, at the scale of a GPU
# The models whose training step is measured too. Not rwkv: its loop over the tokens is unrolled,
# and the forward alone takes Inductor minutes to compile.
TRAINED = ("llama", "vit", "densenet121", "unet2d")


@dataclass(frozen=True)
class Subject:
    """`bind` turns `fn`, or a compiled form of it, into a step without arguments.

    `reference` is the variant whose result the others must give. It is eager mode for a workload.
    For a whole model, rounding adds up over the layers, so there it is plain Inductor.
    `bytes` is what a step must move at least, where that is known.
    """

    task: Task
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    bind: Callable[[Callable[..., Any]], Step]
    reference: str
    bytes: int | None = None

    @property
    def tensors(self) -> Tensors:
        return tuple(a for a in self.args if isinstance(a, Tensor))

    @property
    def explained(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """What to ask `explain` about: a model itself, so that its buffers are put back."""
        first = self.args[0]
        return (first, self.args[1:]) if isinstance(first, nn.Module) else (self.fn, self.args)


def tasks(settings: Settings) -> tuple[Task, ...]:
    """The subjects of the suite that `settings.only` asks for; see `is_meant`."""
    if settings.suite == "seams":
        every = [Task("seams", w.name, w.train) for w in workloads.WORKLOADS]
    elif settings.suite == "programs":
        every = [
            Task("programs", programs.name_of(k), programs.is_trained(k))
            for k in range(settings.count)
        ]
    else:
        every = [Task("models", m.name) for m in models.MODELS]
        every += [Task("models", name, train=True) for name in TRAINED]
    return tuple(t for t in every if any(is_meant(t.label, word) for word in settings.words))


def is_meant(label: str, word: str) -> bool:
    """Whether a word names a subject: by a part of its label, or as one of the "stencils"."""
    return word in label or (word == "stencils" and label in workloads.STENCILS)


def prepare(task: Task, settings: Settings) -> Subject:
    """Draws the arguments and weights; nothing is compiled yet."""
    if task.suite == "models":
        return _model(task, settings)
    if task.suite == "programs":
        return _workload(
            task, programs.workload(task.name, settings.seed, settings.scale), settings
        )
    return _workload(task, workloads.find(task.name), settings)


def _workload(task: Task, found: workloads.Workload, settings: Settings) -> Subject:
    args = found.inputs(settings.device, settings.torch_dtype, settings.scale)
    return Subject(
        task,
        found.fn,
        args,
        lambda fn: workloads.bind(found, fn, args),
        reference="eager",
        bytes=workloads.traffic(found, settings.torch_dtype, settings.scale),
    )


def call(module: nn.Module, *inputs: Tensor) -> Any:
    """The function that is compiled for a model: the variants share a module, not a code object."""
    return module(*inputs)


def _model(task: Task, settings: Settings) -> Subject:
    module, inputs = models.find(task.name).build(settings.device, settings.torch_dtype)
    if settings.scale == "gpu":
        inputs = tuple(x.repeat(GPU_BATCH, *[1] * (x.ndim - 1)) for x in inputs)
    args = (module.train(task.train), *inputs)
    bind = _training_step if task.train else _inference_step
    return Subject(task, call, args, lambda fn: bind(fn, args), reference="inductor")


def _inference_step(fn: Callable[..., Any], args: tuple[Any, ...]) -> Step:
    def infer() -> Tensors:
        with torch.no_grad():
            return (fn(*args),)

    return infer


def _training_step(fn: Callable[..., Any], args: tuple[Any, ...]) -> Step:
    """Forward, a loss, and the gradients of all weights; the weights stay as they are."""
    weights = [p for p in args[0].parameters() if p.requires_grad]

    def train() -> Tensors:
        output = fn(*args)
        loss = output.float().square().mean()
        gradients = torch.autograd.grad(loss, weights, allow_unused=True)
        return output.detach(), *(g for g in gradients if g is not None)

    return train
