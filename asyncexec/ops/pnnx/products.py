"""Products of matrices: linear layers, attention, embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.pnnx.activation import softmax
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel


def linear(x: Array, weight: Array, bias: Array | None) -> Array:
    """*x* with *weight* [out, in]; the leading dimensions of *x* are one for the product."""
    if not x.ndim or x.shape[-1] != weight.shape[-1]:
        raise InvalidArgumentError(f"weights of shape {list(weight.shape)} do not fit {list(x.shape)}")
    out = np.matmul(x.reshape(-1, x.shape[-1]), weight.T)
    if bias is not None:
        out += bias
    return out.reshape(*x.shape[:-1], weight.shape[0])


@pnnx_kernel("nn.Linear", kind=KernelKind.EXPENSIVE)
def _linear_layer(node: PnnxNode) -> Kernel:
    weight, bias = node.array("weight"), node.array("bias") if node.param("bias") else None
    if weight.ndim != 2:
        raise node.error(f"weights of shape {list(weight.shape)} are no matrix")
    return lambda x: linear(x, weight, bias)


@pnnx_kernel("F.linear", kind=KernelKind.EXPENSIVE)
def _linear(node: PnnxNode) -> Kernel:
    order = node.in_order("input", "weight", "bias")
    return lambda *inputs: linear(*order(inputs))


@pnnx_kernel("torch.matmul", "torch.bmm", "torch.mm", "torch.mv", kind=KernelKind.EXPENSIVE)
def _matmul(node: PnnxNode) -> Kernel:
    second = {"torch.bmm": "mat2", "torch.mm": "mat2", "torch.mv": "vec"}.get(node.type, "other")
    order = node.in_order("input", second)

    def matmul(*inputs: object) -> Array:
        x, y = order(inputs)
        return np.matmul(x, y)

    return matmul


@pnnx_kernel("torch.addmm", "torch.baddbmm", kind=KernelKind.EXPENSIVE)
def _addmm(node: PnnxNode) -> Kernel:
    alpha, beta = node.number("alpha", 1), node.number("beta", 1)
    first = "mat" if node.type == "torch.addmm" else "batch"
    order = node.in_order("input", f"{first}1", f"{first}2")

    def addmm(*inputs: object) -> Array:
        total, x, y = order(inputs)
        return np.asarray(np.matmul(x, y) * alpha + total * beta)

    return addmm


@pnnx_kernel("torch.einsum", kind=KernelKind.EXPENSIVE)
def _einsum(node: PnnxNode) -> Kernel:
    equation = node.param("equation")
    if not isinstance(equation, str):
        raise node.error("there is no parameter 'equation'")

    def einsum(*inputs: object) -> Array:
        arrays = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], (tuple, list)) else inputs
        try:
            return np.asarray(np.einsum(equation, *arrays, optimize=True))
        except ValueError as error:
            raise InvalidArgumentError(f"equation {equation[:100]!r}: {error}") from error

    return einsum


@pnnx_kernel("nn.Embedding", "F.embedding")
def _embedding(node: PnnxNode) -> Kernel:
    if node.type == "nn.Embedding":
        table = node.array("weight")
        return lambda index: _rows(table, index)
    order = node.in_order("input", "weight")

    def embedding(*inputs: object) -> Array:
        index, weight = order(inputs)
        return _rows(weight, index)

    return embedding


def _rows(table: Array, index: Array) -> Array:
    if np.size(index) and not 0 <= np.min(index) <= np.max(index) < len(table):
        raise InvalidArgumentError(f"indices go from 0 to {len(table) - 1}")
    return table[index]


def attention(q: Array, k: Array, v: Array, scale: float, mask: Array | None = None) -> tuple[Array, Array]:
    """The values *v* weighted by how *q* and *k* fit, and these weights; a mask of booleans tells what counts."""
    scores = np.matmul(q * np.asarray(scale, q.dtype), np.swapaxes(k, -1, -2))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf).astype(q.dtype) if mask.dtype == np.bool_ else scores + mask
    weights = softmax(scores, -1)
    return np.matmul(weights, v), weights


@pnnx_kernel("F.scaled_dot_product_attention", kind=KernelKind.EXPENSIVE)
def _scaled_attention(node: PnnxNode) -> Kernel:
    order = node.in_order("query", "key", "value", "attn_mask")
    is_causal, scale = bool(node.param("is_causal")), node.param("scale")

    def attend(*inputs: object) -> Array:
        q, k, v, mask = order(inputs)
        if is_causal:
            mask = np.tri(q.shape[-2], k.shape[-2], dtype=np.bool_)
        if node.param("enable_gqa"):
            k, v = (np.repeat(each, q.shape[-3] // each.shape[-3], axis=-3) for each in (k, v))
        return attention(q, k, v, q.shape[-1] ** -0.5 if scale is None else scale, mask)[0]

    return attend


@pnnx_kernel("nn.MultiheadAttention", kind=KernelKind.EXPENSIVE)
def _multihead_attention(node: PnnxNode) -> Kernel:
    heads, is_batch_first = node.integer("num_heads"), bool(node.param("batch_first"))
    if node.param("add_bias_kv") or node.param("add_zero_attn") or heads < 1:
        raise node.error("add_bias_kv, add_zero_attn and no heads are not supported")
    weights, biases = _projections(node)
    out_weight, out_bias = node.array("out_proj.weight"), node.find_array("out_proj.bias")
    place = node.input_index("attn_mask")

    def attend(*inputs: Any) -> object:
        mask = None if place is None else inputs[place]
        given = [each for at, each in enumerate(inputs) if at != place]
        given = [given[0]] * 3 if len(given) == 1 else [given[0], given[1], given[-1]]
        if not is_batch_first:
            given = [np.swapaxes(each, 0, 1) for each in given]
        q, k, v = (
            _heads(linear(each, weight, bias), heads) for each, weight, bias in zip(given, weights, biases, strict=True)
        )
        if mask is not None:
            mask = np.logical_not(mask) if mask.dtype == np.bool_ else mask
            mask = mask.reshape(-1, heads, *mask.shape[1:]) if mask.ndim == 3 else mask
        out, shares = attention(q, k, v, q.shape[-1] ** -0.5, mask)
        merged = np.swapaxes(out, 1, 2).reshape(out.shape[0], out.shape[2], -1)
        result = linear(merged, out_weight, out_bias)
        result = result if is_batch_first else np.swapaxes(result, 0, 1)
        return result if node.num_outputs == 1 else (result, np.mean(shares, axis=1))

    return attend


def _projections(node: PnnxNode) -> tuple[list[Array], list[Array | None]]:
    """The weights and biases of query, key and value."""
    whole = node.find_array("in_proj_weight")
    names = [f"{name}_proj_weight" for name in "qkv"]
    weights = [node.array(name) for name in names] if whole is None else list(np.split(whole, 3))
    bias = node.find_array("in_proj_bias")
    return weights, [None] * 3 if bias is None else list(np.split(bias, 3))


def _heads(x: Array, heads: int) -> Array:
    """[batch, length, channels] -> [batch, heads, length, channels / heads]"""
    return np.swapaxes(x.reshape(*x.shape[:2], heads, -1), 1, 2)
