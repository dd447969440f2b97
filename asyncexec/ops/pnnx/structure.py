"""What is in a PNNX graph beside arithmetic: attributes, tuples, the outputs, and what inference passes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asyncexec.framework.kernel import Kernel
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel


@pnnx_kernel("pnnx.Attribute")
def _attribute(node: PnnxNode) -> Kernel:
    names = [name for name in node.construction.attrs if name.startswith("@")]
    if len(names) != 1:
        raise node.error(f"expected one attribute, not {len(names)}")
    value = node.construction.attrs[names[0]]
    return lambda: value


@pnnx_kernel("pnnx.Output")
def _output(node: PnnxNode) -> Kernel:
    def outputs(*inputs: object) -> Any:
        found = tuple(_leaves(inputs))
        return found[0] if node.num_outputs == 1 else found

    return outputs


def _leaves(values: Any) -> Iterator[object]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _leaves(value)
        else:
            yield value


@pnnx_kernel("prim::TupleConstruct", "prim::ListConstruct")
def _tuple(node: PnnxNode) -> Kernel:
    return lambda *inputs: inputs


@pnnx_kernel("prim::TupleUnpack", "prim::ListUnpack")
def _unpack(node: PnnxNode) -> Kernel:
    return lambda values: values[0] if node.num_outputs == 1 else tuple(values)


@pnnx_kernel(
    "nn.Identity",
    "Tensor.clone",
    "torch.clone",
    "Tensor.contiguous",
    "Tensor.detach",
    "nn.Dropout",
    "nn.Dropout1d",
    "nn.Dropout2d",
    "nn.Dropout3d",
    "nn.AlphaDropout",
    "nn.FeatureAlphaDropout",
    "F.dropout",
    "F.dropout1d",
    "F.dropout2d",
    "F.dropout3d",
    "F.alpha_dropout",
    "F.feature_alpha_dropout",
)
def _pass_on(node: PnnxNode) -> Kernel:
    return lambda x: x
