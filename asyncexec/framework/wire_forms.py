"""Wire forms of values that are no arrays, but data all the same: what of dtype variant may go to another process.

After ``VariantTensorData`` in ``tensorflow/core/framework/variant_tensor_data.h``: a value is a name, some metadata,
and tensors, which may be such values in turn.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class WireForm:
    """How the values of one class travel.

    Attributes:
        name: what tells the class.
        take_apart: the metadata, as JSON has it, and the tensors of a value; None is a tensor that is not there.
        put_together: the value, from what came; ValueError, TypeError or KeyError when that is none.
    """

    name: str
    take_apart: Callable[[Any], tuple[Mapping[str, Any], Sequence[Any]]]
    put_together: Callable[[Mapping[str, Any], Sequence[Any]], Any]


# Modules of ops are imported when a graph first needs them, which may be after a value has come.
_MODULES: Final = {"TensorList": "asyncexec.ops.state.tensor_list_state"}
_by_class: Final[dict[type, WireForm]] = {}
_by_name: Final[dict[str, WireForm]] = {}


def register_wire_form(kind: type, form: WireForm) -> None:
    """Let values of the class *kind* travel by *form*."""
    _by_class[kind] = _by_name[form.name] = form


def wire_form_of(value: object) -> WireForm | None:
    """How *value* travels, if it does."""
    return _by_class.get(type(value))


def wire_form_named(name: str) -> WireForm | None:
    """What values that are told to be *name* travel by."""
    if name in _MODULES:
        importlib.import_module(_MODULES[name])
    return _by_name.get(name)
