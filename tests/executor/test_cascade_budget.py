"""A cascade that is cut after so many deliveries goes on later, however many there are at a time."""

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.engine import cascade


@pytest.mark.parametrize("budget", [1, 3, cascade.CASCADE_BUDGET])
async def test_a_fan_out_larger_than_the_budget_is_delivered(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascade, "CASCADE_BUDGET", budget)
    with ax.Graph() as graph:
        taken, x = ax.placeholder(ax.bool, [], name="taken"), ax.placeholder(ax.float64, [], name="x")
        given = ax.cond(taken, lambda: [x + float(i) for i in range(40)], lambda: [x - float(i) for i in range(40)])
        total = ax.add_n(list(given))
    config = ax.SessionConfig(executor_type="TAGGED_TOKEN")
    async with ax.Session(graph, config) as session:
        for is_taken, sign in ((True, 1.0), (False, -1.0)):
            expected = sum(2.0 + sign * i for i in range(40))
            assert await session.run(total, {taken: is_taken, x: 2.0}) == np.float64(expected)
