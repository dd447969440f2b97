"""What TensorFlow's answers do not tell of ops on images: noise, states, and ops that it no longer runs."""

from __future__ import annotations

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.resource_mgr import ResourceMgr
from tests.ops.op_case import case, f32, i32
from tests.ops.op_runner import run_case

IMAGE = np.arange(24, dtype=np.float32).reshape(1, 2, 4, 3)


def test_adjust_contrast_keeps_to_its_range() -> None:
    """TensorFlow's kernel runs only in graphs of 2015; V2 lacks the range."""
    (found,) = run_case(case("AdjustContrast", IMAGE.astype(np.uint8), np.float32(3), np.float32(2), np.float32(20)))
    mean = IMAGE.mean((1, 2), keepdims=True)
    np.testing.assert_allclose(found, np.clip((IMAGE - mean) * 3 + mean, 2, 20))


def test_very_many_attempts_at_a_crop_are_refused() -> None:
    inputs = i32(4, 5, 3), f32([[0, 0, 1, 1]]), np.float32(0.1)
    with pytest.raises(InvalidArgumentError, match="at most 1048576: 1099511627776"):
        run_case(case("SampleDistortedBoundingBoxV2", *inputs, max_attempts=2**40))


@pytest.mark.parametrize("attrs", [{"interpolation": b"CUBIC"}, {"interpolation": b"NEAREST", "fill_mode": b"MIRROR"}])
def test_ways_to_transform_that_do_not_exist_are_refused(attrs: dict[str, bytes]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"CUBIC|MIRROR"):
        run_case(case("ImageProjectiveTransformV2", IMAGE, f32([1, 0, 0, 0, 1, 0, 0, 0]), i32(2, 2), **attrs))


@pytest.mark.parametrize("noise", [b"uniform", b"gaussian"])
def test_noise_around_a_glimpse_lies_within_the_image(noise: bytes) -> None:
    glimpse = case("ExtractGlimpse", IMAGE, i32(9, 9), f32([0, 0]), noise=noise, uniform_noise=noise == b"uniform")
    (first,), (second,) = run_case(glimpse), run_case(glimpse)
    assert IMAGE.min() <= first.min() <= first.max() <= IMAGE.max()
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("deterministic", [True, False])
def test_fractional_pooling_keeps_its_windows_only_when_it_is_deterministic(deterministic: bool) -> None:
    x = np.zeros((1, 97, 89, 1), np.float32)
    pool = case("FractionalMaxPool", x, pooling_ratio=[1.0, 1.4, 1.4, 1.0], deterministic=deterministic)
    session = ResourceMgr()
    (_, first, _), (_, second, _) = run_case(pool, session), run_case(pool, session)
    assert np.array_equal(first, second) == deterministic
