"""When nodes run, of which clusters are made: nobody can tell that there are regions, whatever decides that."""

from __future__ import annotations

from typing import Any

import asyncexec as ax
from tests.regions.programs import COMPILED, TAGGED
from tests.regions.test_regions import F, later, outcomes


async def check(graph: ax.Graph, fetches: Any, *feeds: dict[Any, Any]) -> list[Any]:
    """Both executors give the same; what that is."""
    one, *others = await outcomes(graph, fetches, *feeds)
    assert others == [one, one]
    return one


async def test_a_control_trigger_after_a_dead_node() -> None:
    """It runs, and so does what waits for it alone; not what takes a dead value, too."""
    with ax.Graph() as graph:
        x, p = ax.placeholder(F, [], name="x"), ax.placeholder(ax.bool, [], name="p")
        dead, live = ax.create_op("Switch", [x, p])
        with ax.control_dependencies([ax.identity(live)]):
            trigger = ax.create_op("ControlTrigger", [])
        with ax.control_dependencies([trigger]):
            alone = ax.identity(x) * 2.0 + 1.0
            both = ax.identity(live) * 3.0 + 1.0
        merged, _ = ax.create_op("Merge", [[later(both), dead]])
    assert await check(graph, [alone, merged], {x: 2.0, p: True}, {x: 2.0, p: False}) == [[5.0, 7.0], [5.0, 2.0]]


async def test_switches_of_other_widths_by_one_index() -> None:
    """The last side of the narrow one is taken by any index that is larger, and that of the wide one is not."""
    with ax.Graph() as graph:
        x, k = ax.placeholder(F, [], name="x"), ax.placeholder(ax.int32, [], name="k")
        narrow = ax.create_op("_SwitchN", [x, k], {"num_outs": 3})
        wide = ax.create_op("_SwitchN", [x, k], {"num_outs": 5})
        with ax.control_dependencies([later(x)]):
            one = ax.identity(narrow[2]) * 2.0 + 1.0
            other = ax.identity(wide[2]) * 3.0 + 1.0
        merged, _ = ax.create_op("Merge", [[later(one), *narrow[:2]]])
        merged_wide, _ = ax.create_op("Merge", [[later(other), *wide[:2], *wide[3:]]])
    feeds = [{x: 2.0, k: index} for index in (2, 3, 0)]
    assert await check(graph, [merged, merged_wide], *feeds) == [[5.0, 7.0], [5.0, 2.0], [2.0, 2.0]]


async def test_a_loop_with_a_constant_that_is_not_always_there() -> None:
    """It ends without the constant if it does not go round at all."""
    with ax.Graph() as graph:
        x, p = ax.placeholder(F, [], name="x"), ax.placeholder(ax.bool, [], name="p")
        dead, live = ax.create_op("Switch", [x, p])

        def body(i: Any) -> Any:
            with ax.control_dependencies([live * 2.0]):
                return [ax.identity(i) + 1.0]

        n = later(x)
        (last,) = ax.while_loop(lambda i: i < n, body, [ax.constant(0.0, F)])
        seen = later(last)
        alone = seen * 2.0 + 1.0
        merged, _ = ax.create_op("Merge", [[later((seen + live) * 3.0 + 1.0), dead]])
    feeds: list[dict[Any, Any]] = [{x: 0.0, p: True}, {x: 0.0, p: False}, {x: 2.0, p: True}]
    async with ax.Session(graph, TAGGED) as one, ax.Session(graph, COMPILED) as other:
        for each in feeds:
            assert await other.run([alone, merged], each) == await one.run([alone, merged], each)
