"""Real models with random weights, small enough for two CPU cores.

    module, inputs = find("llama").build()  # or build("cuda", torch.bfloat16)
    with torch.no_grad():
        output = module(*inputs)  # one tensor

Each is the published architecture with fewer or narrower layers: at most 0.6 s a forward. Packages
are imported when a model is built; MissingPackage says which one is absent.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torch_piecewise.bench.seams import Tensors

Made = tuple[nn.Module, Tensors]


@dataclass(frozen=True)
class Model:
    """`build(device="cpu", dtype=torch.float32)` gives the module in eval mode and its inputs.

    `package` must be installed for that.
    """

    name: str
    package: str
    build: Callable[..., Made]
    note: str


class MissingPackage(ImportError):
    """A model was asked for whose package is not installed."""


def find(name: str) -> Model:
    """The model of this name; KeyError where there is none."""
    for each in MODELS:
        if each.name == name:
            return each
    raise KeyError(f"no model is called {name!r}")


def _need(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"this model needs {module}, and importing that failed for want of the "
            f"package '{error.name}': install it (pip install {error.name}) or skip the model"
        ) from error


class _OneTensor(nn.Module):
    """A model that answers with a record, made to return one tensor of it."""

    def __init__(self, model: nn.Module, field: str) -> None:
        super().__init__()
        self.model = model
        self.field = field

    def forward(self, *inputs: Tensor) -> Any:
        return getattr(self.model(*inputs), self.field)


def _model(name: str, library: str, make: Callable[[Any], Made], note: str) -> Model:
    """A Model whose build seeds the weights and inputs that `make` draws.

    `make` takes the imported library and returns the module and its inputs.
    """

    def build(device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Made:
        imported = _need(library)
        with torch.random.fork_rng(devices=[]):  # leaves the caller's seed alone
            torch.manual_seed(0)
            module, inputs = make(imported)
        module = module.to(device, dtype).eval()
        placed = (x.to(device, dtype if x.is_floating_point() else None) for x in inputs)
        return module, tuple(placed)

    return Model(name, library.split(".")[0], build, note)


VOCABULARY = 2048


def _tokens(batch: int, length: int) -> Tensor:
    return torch.randint(VOCABULARY, (batch, length))


# the decoder models share one size
DECODER = dict(
    vocab_size=VOCABULARY,
    hidden_size=512,
    num_hidden_layers=4,
    num_attention_heads=8,
    max_position_embeddings=1024,
    use_cache=False,
)


def _llama(transformers: Any) -> Made:
    config = transformers.LlamaConfig(**DECODER, intermediate_size=1376, num_key_value_heads=4)
    return _OneTensor(transformers.LlamaForCausalLM(config), "logits"), (_tokens(1, 256),)


def layered_llama(
    layers: int = 24, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Made:
    """A decoder of so many equal layers in eval mode, and 128 tokens: 7 million weights a layer."""
    sizes = dict(hidden_size=768, intermediate_size=2048, num_attention_heads=12)

    def make(transformers: Any) -> Made:
        shape = {**DECODER, **sizes, "num_hidden_layers": layers}
        config = transformers.LlamaConfig(**shape, num_key_value_heads=4)
        return _OneTensor(transformers.LlamaForCausalLM(config), "logits"), (_tokens(1, 128),)

    return _model("llama", "transformers", make, "").build(device, dtype)


def _gpt_neox(transformers: Any) -> Made:
    # eager attention keeps the causal mask and the softmax in the graph
    config = transformers.GPTNeoXConfig(
        **DECODER, intermediate_size=2048, attn_implementation="eager"
    )
    return _OneTensor(transformers.GPTNeoXForCausalLM(config), "logits"), (_tokens(1, 256),)


def _qwen2(transformers: Any) -> Made:
    config = transformers.Qwen2Config(**DECODER, intermediate_size=1408, num_key_value_heads=2)
    return _OneTensor(transformers.Qwen2ForCausalLM(config), "logits"), (_tokens(2, 128),)


def _swin(transformers: Any) -> Made:
    config = transformers.SwinConfig(
        image_size=112,
        patch_size=2,
        embed_dim=48,
        depths=[2, 2, 2],
        num_heads=[2, 4, 8],
        window_size=7,
        num_labels=100,
    )
    module = transformers.SwinForImageClassification(config)
    return _OneTensor(module, "logits"), (torch.randn(2, 3, 112, 112),)


def _vit(transformers: Any) -> Made:
    config = transformers.ViTConfig(
        image_size=160,
        patch_size=16,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=6,
        intermediate_size=1536,
        num_labels=100,
    )
    module = transformers.ViTForImageClassification(config)
    return _OneTensor(module, "logits"), (torch.randn(2, 3, 160, 160),)


def _rwkv(transformers: Any) -> Made:
    # short: the recurrence is a Python loop over the tokens
    config = transformers.RwkvConfig(
        vocab_size=VOCABULARY,
        context_length=64,
        hidden_size=384,
        num_hidden_layers=3,
        use_cache=False,
    )
    return _OneTensor(transformers.RwkvForCausalLM(config), "logits"), (_tokens(2, 32),)


def _densenet121(monai_nets: Any) -> Made:
    module = monai_nets.DenseNet121(spatial_dims=2, in_channels=1, out_channels=10)
    return module, (torch.randn(2, 1, 96, 96),)


def _basic_unet(monai_nets: Any) -> Made:
    module = monai_nets.BasicUNet(
        spatial_dims=3, in_channels=1, out_channels=2, features=(8, 8, 16, 32, 64, 8)
    )
    return module, (torch.randn(1, 1, 32, 48, 32),)


def _segresnet(monai_nets: Any) -> Made:
    module = monai_nets.SegResNet(spatial_dims=3, in_channels=1, out_channels=2, init_filters=8)
    return module, (torch.randn(1, 1, 32, 48, 32),)


def _unet2d(diffusers: Any) -> Made:
    module = diffusers.UNet2DModel(
        sample_size=32,
        block_out_channels=(64, 96, 128),
        layers_per_block=1,
        norm_num_groups=32,
        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    )
    return _OneTensor(module, "sample"), (torch.randn(2, 3, 32, 32), torch.tensor([10, 500]))


MODELS: tuple[Model, ...] = (
    _model("llama", "transformers", _llama, "decoder: rotary halves, swiglu, grouped queries"),
    _model("gpt_neox", "transformers", _gpt_neox, "decoder: rotary on a quarter, fused qkv, mask"),
    _model("qwen2", "transformers", _qwen2, "decoder: rotary halves, biased projections"),
    _model("swin", "transformers", _swin, "image classifier: rolled windows, region masks"),
    _model("vit", "transformers", _vit, "image classifier: class token joined to the patches"),
    _model("rwkv", "transformers", _rwkv, "recurrent language model: token shift by padding"),
    _model(
        "densenet121", "monai.networks.nets", _densenet121, "medical images: concat, norm, relu"
    ),
    _model("basic_unet", "monai.networks.nets", _basic_unet, "3-D segmentation: skip concat"),
    _model(
        "segresnet", "monai.networks.nets", _segresnet, "3-D segmentation: residual, group norm"
    ),
    _model("unet2d", "diffusers", _unet2d, "diffusion: skip concat, group norm, time embedding"),
)
