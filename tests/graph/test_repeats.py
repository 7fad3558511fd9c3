"""Blocks that a graph repeats: found by what they compute, run one by one, equal to the whole."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from torch_piecewise.graph.blocks import CannotRepeat, parts
from torch_piecewise.graph.pieces import Input
from torch_piecewise.graph.repeats import find
from torch_piecewise.graph.signature import canonical

from .rules import traced

WIDTH = 8


class Layer:
    """A block with weights of its own; `turned` is one whose first weight has other strides."""

    def __init__(self, steps, eps=1e-5, turned=False, dtype=torch.float64):
        self.steps, self.eps, self.dtype = steps, eps, dtype
        drawn = torch.randn(WIDTH, WIDTH, dtype=torch.float64) / WIDTH**0.5
        self.weights = [drawn.t().contiguous().t() if turned else drawn]
        self.weights += [torch.randn(WIDTH, WIDTH, dtype=torch.float64) / WIDTH**0.5] * (
            1 if steps["tied"] else 0
        )
        if not steps["tied"]:
            self.weights.append(torch.randn(WIDTH, WIDTH, dtype=torch.float64) / WIDTH**0.5)

    def __call__(self, x, table, weights):
        first, second = weights
        hidden = x.to(self.dtype)
        if self.steps["norm"]:
            hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.eps)
        else:
            hidden = hidden + self.eps
        hidden = (hidden @ first.to(self.dtype)).to(x.dtype)
        if self.steps["table"]:
            hidden = hidden * table[:, None].cos()
        side = torch.tanh(hidden) * 2
        act = F.silu if self.steps["act"] else torch.relu
        made = act(side) @ second
        return (x + made if self.steps["residual"] else made), side


def model(layers, collected=(), every=False):
    """A function of inputs and all weights: the stream, and what some layers have inside."""

    def run(x, table, *weights):
        x, more = torch.exp(x - 3), []
        table = torch.sin(table * 2)
        for k, layer in enumerate(layers):
            x, side = layer(x, table, weights[2 * k : 2 * k + 2])
            if every or k in collected:
                more.append(side * 3 if every else x)
        return (x.sum(-1), *more)

    args = [torch.randn(5, WIDTH, dtype=torch.float64), torch.rand(5, dtype=torch.float64)]
    return run, [*args, *(w for layer in layers for w in layer.weights)]


def steps(chosen: random.Random) -> dict[str, bool]:
    return {n: chosen.random() < 0.6 for n in ("norm", "table", "act", "residual", "tied")}


def in_parts(gm, made, args):
    """Run the parts one by one, each a module."""
    known = dict(zip((n for n in gm.graph.nodes if n.op == "placeholder"), args, strict=True))
    for part in made:
        assert all(isinstance(each, Input) for each in part.inputs)
        given = [known[each.node] for each in part.inputs]
        known.update(zip(part.results, part.module(*given), strict=True))
    (results,) = gm.graph.output_node().args
    return [known[r] for r in results]


def check(fn, args, least=3):
    """All parts together give what the function does: the numbers of blocks that are equal."""
    gm = traced(fn, args)
    found = find(gm.graph, least, 4)
    if found:
        made = parts(gm, found)
        torch.testing.assert_close(in_parts(gm, made, args), list(fn(*args)), rtol=0, atol=0)
        for kind, each in enumerate(found):
            own = [p for p in made if p.name.startswith(f"block_{kind}_")]
            assert len({id(p.module) for p in own}) == 1 and len(own) == len(each.blocks)
    return [len(each.blocks) for each in found]


@pytest.mark.parametrize("seed", range(30))
def test_drawn_models(seed):
    chosen = random.Random(seed)
    torch.manual_seed(seed)
    count, kind = chosen.randint(5, 8), steps(chosen)
    collected = [k for k in range(count) if chosen.random() < 0.5] if chosen.random() < 0.4 else []
    fn, args = model([Layer(kind) for _ in range(count)], collected, every=chosen.random() < 0.2)
    found = check(fn, args)
    assert sum(found) >= count - 1 - (len(collected) if 2 * len(collected) < count else 0)


PLAIN = {"norm": True, "table": True, "act": True, "residual": True, "tied": False}


@pytest.mark.parametrize(
    "odd",
    [{"eps": 1e-6}, {"turned": True}, {"dtype": torch.float32}, {"steps": {**PLAIN, "act": False}}],
    ids=["constant", "strides", "dtype", "operator"],
)
def test_a_layer_that_differs_is_not_shared(odd):
    layers = [Layer(**{"steps": PLAIN, **(odd if k == 5 else {})}) for k in range(10)]
    fn, args = model(layers)
    gm = traced(fn, args)
    (found,) = find(gm.graph, 3, 4)
    assert (
        7 <= len(found.blocks) <= 8
    )  # all but the first, the odd one, and one that it reaches into
    odd_weight = [n for n in gm.graph.nodes if n.op == "placeholder"][2 + 2 * 5]
    readers = {user for block in found.blocks for user in block.nodes}
    own = set(odd_weight.users) | {u for user in odd_weight.users for u in user.users}
    if "eps" in odd:  # the product itself is equal, what it reads is not
        norms = [n for n in gm.graph.nodes if n.args[1:] == (1e-6,)]
        assert norms and readers.isdisjoint(norms)
    elif "steps" not in odd:
        assert readers.isdisjoint(own)
    check(fn, args)


def test_gradients_of_weights_belong_to_their_blocks():
    layers = [Layer(PLAIN) for _ in range(8)]
    fn, args = model(layers)

    def gradients(*args):
        own = [a.detach().requires_grad_() for a in args]
        return torch.autograd.grad(fn(*own)[0].sum(), own[2:])

    gm = make_fx(gradients)(*args)
    fake = traced(gm, args)
    found = find(fake.graph, 3, 4)
    assert sum(len(each.blocks) for each in found) >= 12  # forward and backward, of 8 layers
    made = parts(fake, found)
    got = in_parts(fake, made, args)
    torch.testing.assert_close(got, list(gradients(*args)), rtol=0, atol=0)
    rest = {n for n in fake.graph.nodes if n.op == "call_function"}
    rest -= {n for each in found for block in each.blocks for n in block.nodes}
    products = [n for n in rest if n.target is torch.ops.aten.mm.default]
    assert len(products) <= 16  # of 48: the ends of both chains


def test_blocks_that_exchange_two_streams():
    weights = [torch.randn(WIDTH, WIDTH) for _ in range(24)]

    def fn(x, y, *weights):
        for k in range(12):
            x, y = torch.relu(x @ weights[2 * k]) + y, torch.tanh(y @ weights[2 * k + 1]) * x
        return x, y

    assert sum(check(fn, [torch.randn(5, WIDTH), torch.randn(5, WIDTH), *weights])) >= 4


def written(x, *weights):
    x.mul_(2)
    for w in weights:
        x = torch.relu(x.exp() @ w) * 2 + 1
    return (x,)


def drawing(x, *weights):
    for w in weights:
        x = torch.relu(x.exp() @ w) * 2 + 1
    return (x + torch.rand_like(x),)


@pytest.mark.parametrize(("fn", "code"), [(written, "mutation"), (drawing, "random")])
def test_what_can_not_run_in_parts_is_refused(fn, code):
    args = [torch.rand(5, WIDTH) / 10, *(torch.rand(WIDTH, WIDTH) / 10 for _ in range(6))]
    gm = traced(fn, args)
    found = find(gm.graph, 3, 4)
    assert found
    with pytest.raises(CannotRepeat) as error:
        parts(gm, found)
    assert error.value.code == code


def test_a_view_of_what_is_written_to_is_not_handed_on():
    def fn(x, *weights):
        seen = x.t()
        y = seen.t()
        for w in weights:
            y = torch.relu(y.exp() @ w) * 2 + 1
        z = seen * 2
        x.copy_(y)
        return (z, seen)

    args = [torch.rand(5, WIDTH) / 10, *(torch.rand(WIDTH, WIDTH) / 10 for _ in range(6))]
    gm = traced(fn, args)
    found = find(gm.graph, 3, 4)
    with pytest.raises(CannotRepeat, match="shares memory"):
        parts(gm, found)


def test_canonical_text_has_no_names_but_all_constants():
    x = torch.randn(3, 4)
    graphs = {
        "one": traced(lambda a: a * 2 + 1, (x,)),
        "same": traced(lambda other: (other * 2).add(1), (x,)),
        "constant": traced(lambda a: a * 2 + 1.5, (x,)),
        "kind of constant": traced(lambda a: a * 2.0 + 1, (x,)),
        "strides": traced(lambda a: a * 2 + 1, (x.t().contiguous().t(),)),
        "dtype": traced(lambda a: a * 2 + 1, (x.double(),)),
        "which": traced(lambda a: (a * 2) + a, (x,)),
    }
    for node in graphs["same"].graph.nodes:
        node.name = f"{node.name}_renamed"
    texts = {name: canonical(gm.graph) for name, gm in graphs.items()}
    assert texts.pop("same") == texts["one"]
    assert len(set(texts.values())) == len(texts)
