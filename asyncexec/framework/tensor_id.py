"""Names of tensors and of control inputs: ``name:slot``, ``^name`` (``tensorflow/core/graph/tensor_id.cc``)."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from asyncexec.framework.errors import InvalidArgumentError

CONTROL_SLOT: Final = -1
MAX_NAME_LENGTH: Final = 10_000

_PART: Final = r"[A-Za-z0-9.][A-Za-z0-9_./-]*+"
_NAME: Final = rf"{_PART}(?:>{_PART})*+"
_NODE_NAME: Final = re.compile(_NAME)
_NODE_NAME_LINES: Final = re.compile(rf"(?:{_NAME}\n)*+")
_TENSOR_NAME: Final = re.compile(rf"(\^?)(_*{_NAME})(?::([0-9]+))?")


class TensorId(NamedTuple):
    """Output *slot* of node *name*; the slot of a control input is CONTROL_SLOT."""

    name: str
    slot: int

    @property
    def is_control(self) -> bool:
        return self.slot == CONTROL_SLOT

    def __str__(self) -> str:
        return f"^{self.name}" if self.slot == CONTROL_SLOT else f"{self.name}:{self.slot}"


def is_valid_node_name(name: str, *, allow_internal: bool = False) -> bool:
    """Whether *name* is a legal node name; names that begin with ``_`` are for nodes the runtime adds."""
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        return False
    if allow_internal:
        name = name.lstrip("_") or "x"
    return _NODE_NAME.fullmatch(name) is not None


def first_invalid_node_name(names: Collection[str]) -> str | None:
    """The first of *names* that is no legal node name, or None; much quicker than asking for each."""
    if max(map(len, names), default=0) <= MAX_NAME_LENGTH:
        lines = "\n".join([*names, ""])
        if lines.count("\n") == len(names) and _NODE_NAME_LINES.fullmatch(lines):
            return None
    return next(name for name in names if not is_valid_node_name(name))


def parse_tensor_name(text: str) -> TensorId:
    """Parse ``name``, ``name:slot`` or ``^name`` (a name alone is slot 0).

    Raises:
        InvalidArgumentError: *text* is none of these.
    """
    match = _TENSOR_NAME.fullmatch(text) if len(text) <= MAX_NAME_LENGTH else None
    if match is None or (match[1] and match[3] is not None):
        raise InvalidArgumentError(
            f"{text[:100]!r} is not the name of a tensor", hint="write 'node', 'node:output index' or '^node'"
        )
    if match[1]:
        return TensorId(match[2], CONTROL_SLOT)
    slot = match[3]
    if slot is None:
        return TensorId(match[2], 0)
    if len(slot) > 9:
        raise InvalidArgumentError(f"the output index in {text[:100]!r} is too large")
    return TensorId(match[2], int(slot))
