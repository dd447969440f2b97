"""Who may write to an array.

Values travel along edges without a copy, so several places may see one array.  What is *kept*, because it outlives the
call or the step that it came from, is frozen: the array is read-only, and so is all that it is a view of.  Nobody can
change it then: who gave it away has another array, and who gets it cannot write to it.

An array that somebody made read-only counts as frozen: making it writable again is up to who did that.  Values that
cannot change (numpy scalars, bytes) need no care, and Python objects under ``ax.object`` are shared as references.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncexec.framework.kernel import as_value, pass_on
from asyncexec.framework.types import DType


def is_frozen(array: np.ndarray[Any, Any]) -> bool:
    """Whether neither *array* nor what it is a view of can be written to."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        array, owner = owner, owner.base
    return array.flags.owndata if owner is None else isinstance(owner, bytes)


def keep(value: Any) -> Any:
    """*value* for keeping: itself where nobody can change it, else a frozen copy of the array."""
    if not isinstance(value, np.ndarray) or is_frozen(value):
        return value
    return freeze(value.copy())


def detach(value: Any) -> Any:
    """*value*, for who has it alone from now on: itself where nobody can change it, else a copy of the array."""
    if not isinstance(value, np.ndarray) or is_frozen(value):
        return value
    return value.copy()


def keeper(dtype: DType) -> Callable[[Any], Any]:
    """What keeps values of *dtype*: ``keep``, or for Python objects, which are shared, nothing at all."""
    return pass_on if dtype.is_opaque else keep


def freeze(value: Any) -> Any:
    """*value*, an array that nobody else holds yet, made read-only; a scalar instead of a 0-d array."""
    value = as_value(value)
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    return value


def read_only(value: Any) -> Any:
    """A read-only view of an array; any other value itself.

    Not even the shape of the array can be changed through it.
    """
    if type(value) is np.ndarray:
        value = value.view()
        value.setflags(write=False)
    return value
