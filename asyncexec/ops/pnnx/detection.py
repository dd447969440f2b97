"""``models.yolo.Detect``: the head of YOLOv5, which PNNX keeps as one operator (``moduleop=models.yolo.Detect``).

PNNX numbers the tensors that the module makes while it is traced.  Of three stages, these are the strides, and for each
stage the cells of its grid and the sizes of its anchors.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.pnnx.arithmetic import sigmoid
from asyncexec.ops.pnnx.convolution import Convolution
from asyncexec.ops.pnnx.pnnx_kernels import Array, PnnxNode, pnnx_kernel

_STRIDES: Final = "pnnx_5"
_GRIDS: Final = ("pnnx_6", "pnnx_3", "pnnx_1")
_ANCHORS: Final = ("pnnx_4", "pnnx_2", "pnnx_0")


@pnnx_kernel("models.yolo.Detect", kind=KernelKind.EXPENSIVE)
def _detect(node: PnnxNode) -> Kernel:
    strides = node.array(_STRIDES)
    if node.num_inputs != len(_GRIDS) or strides.size != len(_GRIDS):
        raise node.error(f"it has {node.num_inputs} inputs and {strides.size} strides, not {len(_GRIDS)} of each")
    stages = []
    for stage, (grid, anchors) in enumerate(zip(_GRIDS, _ANCHORS, strict=True)):
        weight, bias = node.array(f"m.{stage}.weight"), node.array(f"m.{stage}.bias")
        sizes = node.array(anchors)
        if weight.ndim != 4 or sizes.ndim != 5 or len(weight) % sizes.shape[1]:
            raise node.error(f"the filters and anchors of stage {stage} do not fit together")
        stages.append((weight, bias, node.array(grid), sizes, strides[stage]))
    convolve = Convolution((1, 1), [(0, 0), (0, 0)], (1, 1), 1)

    def detect(*inputs: Array) -> Array:
        found = []
        for x, (weight, bias, grid, sizes, stride) in zip(inputs, stages, strict=True):
            out = np.asarray(sigmoid(convolve(x, weight, bias)))
            batch, _, height, width = out.shape
            out = out.reshape(batch, sizes.shape[1], -1, height, width).transpose(0, 1, 3, 4, 2)
            place = (out[..., 0:2] * 2 + grid) * stride
            size = np.square(out[..., 2:4] * 2) * sizes
            found.append(np.concatenate([place, size, out[..., 4:]], -1).reshape(batch, -1, out.shape[-1]))
        return np.concatenate(found, 1)

    return detect
