"""Attention and what goes with it: RotaryEmbedding, and TensorScatter, which writes into a cache of keys or values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.onnx.arrays import axis_of, dtype_of_code, empty, need, need_rank, need_shape, wide
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel
from asyncexec.process.free_memory import check_array

_RAW, _CAPPED, _WITH_BIAS, _PROBABILITIES = range(4)  # what output 3 of Attention has
_WRITE_MODES: Final = ("linear", "circular")


def split_heads(x: Array, heads: int, what: str) -> Array:
    """*x* [batch, steps, heads * size] as [batch, heads, steps, size]."""
    need(heads > 0 and not x.shape[2] % heads, f"{what} of shape {list(x.shape)} is not for {heads} heads")
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)


def join_heads(x: Array) -> Array:
    """The inverse of ``split_heads``."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


@dataclass(frozen=True, slots=True)
class _Attention:
    """What the attributes of a node tell."""

    scale: float | None
    softcap: float
    is_causal: bool
    left: int
    right: int
    mode: int
    precision: NumpyDType | None
    q_heads: int | None
    kv_heads: int | None

    def run(self, q: Array, k: Array, v: Array, bias: Array | None) -> tuple[Array, Array]:
        """What the queries get, and what output 3 asks for, of inputs with heads; few keys may serve many queries."""
        batch, heads, steps, size = q.shape
        group = heads // k.shape[1]
        factor = math.sqrt(self.scale if self.scale is not None else 1 / math.sqrt(size) if size else 1.0)
        queries = (wide(q) * wide(q).dtype.type(factor)).reshape(batch, k.shape[1], group * steps, size)
        keys = wide(k) * wide(k).dtype.type(factor)
        scores = empty((batch, k.shape[1], group * steps, k.shape[2]), queries.dtype)
        np.matmul(queries, keys.swapaxes(2, 3), out=scores)
        scores = scores.reshape(batch, heads, steps, k.shape[2])
        told = scores.copy() if self.mode == _RAW else scores
        if self.softcap > 0:
            scores = np.asarray(np.tanh(scores / scores.dtype.type(self.softcap)) * scores.dtype.type(self.softcap))
            told = scores.copy() if self.mode == _CAPPED else told
        elif self.mode == _CAPPED:
            told = scores.copy()
        if bias is not None:
            scores = scores + bias
        told = scores.copy() if self.mode == _WITH_BIAS else told
        if self.precision is not None and self.precision.itemsize > scores.dtype.itemsize:
            scores = scores.astype(self.precision)
        weights = _probabilities(scores, bias).astype(queries.dtype, copy=False)
        told = weights if self.mode == _PROBABILITIES else told
        out = np.matmul(weights.reshape(batch, k.shape[1], group * steps, k.shape[2]), wide(v))
        return out.reshape(batch, heads, steps, v.shape[3]).astype(q.dtype, copy=False), told.astype(
            q.dtype, copy=False
        )

    def bias(
        self, shape: tuple[int, ...], dtype: NumpyDType, mask: object, offsets: Array, lengths: Any
    ) -> Array | None:
        """What is added to the scores of that *shape*: the mask, and minus infinity where a query must not look."""
        batch, _, steps, total = shape
        check_array((steps, total), np.dtype(np.int64))
        queries = offsets[:, None, None, None] + np.arange(steps)[:, None]
        ahead = np.arange(total) - queries
        hidden = np.zeros((1, 1, 1, 1), np.bool_)
        if self.is_causal:
            hidden = hidden | (ahead > 0)
        if self.left >= 0:
            hidden = hidden | (-ahead > self.left)
        if self.right >= 0:
            hidden = hidden | (ahead > self.right)
        if lengths is not None:
            hidden = hidden | (np.arange(total) >= lengths.reshape(batch, 1, 1, 1))
        added: Array | None = None
        if mask is not None:
            added = self._padded(np.asarray(mask), shape, dtype)
        if not hidden.any():
            return added
        return np.where(hidden, dtype.type(-np.inf), dtype.type(0) if added is None else added)

    def _padded(self, mask: Array, shape: tuple[int, ...], dtype: NumpyDType) -> Array:
        need(0 < mask.ndim <= 4, f"attn_mask must have 1 to 4 axes, not shape {list(mask.shape)}")
        if mask.dtype == np.bool_:
            added = np.where(mask, dtype.type(0), dtype.type(-np.inf))
        else:
            added = wide(mask).astype(dtype, copy=False)
        short = shape[-1] - mask.shape[-1]
        if short > 0 and mask.shape[-1] != 1:
            added = np.pad(added, [(0, 0)] * (mask.ndim - 1) + [(0, short)], constant_values=-np.inf)
        fits = all(a in (1, b) for a, b in zip(reversed(added.shape), reversed(shape), strict=False))
        need(fits, f"attn_mask of shape {list(mask.shape)} does not broadcast to {list(shape)}")
        return np.asarray(added)


