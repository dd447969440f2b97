"""How many threads BLAS takes for one operation."""

from __future__ import annotations

import numpy as np
import pytest

from asyncexec.process.blas_threads import limit_blas_threads

threadpoolctl = pytest.importorskip("threadpoolctl")


def num_threads() -> set[int]:
    return {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}


def test_blas_takes_as_many_threads_as_it_may() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpoolctl.threadpool_limits(None, user_api="blas"):  # gives back what there was
        before = num_threads()
        for count in (2, 1):
            limit_blas_threads(count)
            assert num_threads() <= {count}
    assert num_threads() == before
