"""LSTM layers over a part of the time."""

from __future__ import annotations

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError
from tests.ops.cases.block_cells import LSTM, TIMES, numbers
from tests.ops.kernel_bench import KernelBench


def test_states_are_zero_after_the_last_time() -> None:
    block, inputs = KernelBench().kernel("BlockLSTMV2", T="float32"), numbers(LSTM, np.float32, times=True)
    whole = block(np.int64(TIMES), *inputs)
    part = block(np.int64(2), *inputs)
    for output in (1, 6):  # state and output
        np.testing.assert_array_equal(part[output][:2], whole[output][:2])
        assert not part[output][2:].any()


@pytest.mark.parametrize("limit", [-1, TIMES + 1])
def test_the_last_time_is_within_the_input(limit: int) -> None:
    block, inputs = KernelBench().kernel("BlockLSTM", T="float32"), numbers(LSTM, np.float32, times=True)
    with pytest.raises(InvalidArgumentError, match=f"seq_len_max must be between 0 and {TIMES} but is {limit}"):
        block(np.int64(limit), *inputs)
