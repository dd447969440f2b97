"""Annotations behind aliases of ``type`` statements (PEP 695)."""

from __future__ import annotations

import typing
from typing import Any, Final

_ALIAS: Final[Any] = getattr(typing, "TypeAliasType", ())  # since Python 3.12


def written_out(hint: object) -> Any:
    """What *hint* stands for: numpy 2.5 has such an alias in NDArray, and a user may have some."""
    while isinstance(alias := typing.get_origin(hint) or hint, _ALIAS):
        arguments = typing.get_args(hint)
        hint = alias.__value__[arguments] if arguments else alias.__value__
    return hint
