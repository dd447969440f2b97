"""The windows of ONNX's convolutions and poolings: channels-first, with pads, ``auto_pad`` and ``ceil_mode``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from asyncexec.ops.array.windows import Axis
from asyncexec.ops.onnx.arrays import need
from asyncexec.ops.onnx.onnx_kernels import OnnxNode

_AUTO_PADS: Final = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True, slots=True)
class OnnxWindows:
    """What the attributes of a node tell of its windows; an empty tuple where they leave something to the rank.

    Attributes:
        pads: those before each spatial axis, then those after.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    auto_pad: str
    ceil_mode: bool

    def axes(self, sizes: Sequence[int], kernel: Sequence[int]) -> tuple[Axis, ...]:
        """The windows over axes of those *sizes*; InvalidArgumentError where the attributes do not fit them."""
        rank = len(sizes)
        need(len(kernel) == rank, f"the window has {len(kernel)} axes, the input {rank} spatial ones")
        need(all(one > 0 for one in kernel), f"a window must not be empty: {list(kernel)}")
        if self.kernel:
            need(self.kernel == tuple(kernel), f"kernel_shape is {list(self.kernel)}, the filter's {list(kernel)}")
        strides, dilations = self.numbers("strides", rank), self.numbers("dilations", rank)
        pads = self.pads or (0,) * 2 * rank
        need(len(pads) == 2 * rank, f"pads must have {2 * rank} numbers, not {list(pads)}")
        return tuple(
            self._axis(size, window, stride, dilation, before, after)
            for size, window, stride, dilation, before, after in zip(
                sizes, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True
            )
        )

    def numbers(self, name: str, rank: int) -> tuple[int, ...]:
        """The strides or dilations, one an axis."""
        values: tuple[int, ...] = getattr(self, name) or (1,) * rank
        need(len(values) == rank, f"{name} must have {rank} numbers, not {list(values)}")
        return values

    def _axis(self, size: int, kernel: int, stride: int, dilation: int, before: int, after: int) -> Axis:
        reach = (kernel - 1) * dilation + 1
        if self.auto_pad.startswith("SAME"):
            out = -(-size // stride)
            pad = max(0, (out - 1) * stride + reach - size)
            before = pad // 2 if self.auto_pad == "SAME_UPPER" else pad - pad // 2
            return Axis(size, kernel, stride, dilation, out, before, pad - before)
        if self.auto_pad == "VALID":
            before = after = 0
        free = size + before + after - reach
        out = (-(-free // stride) if self.ceil_mode else free // stride) + 1
        if self.ceil_mode and (out - 1) * stride >= size + before:
            out -= 1  # it would begin in the pads at the end
        need(out >= 0, f"a window of {reach} cells does not fit into {size} with pads {before} and {after}")
        return Axis(size, kernel, stride, dilation, out, before, after)


def make_onnx_windows(node: OnnxNode) -> OnnxWindows:
    """The windows of *node*; InvalidArgumentError when its attributes cannot be right for any input."""
    auto_pad = node.text("auto_pad", "NOTSET")
    need(auto_pad in _AUTO_PADS, f"auto_pad must be one of {', '.join(_AUTO_PADS)}, not {auto_pad!r}")
    windows = OnnxWindows(
        tuple(node.attr("kernel_shape", ())),
        tuple(node.attr("strides", ())),
        tuple(node.attr("dilations", ())),
        tuple(node.attr("pads", ())),
        auto_pad,
        bool(node.attr("ceil_mode", 0)),
    )
    for name in ("strides", "dilations"):
        need(all(value > 0 for value in getattr(windows, name)), f"{name} must be positive")
    need(all(value >= 0 for value in windows.pads), f"pads must not be negative: {list(windows.pads)}")
    return windows
