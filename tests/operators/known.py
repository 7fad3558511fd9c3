"""What the sweep leaves out, what it compiles alone, and where plain Inductor itself is wrong."""

from __future__ import annotations

NO_SEAM = "no sample with an input that a seam can be made in"
NO_DTYPE = "takes none of the swept dtypes on a CPU"
NOT_ON_CPU = "its samples run on a GPU only"
UNSET = "its result is whatever was in memory"

# A test checks each of these; an operator that belongs here and is missing fails in the sweep.
LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(
        """
        arange broadcast_shapes cartesian_prod diagflat empty empty_permuted empty_strided eye full
        imag istft item linalg.matrix_power linalg.vector_norm linspace linspace.tensor_overload
        logspace logspace.tensor_overload nn.functional.max_unpool1d.grad nn.functional.unfold
        normal.number_mean ones randint randn scalar_tensor signal.windows.bartlett
        signal.windows.blackman signal.windows.cosine signal.windows.exponential
        signal.windows.gaussian signal.windows.general_cosine signal.windows.general_hamming
        signal.windows.hamming signal.windows.hann signal.windows.kaiser signal.windows.nuttall
        sparse.mm.reduce sparse.sampled_addmm t t_copy tensordot tril_indices triu_indices
        view_as_real zeros
        """.split(),
        NO_SEAM,
    ),
    **dict.fromkeys(
        """
        nn.functional.batch_norm.without_cudnn nn.functional.silu.complex torch._scaled_mm
        torch._scaled_mm_v2 torch.ops.aten._efficient_attention_forward
        torch.ops.aten._flash_attention_forward
        """.split(),
        NO_DTYPE,
    ),
    **dict.fromkeys(
        """
        jiterator_2inputs_2outputs jiterator_4inputs_with_extra_args jiterator_binary
        jiterator_binary_return_by_ref jiterator_unary
        """.split(),
        NOT_ON_CPU,
    ),
    **dict.fromkeys(("empty_like", "new_empty", "new_empty_strided"), UNSET),
}

# Their results need Python, which breaks the graph, or are random numbers. The gradient of sgn is
# a tensor of zeros without memory: beside another one plain Inductor's code may read it, and crash.
ALONE = frozenset(
    """
    allclose argwhere bernoulli bincount cauchy combinations corrcoef cov equal exponential
    geometric histc histogram histogramdd item log_normal masked_select multinomial
    nn.functional.alpha_dropout
    nn.functional.ctc_loss nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.feature_alpha_dropout.with_train nn.functional.fractional_max_pool2d
    nn.functional.fractional_max_pool3d nn.functional.one_hot nn.functional.rrelu nonzero normal
    normal.in_place pca_lowrank rand_like randint_like randn_like sgn svd_lowrank to_sparse uniform
    unique unique_consecutive
    """.split()
)

ADDING = "a product as a loop adds in another order, here by 1.5e-5"
ORDER = "rounds elsewhere in a long formula, here by 2e-5 to 8e-5"
ROUNDING = "one rounding to bfloat16 instead of eager mode's several"
BOOL = "C++ code that does not compile: bool as a mask, and as a value beside it"
STRIDED = "a gradient through as_strided of a result that eager mode lays out otherwise"
WINDOW = "the lowering of the gradient refuses a window given by one number"

# By "operator dtype seam"; a test runs plain Inductor on each, which has to fail in the same way.
# With other vectors it makes other code, right where this is wrong and the other way round.
RECORDED_ON = "AVX2"
INDUCTORS_OWN: dict[str, str] = {
    "__getitem__ bool both": BOOL,
    "addmv float32 cat": ADDING,
    "as_strided float32 cat": STRIDED,
    "gradient bfloat16 both": ROUNDING,
    "grid_sampler_2d float32 cat": ORDER,
    "grid_sampler_2d float32 pad": ORDER,
    "logsumexp bool both": BOOL,
    "max.reduction_no_dim bool both": BOOL,
    "max.reduction_with_dim bool both": BOOL,
    "min.reduction_no_dim bool both": BOOL,
    "min.reduction_with_dim bool both": BOOL,
    "nn.functional.avg_pool2d float32 cat": WINDOW,
    "nn.functional.avg_pool2d float32 pad": WINDOW,
    "nn.functional.conv_transpose2d bfloat16 both": ROUNDING,
    "nn.functional.cosine_embedding_loss bool both": BOOL,
    "special.hermite_polynomial_h float32 cat": ORDER,
    "special.hermite_polynomial_h float32 pad": ORDER,
    "special.hermite_polynomial_he float32 cat": ORDER,
    "special.hermite_polynomial_he float32 pad": ORDER,
}

# Not compared: right in one run and not in the next.
SUMS = "sums in bfloat16, in one order or another"
WHOLE = f"plain Inductor's {BOOL}; in blocks, which the estimate may choose, it does"
UNSTEADY: dict[str, str] = {
    "_unsafe_masked_index_put_accumulate bfloat16 both": SUMS,
    "tril bool both": WHOLE,
    "triu bool both": WHOLE,
}

OURS: dict[str, str] = {}

# The slice for every run of the tests: all are really cut, as one of the tests says.
VARIED = tuple(
    """
    abs add addcmul atan2 bitwise_xor clamp copysign diff div.floor_rounding erf exp expm1 flip
    floor_divide fmod gather ge heaviside index_select isnan lerp lgamma log1p logaddexp logical_and
    masked_fill maximum mul nan_to_num nextafter nn.functional.gelu nn.functional.hardswish
    nn.functional.interpolate.nearest nn.functional.pad.reflect nn.functional.pixel_shuffle
    nn.functional.softplus frac pow remainder fliplr roll round rsqrt select_scatter
    sigmoid sign sin sinc slice_scatter stack sub tanh tile transpose tril unfold where xlogy amax
    argmax
    """.split()
)
