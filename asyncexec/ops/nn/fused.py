"""The fused ops that optimized and frozen graphs contain (``tensorflow/core/kernels/conv_ops_fused_impl.h``).

``fused_ops`` names what follows the convolution or the product: a bias or a batch normalization, then a sum with
another tensor (``Add``), if any, then at most one activation, of which ``Swish`` is our own, as are explicit pads of a
depthwise convolution.  The steps work in place
on the product, which nobody else has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.windows import is_channels_first, pieces, widened
from asyncexec.ops.math.error_function import erf_function
from asyncexec.ops.math.shared_product import multiply
from asyncexec.ops.nn.activation import leaky_relu
from asyncexec.ops.nn.bias import by_lines, checked_bias
from asyncexec.ops.nn.convolution import ConvolutionKernel, conv_shape, convolution_kernel, rounded, with_rule
from asyncexec.ops.nn.depthwise import depthwise_kernel, depthwise_shape
from asyncexec.ops.nn.native_convolution import NO_TAIL, Tail
from asyncexec.ops.nn.normalization import batch_norm_shape, make_batch_norm
from asyncexec.process.shards import share

Step = Callable[[Array], Array]
_PIECE_BYTES: Final = 2**18  # of what the steps go over one after the other


def _relu(x: Array) -> Array:
    np.maximum(x, x.dtype.type(0), out=x)
    return x


def _relu6(x: Array) -> Array:
    np.minimum(_relu(x), x.dtype.type(6), out=x)
    return x


def _elu(x: Array) -> Array:
    y: Array = np.where(x < 0, np.expm1(x), x)
    return y


def _exponential(x: Array) -> Array:
    """``1 + exp(-x)``."""
    e: Array = np.negative(x)
    np.exp(e, out=e)
    e += x.dtype.type(1)
    return e


def _sigmoid(x: Array) -> Array:
    y: Array = np.divide(x.dtype.type(1), _exponential(x), out=x)
    return y


def _swish(x: Array) -> Array:
    y: Array = np.divide(x, _exponential(x), out=x)
    return y


def _gelu_approximate(x: Array) -> Array:
    kind = x.dtype.type
    inner = kind(np.sqrt(2 / np.pi)) * (x + kind(0.044715) * x * x * x)
    y: Array = kind(0.5) * x * (kind(1) + np.tanh(inner))
    return y


def _gelu_exact() -> Step:
    erf = erf_function()

    def gelu(x: Array) -> Array:
        kind = x.dtype.type
        y = np.asarray(erf(x * kind(np.sqrt(0.5))), x.dtype)
        y += kind(1)
        y *= x
        y *= kind(0.5)
        return y

    return gelu


ACTIVATIONS: Final[dict[bytes, Step]] = {
    b"Relu": _relu,
    b"Relu6": _relu6,
    b"Elu": _elu,
    b"Tanh": np.tanh,
    b"Sigmoid": _sigmoid,
    b"Swish": _swish,
    b"GeluApproximate": _gelu_approximate,
}


# Of the activations, what native code does itself.
_NATIVE_ENDS: Final[dict[Step | None, Tail]] = {
    None: NO_TAIL,
    _relu: Tail(low=0.0),
    _relu6: Tail(low=0.0, high=6.0),
    _swish: Tail(is_swish=True),
}


def make_activation(names: Sequence[bytes], alpha: float) -> Step | None:
    """The activation at the end of ``fused_ops``, or None."""
    if not names:
        return None
    if len(names) == 1:
        if names[0] == b"LeakyRelu":
            return leaky_relu(alpha)
        if names[0] == b"GeluExact":
            return _gelu_exact()
        if names[0] in ACTIVATIONS:
            return ACTIVATIONS[names[0]]
    raise UnimplementedError(
        f"Fusion is not implemented: [{','.join(name.decode('utf-8', 'replace') for name in names)}]"
    )


class _Epilogue:
    """What ``fused_ops`` does to a product, given the extra arguments: a piece at a time that stays in the cache."""

    def __init__(self, op: OpKernelConstruction) -> None:
        names = list(op.attr("fused_ops"))
        if not names:
            raise InvalidArgumentError("a fused op must have at least one fused op")
        self._first = is_channels_first(op.attrs)
        head = names.pop(0)
        if head not in (b"BiasAdd", b"FusedBatchNorm"):
            raise UnimplementedError(f"Fusion is not implemented: [{head.decode('utf-8', 'replace')}]")
        self._epsilon = np.float32(op.attr("epsilon")) if head == b"FusedBatchNorm" else None
        self._adds = names[:1] == [b"Add"]
        self._activation = make_activation(names[self._adds :], op.attr("leakyrelu_alpha"))
        count = (1 if self._epsilon is None else 4) + self._adds
        if op.attr("num_args") != count:
            raise InvalidArgumentError(
                f"Fused {head.decode('utf-8', 'replace')} must have {count} extra arguments, not {op.attr('num_args')}"
            )

    def tail(self, args: Sequence[Array]) -> Tail | None:
        """What native code is to do with the extra arguments *args*; None if it cannot."""
        end = None if self._first or self._epsilon is not None else _NATIVE_ENDS.get(self._activation)
        if end is None or len(args) != 1 + self._adds:
            return None
        return end._replace(bias=args[0], added=args[1] if self._adds else None)

    def __call__(self, product: Array, *args: Array) -> Array:
        added = widened(args[-1]) if self._adds else None
        vectors = list(map(widened, args[: len(args) - self._adds]))
        for vector in vectors:
            checked_bias(product, vector, self._first)
        if self._epsilon is not None:
            scale, offset, mean, variance = vectors
            factor = scale / np.sqrt(variance + self._epsilon)
            vectors = [factor, offset - mean * factor]
        if added is not None and added.shape != product.shape:
            shape = np.broadcast_shapes(product.shape, added.shape)
            product, added = np.broadcast_to(product, shape).copy(), np.broadcast_to(added, shape)
        if not product.size:
            return product
        if self._first:
            self._run(product, added, *(vector.reshape(-1, *(1,) * (product.ndim - 2)) for vector in vectors))
            return product
        lines, *vectors = by_lines(product.reshape(-1, product.shape[-1]), *vectors)
        others = None if added is None else np.ascontiguousarray(added).reshape(lines.shape)

        def run(rows: slice) -> None:
            self._run(lines[rows], None if others is None else others[rows], *vectors)

        share(run, list(pieces(lines, _PIECE_BYTES)), lines.nbytes)
        return product

    def _run(self, piece: Array, added: Array | None, *vectors: Array) -> None:
        if len(vectors) > 1:
            piece *= vectors[0]
        piece += vectors[-1]
        if added is not None:
            piece += added
        if self._activation is not None:
            result = self._activation(piece)
            if result is not piece:
                piece[...] = result


def _epilogue(op: OpKernelConstruction) -> _Epilogue:
    others = {dtype.name for dtype in op.attrs.get("TArgs", ())} - {op.attr("T").name}
    if others:
        raise InvalidArgumentError(f"the arguments of {op.op} must be of type {op.attr('T').name}, not {others}")
    return _Epilogue(op)


def _fuse(product: Kernel, op: OpKernelConstruction) -> Kernel:
    epilogue = _epilogue(op)

    def kernel(a: Array, b: Array, *args: Array) -> Array:
        return epilogue(product(a, b), *args)

    return rounded(kernel, op)


def _fuse_convolution(convolution: ConvolutionKernel, op: OpKernelConstruction) -> Kernel:
    epilogue = _epilogue(op)

    def kernel(x: Array, filters: Array, *args: Array) -> Array:
        tail = epilogue.tail(args)
        out = None if tail is None else convolution.with_tail(x, filters, tail)
        return epilogue(convolution(x, filters), *args) if out is None else out

    return with_rule(rounded(kernel, op), convolution)


@register_kernel("_FusedConv2D", kind=KernelKind.EXPENSIVE)
def make_fused_conv2d(op: OpKernelConstruction) -> Kernel:
    """The kernel of _FusedConv2D."""
    if op.attr("filter_format") != b"HWIO" or op.attr("num_host_args"):
        raise UnimplementedError("_FusedConv2D is implemented for filters in HWIO format, without host arguments")
    return _fuse_convolution(convolution_kernel(op, 2), op)


@register_kernel("_FusedConv3D", kind=KernelKind.EXPENSIVE)
def make_fused_conv3d(op: OpKernelConstruction) -> Kernel:
    """The kernel of _FusedConv3D."""
    if op.attr("padding_list"):
        raise UnimplementedError("_FusedConv3D is implemented without a padding_list")
    return _fuse(convolution_kernel(op, 3), op)


@register_kernel("_FusedDepthwiseConv2dNative", kind=KernelKind.EXPENSIVE)
def make_fused_depthwise(op: OpKernelConstruction) -> Kernel:
    """The kernel of _FusedDepthwiseConv2dNative."""
    return _fuse_convolution(depthwise_kernel(op), op)


@register_kernel("_FusedMatMul", kind=KernelKind.EXPENSIVE)
def make_fused_matmul(op: OpKernelConstruction) -> Kernel:
    """The kernel of _FusedMatMul."""
    transpose_a, transpose_b = op.attr("transpose_a"), op.attr("transpose_b")

    def product(a: Array, b: Array) -> Array:
        if a.ndim != 2 or b.ndim != 2:
            raise InvalidArgumentError(f"In[0] and In[1] must be matrices: {list(a.shape)}, {list(b.shape)}")
        left, right = widened(a.T if transpose_a else a), widened(b.T if transpose_b else b)
        if left.shape[1] != right.shape[0]:
            raise InvalidArgumentError(f"Matrix size-incompatible: In[0]: {list(a.shape)}, In[1]: {list(b.shape)}")
        return multiply(left, right)

    return _fuse(product, op)


@register_kernel("_FusedBatchNormEx")
def make_fused_batch_norm(op: OpKernelConstruction) -> Kernel:
    """The kernel of _FusedBatchNormEx: batch normalization, plus a side input, then an activation."""
    mode = op.attr("activation_mode")
    if mode not in (b"Identity", b"Relu"):
        raise UnimplementedError(f"activation_mode {mode.decode('utf-8', 'replace')} is not implemented")
    normalize = make_batch_norm(op)

    def kernel(x: Array, scale: Array, offset: Array, mean: Array, variance: Array, *side: Array) -> tuple[Any, ...]:
        y, *rest = normalize(x, scale, offset, mean, variance)
        for other in side:
            if other.shape != y.shape:
                raise InvalidArgumentError(f"side_input must be of shape {list(y.shape)}, not {list(other.shape)}")
            y = y + other
        return (np.maximum(y, y.dtype.type(0)) if mode == b"Relu" else y, *rest)

    return kernel


def fused_matmul_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Rows of the first by columns of the second."""
    a, b = c.with_rank(0, 2), c.with_rank(1, 2)
    rows, inner = (a[1], a[0]) if c.attr("transpose_a") else (a[0], a[1])
    other, columns = (b[1], b[0]) if c.attr("transpose_b") else (b[0], b[1])
    TensorShape([inner]).merge_with([other])
    return [TensorShape([rows, columns])]


