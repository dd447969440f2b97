"""as_key: what is one key to users is one of a dict."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest

from asyncexec.framework.dict_keys import as_key


class Pair(NamedTuple):
    name: str
    number: float


def new_nan() -> float:
    return float("nan")


@pytest.mark.parametrize(
    "keys",
    [
        [new_nan(), new_nan(), np.float32("nan"), np.float64("nan"), complex(math.nan, 1.0)],
        [("a", new_nan()), ("a", new_nan()), Pair("a", new_nan())],
        [((new_nan(),), 1), ((new_nan(),), 1)],
    ],
)
def test_nan_is_one_key(keys: list[Any]) -> None:
    assert len({as_key(key) for key in keys}) == 1


@pytest.mark.parametrize("one", [float, np.float32, np.float64, complex])
def test_zeros_are_one_key_with_one_sign(one: Any) -> None:
    first, second = as_key(one(-0.0)), as_key(one(0.0))
    assert {first, second} == {0.0}
    assert type(first) is one
    assert not np.signbit([np.real(first), np.real(second)]).any()


@pytest.mark.parametrize("key", ["a", b"a", 5, True, None, 1.5, math.inf, (1, "a"), Pair("a", 1.0), Decimal("1.5")])
def test_other_keys_are_as_they_are(key: Any) -> None:
    assert as_key(key) is key


@pytest.mark.parametrize("key", [[], {}, ([],), np.zeros(2), Decimal("NaN"), np.datetime64("NaT", "s")])
def test_what_is_no_key_is_told(key: Any) -> None:
    with pytest.raises(TypeError):
        as_key(key)