def _probabilities(scores: Array, bias: Array | None) -> Array:
    """The softmax of each row; zeros where *bias* hides the whole row."""
    if not scores.size:
        return scores
    largest = scores.max(axis=-1, keepdims=True)
    out: Array = np.exp(scores - np.where(np.isneginf(largest), 0, largest).astype(scores.dtype, copy=False))
    sums = out.sum(axis=-1, keepdims=True)
    out /= np.where(sums == 0, 1, sums).astype(scores.dtype, copy=False)
    if bias is not None:
        hidden = np.isneginf(bias.max(axis=-1, keepdims=True))
        if hidden.any():
            out = np.where(hidden, out.dtype.type(0), out)
    return out


@onnx_kernel("Attention", since=23, kind=KernelKind.EXPENSIVE)
def make_attention(node: OnnxNode) -> Kernel:
    """The kernel of Attention."""
    precision = node.attr("softmax_precision")
    attention = _Attention(
        node.attr("scale"),
        node.attr("softcap", 0.0),
        bool(node.attr("is_causal", 0)),
        node.attr("left_window_size", -1),
        node.attr("right_window_size", -1),
        node.attr("qk_matmul_output_mode", 0) if node.num_outputs > 3 and node.outputs[3] else -1,
        dtype_of_code(precision) if precision else None,
        node.attr("q_num_heads"),
        node.attr("kv_num_heads"),
    )
    need(attention.mode in range(-1, 4), f"qk_matmul_output_mode must be 0 to 3, not {attention.mode}")
    need(attention.scale is None or attention.scale >= 0, f"scale must not be negative: {attention.scale}")
    need(min(attention.left, attention.right) >= -1, "window sizes must be -1 or more")

    def kernel(
        q: Array,
        k: Array,
        v: Array,
        mask: object = None,
        past_k: Any = None,
        past_v: object = None,
        lengths: Any = None,
    ) -> tuple[object, ...]:
        is_flat = q.ndim == 3
        need(q.ndim == k.ndim == v.ndim and q.ndim in (3, 4), "Q, K and V must all have 3 or all have 4 axes")
        if is_flat:
            q = split_heads(q, attention.q_heads or 0, "Q")
            k, v = (split_heads(one, attention.kv_heads or 0, what) for one, what in ((k, "K"), (v, "V")))
        need((past_k is None) == (past_v is None), "past_key and past_value must be given together")
        need(lengths is None or past_k is None, "nonpad_kv_seqlen cannot be given with past_key")
        _check(q, k, v)
        offsets = np.zeros(1, np.int64)
        if past_k is not None:
            need_rank(past_k, 4, "past_key")
            need_shape(past_k, (*k.shape[:2], past_k.shape[2], k.shape[3]), "past_key")
            need_shape(past_v, (*v.shape[:2], past_k.shape[2], v.shape[3]), "past_value")
            offsets += past_k.shape[2]
            k, v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
        if lengths is not None:
            need_shape(lengths, (q.shape[0],), "nonpad_kv_seqlen")
            offsets = lengths.astype(np.int64) - q.shape[2]
        shape = (*q.shape[:3], k.shape[2])
        bias = attention.bias(shape, wide(q[:0]).dtype, mask, offsets, lengths)
        out, told = attention.run(q, k, v, bias)
        outputs = (join_heads(out) if is_flat else out, np.ascontiguousarray(k), np.ascontiguousarray(v), told)
        return outputs[: node.num_outputs]

    return kernel


