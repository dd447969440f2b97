"""Keys of values of users: what is one key to them is one key of a dict."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

_PLAIN: Final = frozenset({str, bytes, int, bool, type(None)})
_NUMBERS: Final = (float, complex, np.inexact)


def as_key(key: object) -> Any:
    """*key*, for a dict: NaN is one key, though it does not equal itself, and 0.0 and -0.0 are one; in tuples, too.

    Raises:
        TypeError: it cannot be hashed, or is another object that does not equal itself.
    """
    if type(key) in _PLAIN:
        return key
    hash(key)
    if isinstance(key, tuple):
        parts = [as_key(part) for part in key]
        return key if all(part is before for part, before in zip(parts, key, strict=True)) else tuple(parts)
    if isinstance(key, _NUMBERS):
        return math.nan if key != key else type(key)(0) if key == 0 else key
    if key != key:
        raise TypeError("it does not equal itself")
    return key
