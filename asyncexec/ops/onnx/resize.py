"""Resize and Upsample: axis by axis, each output a weighted sum of a few cells along the axis.

Which cells, and how much of each, depends only on the sizes, the scale and the attributes. Few cells are gathered and
added; many of a short axis are one product with a matrix of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.onnx.arrays import axis_of, need, wide
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel
from asyncexec.process.free_memory import check_array

_TRANSFORMS: Final = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)  # fmt: skip
_NEAREST: Final[dict[str, Callable[[Array], Array]]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
_SHORT: Final = 64  # cells of an axis that is multiplied with a matrix rather than gathered


@dataclass(frozen=True, slots=True)
class _Rules:
    """What the attributes of a node tell."""

    mode: str
    transform: str
    nearest: str
    cubic_a: float
    excludes_outside: bool
    antialias: bool
    extrapolation: float
    policy: str
    axes: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one axis becomes: its size, the scale, and the part of it that is seen."""

    axis: int
    size: int
    out: int
    scale: float
    region: tuple[float, float]

    def positions(self, rules: _Rules) -> Array:
        """Where in the input each output cell is; in single precision, as scales are: 3 / 0.6 is 5 there."""
        x, length = np.arange(self.out, dtype=np.float32), self.scale * self.size
        match rules.transform:
            case "align_corners":
                return x * (self.size - 1) / (self.out - 1) if self.out > 1 else x
            case "asymmetric":
                return x / self.scale
            case "tf_half_pixel_for_nn":
                return (x + 0.5) / self.scale
            case "pytorch_half_pixel":
                return (x + 0.5) / self.scale - 0.5 if self.out > 1 else np.zeros_like(x)
            case "half_pixel_symmetric":
                offset = self.size / 2 * (1 - self.out / length)
                return offset + (x + 0.5) / self.scale - 0.5
            case "tf_crop_and_resize":
                start, end = self.region
                if self.out > 1:
                    return start * (self.size - 1) + x * (end - start) * (self.size - 1) / (self.out - 1)
                return np.full_like(x, 0.5 * (start + end) * (self.size - 1))
        return (x + 0.5) / self.scale - 0.5

    def taps(self, rules: _Rules, positions: Array) -> tuple[Array, Array]:
        """The cells that each output takes, and how much of each: [outputs, cells]."""
        if rules.mode == "nearest":
            cells = _NEAREST[rules.nearest](positions)[:, np.newaxis]
            weights = np.ones_like(cells)
        else:
            stretch = max(1.0, 1 / self.scale) if rules.antialias else 1.0
            reach = 2 if rules.mode == "cubic" else 1
            first = np.floor(positions - reach * stretch) + 1
            count = 2 * math.ceil(reach * stretch) + (1 if stretch > 1 else 0)
            check_array((self.out, count), np.dtype(np.float64))
            cells = first[:, np.newaxis] + np.arange(count)
            distance = np.abs(cells - positions[:, np.newaxis]) / stretch
            weights = _cubic(distance, rules.cubic_a) if rules.mode == "cubic" else np.maximum(1 - distance, 0)
            if rules.excludes_outside:
                weights = weights * ((cells >= 0) & (cells < self.size))
            if rules.excludes_outside or stretch > 1:
                sums = weights.sum(1, keepdims=True)
                weights = weights / np.where(sums == 0, 1, sums)
        return np.clip(cells, 0, self.size - 1).astype(np.intp), weights


def _cubic(distance: Array, a: float) -> Array:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _resized(x: Array, plans: Sequence[_Plan], rules: _Rules) -> Array:
    out = x
    outside: list[tuple[int, Array]] = []
    # What becomes smaller goes first, so that there is less of it for the others.
    for plan in sorted(plans, key=lambda one: one.out / one.size):
        positions = plan.positions(rules)
        if rules.transform == "tf_crop_and_resize":
            outside.append((plan.axis, (positions < 0) | (positions > plan.size - 1)))
        cells, weights = plan.taps(rules, positions)
        check_array((*out.shape[: plan.axis], plan.out, *out.shape[plan.axis + 1 :]), out.dtype)
        out = np.take(out, cells[:, 0], plan.axis) if rules.mode == "nearest" else _summed(out, plan, cells, weights)
    for axis, where in outside:
        if where.any():
            out = np.where(where.reshape(-1, *(1,) * (x.ndim - axis - 1)), out.dtype.type(rules.extrapolation), out)
    return out


def _summed(x: Array, plan: _Plan, cells: Array, weights: Array) -> Array:
    """The weighted sums along the axis of *plan*."""
    if plan.size <= _SHORT or cells.shape[1] > 8:
        check_array((plan.out, plan.size), x.dtype)
        matrix = np.zeros((plan.out, plan.size))
        np.add.at(matrix, (np.arange(plan.out)[:, np.newaxis], cells), weights)
        matrix = matrix.astype(x.dtype)
        if plan.axis == x.ndim - 1:
            return np.asarray(np.matmul(x, matrix.T))
        after = x.shape[plan.axis + 1 :]
        rows = x.reshape(*x.shape[: plan.axis + 1], -1)
        return np.asarray(np.matmul(matrix, rows)).reshape(*x.shape[: plan.axis], plan.out, *after)
    factors = weights.astype(x.dtype)
    out: Array | None = None
    for k in range(cells.shape[1]):
        term = np.take(x, cells[:, k], plan.axis)
        term *= factors[:, k].reshape(-1, *(1,) * (x.ndim - plan.axis - 1))
        if out is None:
            out = term
        else:
            out += term
    assert out is not None
    return out


