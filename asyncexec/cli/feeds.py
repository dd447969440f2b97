"""What ``--feed`` and ``--device-count`` mean: NAME=VALUE, NAME=@FILE.npy, NAME=@FILE.npz:KEY, TYPE=COUNT."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import typer

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array
    from asyncexec.framework.types import DType

MAX_DEVICES: Final = 1024  # of a type


class FeedArgument(NamedTuple):
    """One ``--feed``: the tensor it names and the text that tells the value."""

    tensor_name: str
    text: str


def parse_feed(argument: str) -> FeedArgument:
    """Split NAME=VALUE; BadParameter when there is no name or no equals sign."""
    name, equals, text = argument.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{argument!r} is not NAME=VALUE, NAME=@FILE.npy or NAME=@FILE.npz:KEY")
    return FeedArgument(name if ":" in name else f"{name}:0", text)


def parse_feeds(arguments: Iterable[str]) -> list[FeedArgument]:
    """``parse_feed`` of each; BadParameter when a tensor is fed twice."""
    feeds: dict[str, FeedArgument] = {}
    for feed in map(parse_feed, arguments):
        if feed.tensor_name in feeds:
            raise typer.BadParameter(f"{feed.tensor_name} is fed twice")
        feeds[feed.tensor_name] = feed
    return list(feeds.values())


def feed_value(feed: FeedArgument, dtype: DType) -> object:
    """The value that *feed* tells, as a tensor of *dtype*.

    Raises:
        typer.BadParameter: the file cannot be read, or the text is no value of that type.
    """
    if feed.text.startswith("@"):
        return _as_tensor(_load(feed.text[1:]), dtype, feed)
    try:
        value = json.loads(feed.text)
    except json.JSONDecodeError as error:
        if dtype.base_dtype.name != "string":
            raise typer.BadParameter(
                f"{feed.text!r} is not a JSON value for {feed.tensor_name} ({dtype.name}): {error}"
            ) from error
        value = feed.text
    return _as_tensor(value, dtype, feed)


def _load(reference: str) -> Array:
    import numpy as np

    path, key = reference, ""
    if not Path(reference).exists() and ":" in reference:
        path, _, key = reference.rpartition(":")
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot read {path}: {error}") from error
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded as archive:
        if key not in archive:
            raise typer.BadParameter(f"name one of the arrays of {path}: @{path}:KEY with {', '.join(archive.files)}")
        array: Array = archive[key]
        return array


def _as_tensor(value: object, dtype: DType, feed: FeedArgument) -> object:
    import numpy as np

    try:
        if dtype.base_dtype.name == "string":
            array = _as_bytes(np.asarray(value, object))
        else:
            array = np.asarray(_exactly(value, dtype.base_dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise typer.BadParameter(
            f"{feed.text!r} is not a value for {feed.tensor_name} ({dtype.name}): {error}"
        ) from error
    return array[()] if array.ndim == 0 else array


def _exactly(value: object, dtype: DType) -> object:
    """*value* as a tensor of *dtype*; what would not survive is refused (fractions as integers, numbers as bool)."""
    import numpy as np

    array = np.asarray(value)
    if array.dtype.kind not in ("b" if dtype.is_bool else "biufc" if dtype.is_complex else "biuf") and array.size:
        raise TypeError(f"it is of type {array.dtype}")
    with np.errstate(all="ignore"):
        converted = array.astype(dtype.as_numpy_dtype)
    if dtype.is_integer and not np.array_equal(converted.astype(np.float64), array.astype(np.float64)):
        raise TypeError(f"it does not fit {dtype.name}")
    return converted


def _as_bytes(array: Array) -> Array:
    encoded = array.copy()
    for index, item in enumerate(array.flat):
        encoded.flat[index] = item.encode() if isinstance(item, str) else _bytes_only(item)
    return encoded


def _bytes_only(item: object) -> bytes:
    if isinstance(item, bytes):
        return item
    raise TypeError(f"{item!r} is not a string")


def parse_device_count(arguments: Iterable[str]) -> Mapping[str, int]:
    """``["CPU=2"]`` as ``{"CPU": 2}``; BadParameter when it reads otherwise."""
    counts = {}
    for argument in arguments:
        kind, _, count = argument.partition("=")
        if not kind or not count.isdecimal():
            raise typer.BadParameter(f"{argument!r} is not TYPE=COUNT, such as CPU=2")
        if len(count) > 4 or int(count) > MAX_DEVICES:
            raise typer.BadParameter(f"{argument!r}: there can be {MAX_DEVICES} devices of a type at most")
        counts[kind.upper()] = int(count)
    return counts
