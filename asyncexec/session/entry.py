"""The entry of a signature: a generated function that takes values as they are fed, if none needs to be converted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any, Final

import numpy as np

from asyncexec.executor.plans.feed_growth import FeedGrowth
from asyncexec.framework import types
from asyncexec.graph.node import Tensor
from asyncexec.regions.source import MAX_STATEMENTS
from asyncexec.session.function_call_frame import exact_type, takes_lists
from asyncexec.session.large_feeds import MAX_BYTES

_FILE: Final = "<asyncexec entry>"


def write_entry(
    feeds: Sequence[Tensor], function: Callable[..., Any], growth: FeedGrowth | None = None
) -> FunctionType | None:
    """What takes the values of *feeds*, and calls *function* with them; it gives None if one is to be converted first.

    So it does if one is larger than *growth* has it, where that is given.  None where there are too many feeds to be
    looked at in one go, or where looking at a value is not enough.
    """
    if len(feeds) > MAX_STATEMENTS or (growth is not None and growth.of_sizes):
        return None
    names: dict[str, object] = {"function": function, "array": np.ndarray}
    lines: list[str] = []
    for number, tensor in enumerate(feeds):
        misfits = _misfits(tensor, number, names)
        if misfits is None:
            return None
        lines.append(f" if {' or '.join(misfits)}: return None\n")
    values = ", ".join(f"v{number}" for number in range(len(feeds)))
    text = f"def entry(values):\n [{values}] = values\n{''.join(lines)} return function({values})\n"
    module = compile(text, _FILE, "exec", dont_inherit=True)
    if growth is not None:
        growth.limit_by(lambda most: names.update({f"m{at}": min(each, MAX_BYTES) for at, each in most.items()}))
    return FunctionType(next(each for each in module.co_consts if isinstance(each, CodeType)), names)


def _misfits(tensor: Tensor, number: int, names: dict[str, object]) -> list[str] | None:
    """What is true of a value of *tensor* that is not to be taken as it is, as ``feed_converter`` has it."""
    dtype = tensor.dtype.base_dtype
    if dtype.is_opaque or dtype is types.string or takes_lists(tensor):
        return None
    value, known = f"v{number}", f"t{number}"
    kind = exact_type(tensor)
    if kind is not None:
        names[known] = kind
        return [f"type({value}) is not {known}"]
    names[known] = dtype.as_numpy_dtype
    misfits = [f"type({value}) is not array", f"{value}.dtype is not {known}"]
    dims = tensor.op.output_shapes[tensor.index].dims
    if dims is not None and None not in dims:
        names[f"s{number}"] = dims
        return [*misfits, f"{value}.shape != s{number}"]
    names[f"m{number}"] = MAX_BYTES
    misfits.append(f"not {value}.ndim" if dims is None else f"{value}.ndim != {len(dims)}")
    misfits += [f"{value}.shape[{axis}] != {size}" for axis, size in enumerate(dims or ()) if size is not None]
    return [*misfits, f"{value}.nbytes > m{number}"]
