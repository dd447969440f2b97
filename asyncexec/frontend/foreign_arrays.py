"""Arrays of other libraries as numpy's, without a copy where there can be none: PyTorch's, and what knows DLPack."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import InvalidTypeError


def without_library(value: Any) -> Any:
    """*value* as a numpy array if it is an array of another library, else itself.

    A PyTorch tensor is detached from what its gradients need, and brought to the host.

    Raises:
        InvalidTypeError: numpy cannot have it.
    """
    if isinstance(value, (np.ndarray, np.generic)) or not hasattr(type(value), "__dlpack__"):
        return value
    try:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            return np.from_dlpack(value)
        tensor = value.detach().cpu()
        if tensor.dtype == torch.bfloat16:  # which numpy does not have of its own
            return tensor.view(torch.int16).numpy().view(types.bfloat16.as_numpy_dtype)
        return tensor.numpy()
    except Exception as error:  # whatever its library raises
        raise InvalidTypeError(f"numpy cannot take this {type(value).__name__}: {one_line(error)}") from error
