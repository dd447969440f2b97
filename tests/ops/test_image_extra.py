"""Ops on images need pillow, and say how to install it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from asyncexec.framework.errors import MissingExtraError
from tests.ops.op_case import OpCase, case
from tests.ops.op_runner import run_case

CASES = [case("DecodePng", b""), case("DecodeImage", b""), case("EncodeJpeg", np.zeros([1, 1, 3], np.uint8))]


@pytest.mark.parametrize("op_case", CASES, ids=lambda op_case: op_case.op)
def test_without_pillow_the_error_says_what_to_install(op_case: OpCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"pillow is needed .*\n.*asyncexec\[image\]"):
        run_case(op_case)
