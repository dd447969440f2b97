"""Adagrad, Adam and Momentum of ``ai.onnx.preview.training``: a step of several tensors at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.arrays import need, need_shape
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

TRAINING_DOMAIN: Final = "ai.onnx.preview.training"
_Step = Callable[..., tuple[Any, ...]]  # of rate, step number, tensor, gradient and states: the new tensor and states


def _for_each(step: _Step, states: int) -> Kernel:
    """A kernel that takes rate, step number, all tensors, all gradients, all of the first state, and so on."""

    def kernel(rate: Any, count: Any, *inputs: Array) -> tuple[object, ...]:
        need(
            bool(inputs) and not len(inputs) % (states + 2),
            f"{len(inputs)} inputs are not {states + 2} for each tensor",
        )
        tensors = len(inputs) // (states + 2)
        groups = [inputs[i * tensors : (i + 1) * tensors] for i in range(states + 2)]
        for parts in zip(*groups, strict=True):
            for part in parts[1:]:
                need_shape(part, np.shape(parts[0]), "gradient or state")
        r, t = np.reshape(rate, ()), int(np.reshape(count, ()))
        results = [step(r, t, *parts) for parts in zip(*groups, strict=True)]
        kept = [
            np.asarray(values[i]).astype(inputs[0].dtype, copy=False) for i in range(states + 1) for values in results
        ]
        return tuple(kept)

    return kernel


@onnx_kernel("Momentum", domain=TRAINING_DOMAIN)
def make_momentum(node: OnnxNode) -> Kernel:
    """The kernel of Momentum, plain or Nesterov's."""
    alpha, beta, decay = (node.attr(name, 0.0) for name in ("alpha", "beta", "norm_coefficient"))
    mode = node.text("mode")
    need(mode in ("standard", "nesterov"), f"mode must be standard or nesterov, not {mode!r}")

    def step(r: object, t: int, x: Array, g: Array, v: Array) -> tuple[Any, ...]:
        gradient = g + decay * x
        v = alpha * v + (beta if t > 0 else 1.0) * gradient
        return x - r * (gradient + alpha * v if mode == "nesterov" else v), v

    return _for_each(step, 1)


@onnx_kernel("Adagrad", domain=TRAINING_DOMAIN)
def make_adagrad(node: OnnxNode) -> Kernel:
    """The kernel of Adagrad."""
    decay, fading, epsilon = (
        node.attr("norm_coefficient", 0.0),
        node.attr("decay_factor", 0.0),
        node.attr("epsilon", 1e-6),
    )

    def step(r: object, t: int, x: Array, g: Array, h: Array) -> tuple[Any, ...]:
        gradient = g + decay * x
        h = h + gradient * gradient
        return x - r / (1 + t * fading) * gradient / (np.sqrt(h) + epsilon), h

    return _for_each(step, 1)


@onnx_kernel("Adam", domain=TRAINING_DOMAIN)
def make_adam(node: OnnxNode) -> Kernel:
    """The kernel of Adam."""
    alpha, beta, epsilon = node.attr("alpha", 0.9), node.attr("beta", 0.999), node.attr("epsilon", 1e-6)
    decay, decay_after = node.attr("norm_coefficient", 0.0), node.attr("norm_coefficient_post", 0.0)

    def step(r: object, t: int, x: Array, g: Array, v: Array, h: Array) -> tuple[Any, ...]:
        gradient = g + decay * x
        v = alpha * v + (1 - alpha) * gradient
        h = beta * h + (1 - beta) * gradient * gradient
        rate = r * np.sqrt(1 - beta**t) / (1 - alpha**t) if t > 0 else r
        return (1 - decay_after) * (x - rate * v / (np.sqrt(h) + epsilon)), v, h

    return _for_each(step, 2)
