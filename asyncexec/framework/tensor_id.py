"""Names of tensors and of control inputs: ``name:slot``, ``^name`` (``tensorflow/core/graph/tensor_id.cc``)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from asyncexec.framework.errors import InvalidArgumentError

CONTROL_SLOT: Final = -1
MAX_NAME_LENGTH: Final = 10_000

_NODE_NAME: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")
_INPUT: Final = re.compile(r"(\^?)([A-Za-z0-9._][A-Za-z0-9_.\\/>-]*)(?::([A-Za-z_][A-Za-z0-9_]*))?(?::(0|[1-9][0-9]*))?")


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


def parse_tensor_name(text: str) -> TensorId:
    """Parse ``name``, ``name:slot`` or ``^name`` (a name alone is slot 0).

    Raises:
        InvalidArgumentError: *text* is none of these.
    """
    match = _INPUT.fullmatch(text) if len(text) <= MAX_NAME_LENGTH else None
    if match is None or match[3] is not None or (match[1] and match[4] is not None):
        raise InvalidArgumentError(
            f"{text[:100]!r} is not the name of a tensor", hint="write 'node', 'node:output index' or '^node'"
        )
    if match[1]:
        return TensorId(match[2], CONTROL_SLOT)
    slot = match[4]
    if slot is None:
        return TensorId(match[2], 0)
    if len(slot) > 9:
        raise InvalidArgumentError(f"the output index in {text[:100]!r} is too large")
    return TensorId(match[2], int(slot))
