"""The rules of the optimizers: what the values of the variables become, given a gradient.

A rule takes the values of the variables, in the order of the op's inputs, and everything else the op is given: inputs
by name, and the attrs that change the rule.  It returns the new values in the same order and changes none in place, so
the same rule serves whole variables, pieces of them, and the rows that a sparse gradient names.  What it has made
itself it changes in place.  Formulas from ``tensorflow/core/kernels/training_ops.cc``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, SupportsFloat, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array

Values: TypeAlias = Sequence[Any]
Rule: TypeAlias = Callable[[Values, Mapping[str, Any]], Values]

OUT: Final = "out"  # among what an op is given: arrays for the new values, which a rule may use


def _outs(given: Mapping[str, Any], count: int) -> Sequence[Any]:
    """Where the new values may be written: arrays, or None for new ones."""
    outs: Sequence[object] = given.get(OUT) or (None,) * count
    return outs


def _nearer(mean: Any, value: Any, share: object, out: Any = None) -> Array:
    """``mean + (value - mean) * share``."""
    step = np.subtract(value, mean, out=out)
    step *= share
    step += mean
    return step


def _decayed(total: Array, decay: np.generic, value: object, out: Any = None) -> Array:
    """``total * decay + value``."""
    decayed = np.multiply(total, decay, out=out)
    decayed += value
    return decayed


def _quotient(step: object, squares: Any, epsilon: object) -> Any:
    """``step / (sqrt(squares) + epsilon)``, in *step*."""
    root = np.sqrt(squares)
    root += epsilon
    step /= root
    return step


def gradient_descent(values: Values, given: Mapping[str, Any]) -> Values:
    """One step against the gradient."""
    (out,) = _outs(given, 1)
    return [np.subtract(values[0], np.multiply(given["delta"], given["alpha"], out=out), out=out)]


def momentum(values: Values, given: Mapping[str, Any]) -> Values:
    """A step by the decayed sum of the gradients."""
    var, accum = values
    rate, grad, decay = given["lr"], given["grad"], given["momentum"]
    out, accum_out = _outs(given, 2)
    accum = _decayed(accum, decay, grad, accum_out)
    step = grad * rate + accum * decay * rate if given["use_nesterov"] else np.multiply(accum, rate, out=out)
    return [np.subtract(var, step, out=out), accum]


def keras_momentum(values: Values, given: Mapping[str, Any]) -> Values:
    """As ``momentum``, with the rate within the sum."""
    var, accum = values
    rate, grad, decay = given["lr"], given["grad"], given["momentum"]
    accum = accum * decay - grad * rate
    return [var + (accum * decay - grad * rate if given["use_nesterov"] else accum), accum]


def adadelta(values: Values, given: Mapping[str, Any]) -> Values:
    """The step is scaled by the former steps over the gradients."""
    var, accum, accum_update = values
    rho, epsilon, grad = given["rho"], given["epsilon"], given["grad"]
    accum = accum * rho + np.square(grad) * (1 - rho)
    update = np.sqrt(accum_update + epsilon) * (1 / np.sqrt(accum + epsilon)) * grad
    return [var - update * given["lr"], accum, accum_update * rho + np.square(update) * (1 - rho)]


def adagrad(values: Values, given: Mapping[str, Any]) -> Values:
    """The step is divided by the root of the sum of squares."""
    var, accum = values
    grad, (out, accum_out) = given["grad"], _outs(given, 2)
    if given["update_slots"]:
        accum = _decayed(grad, grad, accum, accum_out)
    step = np.multiply(grad, given["lr"], out=out)
    step *= 1 / np.sqrt(accum)
    return [np.subtract(var, step, out=out), accum]


def adagrad_v2(values: Values, given: Mapping[str, Any]) -> Values:
    """As ``adagrad``, with epsilon beside the root."""
    var, accum = values
    grad, (out, accum_out) = given["grad"], _outs(given, 2)
    if given["update_slots"]:
        accum = _decayed(grad, grad, accum, accum_out)
    step = _quotient(np.multiply(grad, given["lr"], out=out), accum, given["epsilon"])
    return [np.subtract(var, step, out=out), accum]


def adagrad_da(values: Values, given: Mapping[str, Any]) -> Values:
    """Adagrad by dual averaging: the variable follows from the sums alone."""
    _, total, squares = values
    grad, rate, l1 = given["grad"], given["lr"], given["l1"]
    step = rate.dtype.type(given["global_step"])
    total, squares = total + grad, squares + np.square(grad)
    shrunk = np.sign(total) * np.maximum(np.abs(total) - step * l1, 0) if l1 > 0 else total
    return [-rate * shrunk / (given["l2"] * (step * rate) + np.sqrt(squares)), total, squares]


def _proximal(var: Any, rate: Any, l1: Any, l2: SupportsFloat) -> Array:
    """What is nearest to *var* when its first and second norms cost."""
    shrunk = np.sign(var) * np.maximum(np.abs(var) - rate * l1, 0) if l1 > 0 else var
    return shrunk / (1 + l2 * rate)


def proximal_gradient_descent(values: Values, given: Mapping[str, Any]) -> Values:
    """Gradient descent, then ``_proximal``."""
    grad = given["delta"] if "delta" in given else given["grad"]
    return [_proximal(values[0] - grad * given["alpha"], given["alpha"], given["l1"], given["l2"])]


def proximal_adagrad(values: Values, given: Mapping[str, Any]) -> Values:
    """Adagrad, then ``_proximal``."""
    var, accum = values
    grad = given["grad"]
    accum = accum + np.square(grad)
    rate = given["lr"] * (1 / np.sqrt(accum))
    return [_proximal(var - grad * rate, rate, given["l1"], given["l2"]), accum]


def ftrl(values: Values, given: Mapping[str, Any]) -> Values:
    """Follow the regularized leader; with ``l2_shrinkage`` the second version of the op."""
    var, accum, linear = values
    grad, rate, power = given["grad"], given["lr"], given["lr_power"]
    scales_linear = given["multiply_linear_by_lr"]
    l1, l2 = (given["l1"] * rate, given["l2"] * rate) if scales_linear else (given["l1"], given["l2"])
    shrunk = grad + 2 * given["l2_shrinkage"] * var if "l2_shrinkage" in given else grad
    new_accum = accum + np.square(grad)
    root, old_root = (np.sqrt(a) if power == -0.5 else np.power(a, -power) for a in (new_accum, accum))
    if scales_linear:
        linear = linear + (shrunk * rate - (root - old_root) * var)
        quadratic = root + 2 * l2
    else:
        linear = linear + (shrunk - (root - old_root) / rate * var)
        quadratic = root / rate + 2 * l2
    var = np.where(np.abs(linear) > l1, (l1 * np.sign(linear) - linear) / quadratic, np.zeros_like(linear))
    return [var, new_accum, linear]


def _adam_rate(given: Mapping[str, Any]) -> Any:
    return given["lr"] * np.sqrt(1 - given["beta2_power"]) / (1 - given["beta1_power"])


def adam(values: Values, given: Mapping[str, Any]) -> Values:
    """The decayed mean of the gradients over the root of that of their squares."""
    var, m, v = values
    grad, beta1, beta2 = given["grad"], given["beta1"], given["beta2"]
    out, m_out, v_out = _outs(given, 3)
    m, v = _nearer(m, grad, 1 - beta1, m_out), _nearer(v, np.square(grad), 1 - beta2, v_out)
    towards = grad * (1 - beta1) + beta1 * m if given["use_nesterov"] else m
    step = _quotient(np.multiply(towards, _adam_rate(given), out=out), v, given["epsilon"])
    return [np.subtract(var, step, out=out), m, v]


def adam_with_amsgrad(values: Values, given: Mapping[str, Any]) -> Values:
    """As ``adam``, over the greatest mean of squares so far."""
    var, m, v, vhat = values
    grad = given["grad"]
    m, v = _nearer(m, grad, 1 - given["beta1"]), _nearer(v, np.square(grad), 1 - given["beta2"])
    vhat = np.maximum(vhat, v)
    return [var - _quotient(m * _adam_rate(given), vhat, given["epsilon"]), m, v, vhat]


def ada_max(values: Values, given: Mapping[str, Any]) -> Values:
    """As ``adam``, over the decayed maximum of the gradients."""
    var, m, v = values
    grad = given["grad"]
    m = _nearer(m, grad, 1 - given["beta1"])
    v = np.maximum(given["beta2"] * v, np.abs(grad))
    return [var - given["lr"] / (1 - given["beta1_power"]) * (m / (v + given["epsilon"])), m, v]


def rms_prop(values: Values, given: Mapping[str, Any]) -> Values:
    """The gradient over the root of the mean of its squares."""
    var, ms, mom = values
    grad, (out, ms_out, mom_out) = given["grad"], _outs(given, 3)
    ms = _nearer(ms, np.square(grad), 1 - given["rho"], ms_out)
    root = np.add(ms, given["epsilon"], out=out)
    step = grad * given["lr"]
    step /= np.sqrt(root, out=out)
    mom = _decayed(mom, given["momentum"], step, mom_out)
    return [np.subtract(var, mom, out=out), ms, mom]


def centered_rms_prop(values: Values, given: Mapping[str, Any]) -> Values:
    """The gradient over an estimate of its deviation."""
    var, mg, ms, mom = values
    grad, fresh = given["grad"], 1 - given["rho"]
    ms, mg = _nearer(ms, np.square(grad), fresh), _nearer(mg, grad, fresh)
    mom = _decayed(mom, given["momentum"], grad * given["lr"] / np.sqrt(ms - np.square(mg) + given["epsilon"]))
    return [var - mom, mg, ms, mom]


def add_sign(values: Values, given: Mapping[str, Any]) -> Values:
    """A longer step where the gradient has the sign of its mean."""
    var, m = values
    grad = given["grad"]
    m = m * given["beta"] + grad * (1 - given["beta"])
    agrees = np.sign(grad) * np.sign(m)
    return [var - given["lr"] * (given["alpha"] + given["sign_decay"] * agrees) * grad, m]


def power_sign(values: Values, given: Mapping[str, Any]) -> Values:
    """As ``add_sign``, by a factor."""
    var, m = values
    grad = given["grad"]
    m = m * given["beta"] + grad * (1 - given["beta"])
    scale = np.exp(given["logbase"] * given["sign_decay"] * (np.sign(grad) * np.sign(m)))
    return [var - given["lr"] * scale * grad, m]
