"""LinearAttention: a state of keys times values that each step reads, and changes by one of four rules."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.onnx.arrays import empty, need, need_rank, need_shape, zeros
from asyncexec.ops.onnx.attention import join_heads, split_heads
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

# Whether the state fades, and whether only what it lacks is added.
_RULES: Final = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}


@onnx_kernel("LinearAttention", since=27, kind=KernelKind.EXPENSIVE)
def make_linear_attention(node: OnnxNode) -> Kernel:
    """The kernel of LinearAttention."""
    q_heads, kv_heads = node.attr("q_num_heads", 0), node.attr("kv_num_heads", 0)
    scale, rule = node.attr("scale", 0.0), node.text("update_rule", "gated_delta")
    need(rule in _RULES, f"update_rule must be one of {', '.join(_RULES)}, not {rule!r}")
    need(kv_heads > 0 and q_heads > 0 and not q_heads % kv_heads, f"{q_heads} heads cannot share {kv_heads}")
    fades, corrects = _RULES[rule]

    def kernel(q: Array, k: Array, v: Array, past: Any = None, decay: Any = None, beta: Any = None) -> tuple[Any, ...]:
        need((decay is not None) == fades, f"decay must {'' if fades else 'not '}be given where the rule is {rule}")
        need((beta is not None) == corrects, f"beta must {'' if corrects else 'not '}be given where the rule is {rule}")
        for what, array in (("query", q), ("key", k), ("value", v)):
            need_rank(array, 3, what)
        need(q.shape[:2] == k.shape[:2] == v.shape[:2], "query, key and value must have one batch and one length")
        # One step after the other: [steps, batch, heads, size].
        queries = _steps(split_heads(q, q_heads, "query"))
        keys, values = _steps(split_heads(k, kv_heads, "key")), _steps(split_heads(v, kv_heads, "value"))
        size, out_size = keys.shape[3], values.shape[3]
        need(queries.shape[3] == size, f"queries have {queries.shape[3]} features, keys {size}")
        shape = (q.shape[0], kv_heads, size, out_size)
        if past is not None:
            need_shape(past, shape, "past_state")
        state = zeros(shape, np.float32) if past is None else past.astype(np.float32)
        fading = None if decay is None else np.exp(_for_heads(decay, q, kv_heads, size, "decay"))
        rates = None if beta is None else _for_heads(beta, q, kv_heads, 0, "beta")
        grouped = queries.reshape(*queries.shape[:2], kv_heads, q_heads // kv_heads, size)
        out = empty((*grouped.shape[:4], out_size), np.float32)
        for t in range(len(keys)):
            if fading is not None:
                state = state * fading[t][..., None]
            new = values[t]
            if rates is not None:
                new = rates[t] * (new - (keys[t][..., None, :] @ state)[..., 0, :])
            state = state + keys[t][..., :, None] * new[..., None, :]
            np.matmul(grouped[t], state, out=out[t])
        out *= np.float32(scale or 1 / math.sqrt(max(size, 1)))
        heads = out.reshape(len(out), q.shape[0], q_heads, out_size).transpose(1, 2, 0, 3)
        last = state.astype(q.dtype if past is None else past.dtype)
        return (join_heads(heads).astype(q.dtype, copy=False), last)[: node.num_outputs]

    return kernel


def _steps(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(2, 0, 1, 3)).astype(np.float32, copy=False)


def _for_heads(x: Array, q: Array, heads: int, size: int, what: str) -> Array:
    """*x*, one number a head, one for all heads or one a feature, as [steps, batch, heads, features]."""
    need_rank(x, 3, what)
    need(x.shape[:2] == q.shape[:2], f"{what} must have batch and length {list(q.shape[:2])}, not {list(x.shape[:2])}")
    if x.shape[2] in (heads, 1 if what == "beta" else heads):
        return _steps(x.reshape(*x.shape[:2], x.shape[2], 1).swapaxes(1, 2))
    need(size > 0 and x.shape[2] == heads * size, f"{what} of shape {list(x.shape)} is not for {heads} heads")
    return _steps(split_heads(x, heads, what))