def _run(x: Array, plans: Sequence[_Plan], rules: _Rules) -> Array:
    needed = [plan for plan in plans if plan.out != plan.size or plan.scale != 1 or plan.region != (0.0, 1.0)]
    if not x.size and any(plan.out and not plan.size for plan in plans):
        raise InvalidArgumentError(f"an input of shape {list(x.shape)} cannot be made larger")
    sizes = list(x.shape)
    for plan in plans:
        sizes[plan.axis] = plan.out
    check_array([max(1, size) for size in sizes], x.dtype)
    cells = x if rules.mode == "nearest" else wide(x)
    if cells.dtype.kind in "iub" and rules.mode != "nearest":
        info = np.iinfo(x.dtype)
        out = np.trunc(_resized(cells.astype(np.float64), needed, rules))
        return np.clip(out, info.min, info.max).astype(x.dtype)
    return _resized(cells, needed, rules).astype(x.dtype, copy=False)


def _rules(node: OnnxNode) -> _Rules:
    axes = node.attr("axes")
    default = "asymmetric" if node.opset < 11 else "half_pixel"
    rules = _Rules(
        node.text("mode", "nearest"),
        node.text("coordinate_transformation_mode", default),
        "floor" if node.opset < 11 else node.text("nearest_mode", "round_prefer_floor"),
        node.attr("cubic_coeff_a", -0.75),
        bool(node.attr("exclude_outside", 0)),
        bool(node.attr("antialias", 0)),
        node.attr("extrapolation_value", 0.0),
        node.text("keep_aspect_ratio_policy", "stretch"),
        None if axes is None else tuple(axes),
    )
    need(rules.mode in ("nearest", "linear", "cubic"), f"mode must be nearest, linear or cubic, not {rules.mode!r}")
    need(rules.transform in _TRANSFORMS, f"coordinate_transformation_mode {rules.transform!r} is unknown")
    need(rules.nearest in _NEAREST, f"nearest_mode {rules.nearest!r} is unknown")
    need(rules.policy in ("stretch", "not_larger", "not_smaller"), f"policy {rules.policy!r} is unknown")
    need(not (rules.antialias and rules.mode == "nearest"), "mode nearest has no antialias")
    return rules


def _numbers(values: object, count: int, what: str) -> list[float]:
    found = np.asarray(values).reshape(-1).tolist()
    need(len(found) == count, f"{what} must have {count} numbers, not {len(found)}")
    need(all(math.isfinite(value) for value in found), f"{what} must be finite: {found}")
    return found


def _plans(x: Array, rules: _Rules, roi: Any, scales: Any, sizes: Any) -> list[_Plan]:
    axes = [axis_of(axis, x.ndim) for axis in rules.axes] if rules.axes is not None else list(range(x.ndim))
    need(len(set(axes)) == len(axes), f"axes repeat: {axes}")
    region = [0.0] * len(axes) + [1.0] * len(axes)
    if rules.transform == "tf_crop_and_resize":
        need(roi is not None and np.size(roi) > 0, "tf_crop_and_resize needs roi")
        region = _numbers(roi, 2 * len(axes), "roi")
    has_sizes, has_scales = (one is not None and np.size(one) > 0 for one in (sizes, scales))
    need(has_sizes != has_scales or not axes, "one of scales and sizes must be given")
    if has_scales:
        factors = _numbers(scales, len(axes), "scales")
        need(all(factor > 0 for factor in factors), f"scales must be positive: {factors}")
        # The product is that of the scales' own type: 0.6 of 5 cells are 3, though a little less in double precision.
        lengths = [np.float32(x.shape[axis]) * np.float32(factor) for axis, factor in zip(axes, factors, strict=True)]
        need(all(map(math.isfinite, lengths)), f"scales are too large: {factors}")
        outs = [math.floor(length) for length in lengths]
    else:
        outs = [int(n) for n in _numbers(sizes, len(axes), "sizes")]
        need(all(n >= 0 for n in outs), f"sizes must not be negative: {outs}")
        need(all(x.shape[axis] for axis in axes), f"an input of shape {list(x.shape)} has no scale to a size")
        factors = [n / x.shape[axis] for axis, n in zip(axes, outs, strict=True)]
        if rules.policy != "stretch":
            factor = min(factors) if rules.policy == "not_larger" else max(factors)
            factors = [factor] * len(axes)
            outs = [int(factor * x.shape[axis] + 0.5) for axis in axes]
    return [
        _Plan(axis, x.shape[axis], outs[i], factors[i], (region[i], region[len(axes) + i]))
        for i, axis in enumerate(axes)
    ]


@onnx_kernel("Resize", since=11, kind=KernelKind.EXPENSIVE)
def make_resize(node: OnnxNode) -> Kernel:
    """The kernel of Resize."""
    rules = _rules(node)

    def kernel(x: Array, roi: object = None, scales: object = None, sizes: object = None) -> tuple[Array]:
        return (_run(x, _plans(x, rules, roi, scales, sizes), rules),)

    return kernel


@onnx_kernel("Upsample", since=9, kind=KernelKind.EXPENSIVE)
@onnx_kernel("Resize", since=10, kind=KernelKind.EXPENSIVE)
def make_resize_by_scales(node: OnnxNode) -> Kernel:
    """The kernel of Resize and Upsample before 11: scales alone, and pixels at their corners."""
    rules = _rules(node)
    return lambda x, scales: (_run(x, _plans(x, rules, None, scales, None), rules),)


@onnx_kernel("Upsample", since=7, kind=KernelKind.EXPENSIVE)
def make_first_upsample(node: OnnxNode) -> Kernel:
    """The kernel of Upsample before 9: the scales are an attribute."""
    rules, scales = _rules(node), node.attr("scales", ())
    return lambda x: (_run(x, _plans(x, rules, None, scales, None), rules),)
