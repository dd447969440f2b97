"""Tensors as short text, the way Assert and Print show them (``Tensor::SummarizeValue`` in ``tensor.cc``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType

_DIGITS: Final = {"float64": (15, 17)}
_FEWER_AND_MORE: Final = (6, 9)


def summarize_value(value: object, max_entries: int) -> str:
    """The first *max_entries* elements of *value* (all when negative), rows in brackets, ``...`` where cut."""
    array = _as_array(value)
    limit = array.size if max_entries < 0 else max_entries
    parts: list[str] = []
    if array.size:
        _show(array, limit, 0, _formatter(array.dtype), parts)
    return "".join(parts) + ("..." if array.size > limit else "")


def _as_array(value: object) -> Array:
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    array = np.empty((), object)
    array[()] = value
    return array


def _show(array: Array, limit: int, shown: int, text: Callable[[Any], str], parts: list[str]) -> int:
    """Append the elements of *array* until *limit* are shown; return how many are shown by then."""
    if array.ndim <= 1:
        row = array.reshape(-1)[: limit - shown]
        parts.append(" ".join(text(element) for element in row))
        return shown + len(row)
    for part in array:
        if shown >= limit:
            break
        parts.append("[")
        before, shown = shown, _show(part, limit, shown, text, parts)
        if part.ndim == 1 and shown - before < len(part):
            parts.append("...")
        parts.append("]")
    return shown


def _formatter(dtype: NumpyDType) -> Callable[[Any], str]:
    match dtype.kind:
        case "b":
            return lambda element: str(int(element))
        case "i" | "u":
            return str
        case "c":
            return lambda element: "?"
        case "O":
            return _opaque
    fewer, more = _DIGITS.get(dtype.name, _FEWER_AND_MORE)
    kept = np.float64 if dtype.name == "float64" else np.float32
    return lambda element: _float(kept(element), kept, fewer, more)


def _opaque(element: object) -> str:
    return element.decode("utf-8", "replace") if isinstance(element, bytes) else repr(element)


def _float(element: Any, kept: type[np.floating[Any]], fewer: int, more: int) -> str:
    """The shorter of two lengths of digits that still reads back as the same number."""
    short = f"{float(element):.{fewer}g}"
    return short if kept(short) == element or element != element else f"{float(element):.{more}g}"
