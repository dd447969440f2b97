"""What modules with ONNX kernels need: ``asyncexec.framework.onnx_kernels`` under the name of this package."""

from __future__ import annotations

from asyncexec.framework.onnx_kernels import (
    ML_DOMAIN,
    ONNX_DOMAIN,
    OnnxKernelFactory,
    OnnxKernelRegistration,
    OnnxNode,
    find_onnx_kernel,
    onnx_kernel,
)

__all__ = [
    "ML_DOMAIN",
    "ONNX_DOMAIN",
    "OnnxKernelFactory",
    "OnnxKernelRegistration",
    "OnnxNode",
    "find_onnx_kernel",
    "onnx_kernel",
]
