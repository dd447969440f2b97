"""What is large in a checkpoint, such as open windows and states by key, on its way to the record and back.

In a position of a source, or in place of a state, a ``HeldContent`` stands for its content.  Before a record is stored,
the contents are gathered, in slices, and become values of the record of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from asyncexec.durable.record import Record
from asyncexec.framework.cooperative import Stage
from asyncexec.framework.errors import DataLossError
from asyncexec.framework.held_content import Held, HeldContent, held

_HELD: Final = "held"  # the part of a record that tells of them
_OBJECT_BYTES: Final = 64  # of one in a list, at a guess


def with_contents(record: Record) -> Stage[Record]:
    """*record* with the contents that it has yet to gather, as a stage."""
    about, values = dict(record.about), dict(record.values)
    told: dict[str, object] = dict(about.get(_HELD, {}))
    positions = about.get("positions")
    if isinstance(positions, HeldContent):
        about["positions"] = None
        yield from _gather(told, values, "positions", positions)
    elif isinstance(positions, Mapping):
        about["positions"] = plain = dict(positions)
        for name, position in positions.items():
            if isinstance(position, HeldContent):
                plain[name] = None
                yield from _gather(told, values, f"position {name!r}", position)
    for name, value in record.values.items():
        if isinstance(value, HeldContent):
            values[name] = None
            yield from _gather(told, values, name, value)
    if told:
        about[_HELD] = told
    return Record(about, values)


def _gather(told: dict[str, object], values: dict[str, object], name: str, place: HeldContent) -> Stage[None]:
    content = yield from held(place)
    told[name] = [content.about, len(content.values)]
    values |= {f"{name} {i}": value for i, value in enumerate(content.values)}


def contents_in(record: Record) -> Record:
    """*record* as it was before ``with_contents``, with what has been gathered.

    Raises:
        DataLossError: the record tells of contents that it has not.
    """
    told = record.about.get(_HELD)
    if not told:
        return record
    about, values = dict(record.about), dict(record.values)
    try:
        positions = about["positions"]
        for name, (content, count) in told.items():
            found = Held(content, [values.pop(f"{name} {i}") for i in range(count)])
            if name == "positions":
                about["positions"] = found
            elif name in values:
                values[name] = found
            else:
                place = next(each for each in positions if name == f"position {each!r}")
                about["positions"] = positions = {**positions, place: found}
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise DataLossError(f"a checkpoint is damaged: {error!r} is wrong") from error
    del about[_HELD]
    return Record(about, values)


def size_of(record: Record) -> int:
    """The bytes of *record*, roughly."""
    return sum(
        len(value) * _OBJECT_BYTES if isinstance(value, list) else int(getattr(value, "nbytes", 0))
        for value in record.values.values()
    )
