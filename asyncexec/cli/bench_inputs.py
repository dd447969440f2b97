"""What a signature is called with when it is measured: made up by its dtypes and shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

from asyncexec.cli.feeds import feed_value, parse_feeds
from asyncexec.framework.errors import InvalidArgumentError

if TYPE_CHECKING:
    from asyncexec.importers.saved_model import TensorInfo
    from asyncexec.models.model import ModelSignature

MOST_ELEMENTS = 2**30


class Values(StrEnum):
    """What made-up inputs hold."""

    RANDOM = "random"
    ZEROS = "zeros"


def parse_shapes(arguments: Sequence[str]) -> dict[str, list[int]]:
    """``["x=1,3"]`` as ``{"x": [1, 3]}``; BadParameter where one reads otherwise."""
    found = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        sizes = text.split(",") if text else []
        if not name or not equals or not all(size.isascii() and size.isdecimal() and len(size) < 10 for size in sizes):
            raise typer.BadParameter(f"{argument!r} is not NAME=SIZE,SIZE, such as x=1,224,224,3", param_hint="--shape")
        found[name] = [int(size) for size in sizes]
    return found


def make_inputs(
    signature: ModelSignature, batch: int, feeds: Sequence[str], shapes: Mapping[str, Sequence[int]], values: Values
) -> dict[str, object]:
    """The inputs of *signature*: those in *feeds* as they are; others made up, of *shapes*, or by the signature's.

    A first size that is not known is *batch*, each other one 1.

    Raises:
        InvalidArgumentError: there is no such input; the shape or dtype of one is not known, and has to be told.
        typer.BadParameter: a feed cannot be read.
    """
    unknown = sorted(
        {each.partition("=")[0] for each in feeds if each.partition("=")[0] not in signature.inputs}
        | (shapes.keys() - signature.inputs.keys())
    )
    if unknown:
        known = ", ".join(signature.inputs) or "nothing"
        raise InvalidArgumentError(
            f"signature {signature.name!r} has no {', '.join(unknown)}", hint=f"it takes {known}"
        )
    told = {each.partition("=")[0]: each for each in feeds}
    return {
        name: _fed(told[name], info) if name in told else _made(name, info, batch, shapes.get(name), values)
        for name, info in signature.inputs.items()
    }


def _fed(argument: str, info: TensorInfo) -> object:
    (feed,) = parse_feeds([argument])
    return feed_value(feed, info.dtype)


def _made(name: str, info: TensorInfo, batch: int, shape: Sequence[int] | None, values: Values) -> object:
    import numpy as np

    if shape is None:
        if info.shape.dims is None:
            raise InvalidArgumentError(f"the shape of input {name!r} is not known", hint=f"--shape {name}=1,224,224,3")
        shape = [(batch if not at else 1) if size is None else size for at, size in enumerate(info.shape.dims)]
    if np.prod([float(size) for size in shape]) > MOST_ELEMENTS:
        raise InvalidArgumentError(f"input {name!r} of shape {list(shape)} has more than {MOST_ELEMENTS:,} elements")
    dtype = info.dtype.base_dtype
    if dtype.name == "string":
        return np.full(shape, b"", object)
    if dtype.name in ("resource", "variant"):
        raise InvalidArgumentError(f"input {name!r} is of dtype {dtype.name}, which no file has")
    if values is Values.ZEROS:
        return np.zeros(shape, dtype.as_numpy_dtype)
    rng = np.random.default_rng(0)
    numbers = rng.random(shape) if dtype.is_floating or dtype.is_complex else rng.integers(0, 2, shape)
    return np.asarray(numbers).astype(dtype.as_numpy_dtype)
