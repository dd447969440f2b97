"""What a checkpoint holds of something large: it is gathered in slices, while that goes on.

A source that has drawn values and not given them yet has its position so, and so have states by key.  Something small
stands for the content as it was at one moment; only if a checkpoint is stored, the content is gathered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.cooperative import Stage

# What JSON can have, and tensors or lists of objects.
Content: TypeAlias = tuple[Any, list[Any]]
CHUNK: Final = 2048  # values that are stored together


class HeldContent(ABC):
    """Stands for a content as it was at one moment."""

    __slots__ = ()

    @abstractmethod
    def content(self) -> Stage[Content]:
        """The content, as a stage: it may change meanwhile."""


class Held(HeldContent):
    """A content that was read from a checkpoint.

    Attributes:
        about: what JSON can have.
        values: tensors, or lists of objects.
    """

    def __init__(self, about: object, values: Sequence[object]) -> None:
        self.about: Any = about
        self.values: list[Any] = list(values)

    def content(self) -> Stage[Content]:
        yield from ()
        return self.about, self.values


def held(place: HeldContent) -> Stage[Held]:
    """The content that *place* stands for, as a stage."""
    return Held(*(yield from place.content()))


def packed(values: list[Any]) -> Any:
    """*values* as one tensor where they are alike, else as they are; ``unpacked`` gives them back."""
    kind = _kind(values[0])
    if kind is None or any(_kind(value) != kind for value in values):
        return values
    if kind is not bytes:
        return np.stack(values)
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _kind(value: object) -> object:
    """What values that can be in one tensor have in common; None for a value that is no tensor."""
    if type(value) is bytes:
        return bytes
    if not isinstance(value, (np.ndarray, np.generic)):
        return None
    is_tensor = value.dtype != np.object_ or (value.ndim and all(type(each) is bytes for each in value.flat))
    return (value.dtype, value.shape) if is_tensor else None


def in_chunks(values: list[object], pack: Callable[[list[Any]], object] = packed) -> Stage[list[Any]]:
    """*values*, packed in chunks, as a stage; those in a chunk are alike, or none of them is a tensor."""
    chunks: list[object] = []
    for start in range(0, len(values), CHUNK):
        chunk = values[start : start + CHUNK]
        found = pack(chunk)
        if found is chunk:
            chunks += [pack(list(alike)) for _, alike in groupby(chunk, _kind)]
        else:
            chunks.append(found)
        yield
    return chunks


def unpacked(chunks: Iterable[Any]) -> Iterator[Any]:
    """The values of which ``in_chunks`` has made *chunks*."""
    for chunk in chunks:
        yield from chunk
