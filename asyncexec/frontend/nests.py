"""Nests of values: lists, tuples, named tuples, mappings, dataclasses and None, in one another.

After ``tensorflow/python/util/nest.py``.  Whatever is none of these is a leaf.  None is a nest without leaves.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from asyncexec.framework.errors import InvalidTypeError


def members(nest: object) -> list[tuple[str, Any]] | None:
    """The members of *nest*, each with the way to it, such as ``[0]`` or ``.x``; None when *nest* is a leaf."""
    if nest is None:
        return []
    if isinstance(nest, Mapping):
        return [(f"[{key!r}]", value) for key, value in nest.items()]
    if isinstance(nest, (list, tuple)):
        names = getattr(nest, "_fields", None)
        if names is None:
            return [(f"[{index}]", value) for index, value in enumerate(nest)]
        return [(f".{name}", value) for name, value in zip(names, nest, strict=True)]
    if dataclasses.is_dataclass(nest) and not isinstance(nest, type):
        return [(f".{field.name}", getattr(nest, field.name)) for field in dataclasses.fields(nest) if field.init]
    return None


def flatten(nest: object) -> list[Any]:
    """The leaves of *nest*, in order."""
    return [leaf for _, leaf in leaves(nest)]


def leaves(nest: object, where: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of *nest*, in order, each with the way to it, which begins with *where*."""
    found = members(nest)
    if found is None:
        yield where, nest
        return
    for step, member in found:
        yield from leaves(member, where + step)


def flatten_like(
    reference: object, nest: object, where: str, whose: str = "the other", *, exactly: bool = True
) -> list[Any]:
    """What *nest* has in place of each leaf of *reference*, in order; leaves too, if *exactly*.

    Raises:
        InvalidTypeError: the structures differ; it names the place, from *where* on, and what *whose* structure has.
    """
    return list(_matched(reference, nest, where, whose, exactly))


def _matched(reference: object, nest: object, where: str, whose: str, exactly: bool) -> Iterator[object]:
    wanted, found = members(reference), members(nest)
    if wanted is None:
        if exactly and found is not None:
            raise _mismatch(where, nest, reference, whose)
        yield nest
        return
    if found is None or not _is_same_kind(reference, nest):
        raise _mismatch(where, nest, reference, whose)
    others = dict(found)
    if [step for step, _ in wanted if step not in others] or len(others) != len(wanted):
        raise InvalidTypeError(f"{where} has {_keys(found)}, but {whose} has {_keys(wanted)}")
    for step, member in wanted:
        yield from _matched(member, others[step], where + step, whose, exactly)


def _is_same_kind(reference: object, nest: object) -> bool:
    if isinstance(reference, Mapping):
        return isinstance(nest, Mapping)
    return type(reference) is type(nest)


def _keys(found: Sequence[tuple[str, object]]) -> str:
    return ", ".join(step for step, _ in found) or "no members"


def _mismatch(where: str, nest: object, reference: object, whose: str) -> InvalidTypeError:
    return InvalidTypeError(f"{where} is {_kind(nest)}, but {whose} is {_kind(reference)}")


def _kind(nest: object) -> str:
    if nest is None:
        return "None"
    found = members(nest)
    if found is None:
        return f"a single value ({type(nest).__name__})"
    return f"a {type(nest).__name__} of {len(found)}"


def pack(reference: object, values: Sequence[object]) -> Any:
    """A nest like *reference* with *values* for its leaves."""
    return _packed(reference, iter(values))


def _packed(reference: object, values: Iterator[object]) -> Any:
    found = members(reference)
    if reference is None:
        return None
    if found is None:
        return next(values)
    parts = [_packed(member, values) for _, member in found]
    kind: Any = type(reference)
    if isinstance(reference, Mapping):
        if isinstance(reference, defaultdict):
            kind = partial(defaultdict, reference.default_factory)
        elif not isinstance(reference, dict):
            kind = dict
        return kind(zip(reference, parts, strict=True))
    if hasattr(reference, "_fields"):
        return kind(*parts)
    if isinstance(reference, (list, tuple)):
        return kind(parts)
    return kind(**{step[1:]: part for (step, _), part in zip(found, parts, strict=True)})