_TAIL = "fused_ops: list(string) = []; epsilon: float = 0.0001; leakyrelu_alpha: float = 0.200000003"
_DILATIONS = "dilations: list(int) = [1, 1, 1, 1]; "
register_op(
    "_FusedConv2D",
    "input: T, filter: T, args: TArgs, host_args: num_host_args*float32 -> output: T",
    "T: {float16, float32, float64, int8, qint8}; TArgs: list(type) >= 1; num_args: int >= 0; "
    "num_host_args: int >= 0 = 0; strides: list(int); padding: {'SAME', 'VALID', 'EXPLICIT'}; "
    "explicit_paddings: list(int) = []; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'; "
    "filter_format: {'HWIO', 'OIHW', 'OIHW_VECT_I'} = 'HWIO'; "
    + _DILATIONS
    + "use_cudnn_on_gpu: bool = True; "
    + _TAIL,
    shape=conv_shape,
)
register_op(
    "_FusedConv3D",
    "input: T, filter: T, args: num_args*T -> output: T",
    "T: {bfloat16, float16, float32}; num_args: int >= 0; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; "
    "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'; dilations: list(int) = [1, 1, 1, 1, 1]; "
    "padding_list: list(int) = []; " + _TAIL,
    shape=conv_shape,
)
register_op(
    "_FusedDepthwiseConv2dNative",
    "input: T, filter: T, args: num_args*T -> output: T",
    "T: {float16, bfloat16, float32, float64}; num_args: int >= 0; strides: list(int); "
    "padding: {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = []; "
    "data_format: {'NHWC', 'NCHW'} = 'NHWC'; " + _DILATIONS + _TAIL,
    shape=depthwise_shape,
)
register_op(
    "_FusedMatMul",
    "a: T, b: T, args: num_args*T -> product: T",
    "transpose_a: bool = False; transpose_b: bool = False; T: {bfloat16, float16, float32}; num_args: int >= 0; "
    + _TAIL,
    shape=fused_matmul_shape,
)
register_op(
    "_FusedBatchNormEx",
    "x: T, scale: U, offset: U, mean: U, variance: U, side_input: num_side_inputs*T -> y: T, batch_mean: U, "
    "batch_variance: U, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U",
    "T: {float16, float32, bfloat16}; U: {float32}; epsilon: float = 0.0001; exponential_avg_factor: float = 1.0; "
    "num_side_inputs: int >= 0 = 0; activation_mode: string = 'Identity'; data_format: {'NHWC', 'NCHW'} = 'NHWC'; "
    "is_training: bool = True",
    shape=batch_norm_shape,
)