def _check(q: Array, k: Array, v: Array) -> None:
    need(
        q.shape[0] == k.shape[0] == v.shape[0]
        and k.shape[1] == v.shape[1] > 0
        and not q.shape[1] % k.shape[1]
        and k.shape[2] == v.shape[2]
        and q.shape[3] == k.shape[3],
        f"queries {list(q.shape)}, keys {list(k.shape)} and values {list(v.shape)} do not fit each other",
    )


@onnx_kernel("RotaryEmbedding", since=23)
def make_rotary_embedding(node: OnnxNode) -> Kernel:
    """The kernel of RotaryEmbedding: pairs of features turned by the angles of their position."""
    interleaved, heads = bool(node.attr("interleaved", 0)), node.attr("num_heads", 0)
    dim = node.attr("rotary_embedding_dim", 0)

    def kernel(x: Array, cos: Array, sin: Array, positions: Any = None) -> tuple[Array]:
        need(x.ndim in (3, 4), f"X must have 3 or 4 axes, not shape {list(x.shape)}")
        parts = split_heads(x, heads, "X") if x.ndim == 3 else x
        size = dim or parts.shape[3]
        need(0 < size <= parts.shape[3] and not size % 2, f"{size} features of {parts.shape[3]} cannot be turned")
        batch, steps = parts.shape[0], parts.shape[2]
        if positions is not None:
            need_shape(positions, (batch, steps), "position_ids")
            need_rank(cos, 2, "cos_cache")
            need(
                not positions.size or (positions.min() >= 0 and positions.max() < len(cos)),
                f"a position is none of the {len(cos)} in the caches",
            )
            cos, sin = cos[positions], sin[positions]
        need_shape(cos, (batch, steps, size // 2), "cos_cache")
        need_shape(sin, (batch, steps, size // 2), "sin_cache")
        cells, c, s = wide(parts), wide(cos)[:, None], wide(sin)[:, None]
        out = cells.copy()
        pairs = (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(0, size // 2), slice(size // 2, size))
        first, second = cells[..., pairs[0]], cells[..., pairs[1]]
        out[..., pairs[0]] = c * first - s * second
        out[..., pairs[1]] = s * first + c * second
        out = out.astype(x.dtype, copy=False)
        return (join_heads(out) if x.ndim == 3 else out,)

    return kernel


@onnx_kernel("TensorScatter", since=24)
def make_tensor_scatter(node: OnnxNode) -> Kernel:
    """The kernel of TensorScatter: a cache with an update written into each sample, from its own index on."""
    axis, mode = node.attr("axis", -2), node.text("mode", "linear")
    need(mode in _WRITE_MODES, f"mode must be linear or circular, not {mode!r}")

    def kernel(past: Array, update: Array, indices: Any = None) -> tuple[Array]:
        along = axis_of(axis, past.ndim)
        need(along > 0, "axis must not be that of the batch")
        steps, room = update.shape[along] if update.ndim == past.ndim else -1, past.shape[along]
        need_shape(update, (*past.shape[:along], steps, *past.shape[along + 1 :]), "update")
        need(0 <= steps <= room, f"an update of {steps} steps does not fit into {room}")
        starts = np.zeros(len(past), np.int64) if indices is None else indices
        need_shape(starts, (len(past),), "write_indices")
        is_in = not len(starts) or (np.min(starts) >= 0 and (mode == "circular" or np.max(starts) + steps <= room))
        need(bool(is_in), f"an update of {steps} steps is written beyond {room}")
        out = past.copy()
        for sample, new, start in zip(out, update, starts.tolist(), strict=True):
            cells = (np.arange(steps) + start) % max(room, 1)
            sample[(slice(None),) * (along - 1) + (cells,)] = new
        return (out,)

    return kernel
