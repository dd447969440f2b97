"""``models.yolo.Detect``: the head of YOLOv5, which PNNX keeps as one operator (``moduleop=models.yolo.Detect``).

PNNX numbers the tensors that the module has beside its parameters, in the order in which they are used or the other way
round: the cells of the grid of the first stage, the strides, the sizes of the anchors of the first stage, then grid and
anchors of each stage that follows.
"""

from __future__ import annotations

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.pnnx.arithmetic import sigmoid
from asyncexec.ops.pnnx.convolution import Convolution
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel


def _in_order_of_use(node: PnnxNode) -> tuple[Array, list[Array]]:
    """The strides; and grid and anchors of each stage, one after the other."""
    prefix = "@pnnx_"
    names = [name for name in node.construction.attrs if name.startswith(prefix) and name[len(prefix) :].isdecimal()]
    arrays = [node.array(name[1:]) for name in sorted(names, key=lambda name: int(name[len(prefix) :]))]
    places = [place for place, array in enumerate(arrays) if array.ndim == 1]
    if len(arrays) != 2 * node.num_inputs + 1 or places not in ([1], [len(arrays) - 2]):
        raise node.error(f"{len(arrays)} tensors are not strides, grids and anchors of {node.num_inputs} stages")
    if places != [1]:
        arrays.reverse()
    strides = arrays.pop(1)
    if len(strides) != node.num_inputs or any(array.ndim != 5 for array in arrays):
        raise node.error("strides, grids and anchors do not fit the stages")
    return strides, arrays


@pnnx_kernel("models.yolo.Detect", kind=KernelKind.EXPENSIVE)
def _detect(node: PnnxNode) -> Kernel:
    strides, arrays = _in_order_of_use(node)
    stages = []
    for stage, (grid, anchors) in enumerate(zip(arrays[::2], arrays[1::2], strict=True)):
        weight, bias = node.array(f"m.{stage}.weight"), node.array(f"m.{stage}.bias")
        if weight.ndim != 4 or len(weight) % anchors.shape[1]:
            raise node.error(f"the filters and anchors of stage {stage} do not fit together")
        stages.append((weight, bias, grid, anchors, strides[stage]))
    convolve = Convolution((1, 1), [(0, 0), (0, 0)], (1, 1), 1)

    def detect(*inputs: Array) -> Array:
        found = []
        for x, (weight, bias, grid, anchors, stride) in zip(inputs, stages, strict=True):
            out = np.asarray(sigmoid(convolve(x, weight, bias)))
            batch, _, height, width = out.shape
            out = out.reshape(batch, anchors.shape[1], -1, height, width).transpose(0, 1, 3, 4, 2)
            place = (out[..., 0:2] * 2 + grid) * stride
            size = np.square(out[..., 2:4] * 2) * anchors
            found.append(np.concatenate([place, size, out[..., 4:]], -1).reshape(batch, -1, out.shape[-1]))
        return np.concatenate(found, 1)

    return detect
