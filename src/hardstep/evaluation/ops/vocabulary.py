"""Which aten operations act element by element, and which treat examples apart."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ELEMENTWISE = _names("""
    abs add addcdiv addcmul alias atan atan2 bitwise_and bitwise_not bitwise_or bitwise_xor ceil
    celu clamp clamp_max clamp_min clone copy copysign cos cosh detach div elu eq erf erfc exp
    expm1 floor floor_divide fmod frac ge gelu gt hardsigmoid hardswish hardtanh heaviside
    isfinite isinf isnan le leaky_relu lerp lift_fresh log log10 log1p log2 logical_and
    logical_not logical_or logical_xor logit lt masked_fill maximum minimum mish mul nan_to_num
    ne neg pow reciprocal relu remainder round rsqrt rsub selu sgn sigmoid sign silu sin sinh
    softplus sqrt sub tan tanh threshold trunc where _to_copy xlogy
""")

# Operations along dimensions named by a `dim` argument: apart by example unless one of them is 0.
ALONG_DIM = _names("""
    cat stack gather scatter split split_with_sizes unbind index_select unsqueeze squeeze select
    slice glu _softmax _log_softmax sum mean amax amin argmax argmin max min var std any all prod
    cumsum cumprod logsumexp sort topk norm linalg_vector_norm std_mean var_mean argsort
    count_nonzero aminmax
""")

# The same, but the argument is `dims`, and nothing is computed.
PERMUTING = _names("flip roll")

# Windows over the last axes, and how many axes these are.
POOLS = {
    "avg_pool1d": 1,
    "avg_pool2d": 2,
    "avg_pool3d": 3,
    "_adaptive_avg_pool2d": 2,
    "_adaptive_avg_pool3d": 3,
    "max_pool2d_with_indices": 2,
    "max_pool3d_with_indices": 3,
    "adaptive_max_pool2d": 2,
    "adaptive_max_pool3d": 3,
}

# Element-wise losses with a `reduction` argument, and its position.
REDUCED_LOSSES = {
    "mse_loss": 2,
    "smooth_l1_loss": 2,
    "huber_loss": 2,
    "binary_cross_entropy": 3,
    "binary_cross_entropy_with_logits": 4,
    "soft_margin_loss": 2,
}
