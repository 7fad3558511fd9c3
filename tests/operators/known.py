"""What the sweep leaves out, what it compiles alone, and where plain Inductor itself is wrong."""

from __future__ import annotations

NO_SEAM = "no sample with an input that a seam can be made in"

LEFT_OUT: dict[str, str] = {}

# Their results need Python, which breaks the graph, or are random numbers.
ALONE = frozenset(
    """
    allclose argwhere bernoulli bincount cauchy combinations corrcoef cov equal exponential
    geometric histc
    histogram histogramdd item log_normal masked_select multinomial nn.functional.alpha_dropout
    nn.functional.ctc_loss nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.feature_alpha_dropout.with_train nn.functional.fractional_max_pool2d
    nn.functional.fractional_max_pool3d nn.functional.one_hot nn.functional.rrelu nonzero normal
    normal.in_place pca_lowrank rand_like randint_like randn_like svd_lowrank to_sparse uniform
    unique unique_consecutive
    """.split()
)

# What the sweep is for is the seams. By "operator dtype seam"; a test runs plain Inductor on each.
INDUCTORS_OWN: dict[str, str] = {
    "addmv float32 cat": "a product as a loop adds in another order, here by 1.5e-5",
    "baddbmm bfloat16 both": "one rounding to bfloat16 instead of several",
    "bmm bfloat16 both": "one rounding to bfloat16 instead of several",
    "sum_to_size bool both": "C++ code that does not compile: a sum of bool",
}

OURS: dict[str, str] = {}

# The slice for every run of the tests: all are really cut, as one of the tests says.
VARIED = tuple(
    """
    abs add addcmul atan2 bitwise_xor clamp copysign diff div.floor_rounding erf exp expm1 flip
    floor_divide fmod gather ge heaviside index_select isnan lerp lgamma log1p logaddexp logical_and
    masked_fill maximum mul nan_to_num nextafter nn.functional.gelu nn.functional.hardswish
    nn.functional.interpolate.nearest nn.functional.pad.reflect nn.functional.pixel_shuffle
    nn.functional.softplus frac pow remainder repeat roll round rsqrt select_scatter
    sigmoid sign sin sinc slice_scatter stack sub tanh tile transpose tril unfold where xlogy amax
    argmax
    """.split()
)
