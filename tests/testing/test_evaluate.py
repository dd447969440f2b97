"""The plain evaluator: graphs whose answers can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import (
    InvalidArgumentError,
    NotFoundError,
    OpError,
    ResourceExhaustedError,
    UnimplementedError,
)
from asyncexec.testing.evaluate import evaluate
from tests.graph.testing_ops import load

BRANCHES = """
    p: Placeholder[bool, []]
    x: Const[3]
    s: Switch(x, p)
    f: Neg(s:0)
    t: Square(s:1)
    m: Merge(f, t)
"""


def values(text: str, fetches: str, feeds: dict[str, Any] | None = None, **options: Any) -> list[Any]:
    """The values of *fetches*, names with a space between them, as lists and numbers of Python."""
    names = [name if ":" in name else f"{name}:0" for name in fetches.split()]
    return [np.asarray(value).tolist() for value in evaluate(load(text), names, feeds, **options)]


def loop(name: str, start: str, is_going_on: str, body: str) -> str:
    """A loop with one variable: *is_going_on* and *body* are nodes of ``NAME.m`` and ``NAME.x``."""
    return f"""
        {name}.e: Enter[frame_name='{name}']({start})
        {name}.m: Merge({name}.e, {name}.n)
        {name}.p: {is_going_on}
        {name}.c: LoopCond({name}.p)
        {name}.s: Switch({name}.m, {name}.c)
        {name}.x: Identity({name}.s:1)
        {name}.y: {body}
        {name}.n: NextIteration({name}.y)
        {name}: Exit({name}.s)
    """


def constant(name: str, frame: str, source: str) -> str:
    return f"{name}: Enter[frame_name='{frame}', is_constant=true]({source})\n"


DOUBLING = (
    "one: Const[1]\n ten: Const[10]\n"
    + loop("w", "one", "Less(w.m, w.ten)", "AddV2(w.x, w.x)")
    + constant("w.ten", "w", "ten")
)


def test_values_are_what_a_session_gives() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [2], name="x")
        total = ax.reduce_sum(x * 2.0)
    array, scalar = evaluate(graph, ["x:0", total], {x: [1, 2]})
    assert array.dtype == np.float32
    assert array.tolist() == [1, 2]
    assert type(scalar) is np.float32
    assert scalar == 6


@pytest.mark.parametrize(("taken", "merged", "index"), [(False, -3, 0), (True, 9, 1)])
def test_merge_passes_on_the_branch_taken(taken: bool, merged: int, index: int) -> None:
    assert values(BRANCHES, "m m:1", {"p:0": taken}) == [merged, index]


@pytest.mark.parametrize(("fetch", "taken"), [("f", True), ("s:1", False), ("t", False)])
def test_what_is_in_the_branch_not_taken_has_no_value(fetch: str, taken: bool) -> None:
    with pytest.raises(InvalidArgumentError, match="does not have a value: it is <dead>"):
        values(BRANCHES, fetch, {"p:0": taken})


@pytest.mark.parametrize(("index", "merged"), [(0, 3), (1, -3), (2, 9), (7, 9), (-1, 9)])
def test_switch_n(index: int, merged: int) -> None:
    text = f"""
        i: Const[{index}]
        x: Const[3]
        s: _SwitchN[num_outs=3](x, i)
        b: Neg(s:1)
        c: Square(s:2)
        m: Merge(s, b, c)
    """
    assert values(text, "m") == [merged]


def test_a_merge_of_dead_inputs_is_dead() -> None:
    text = BRANCHES + "d: Neg(f)\n both: Merge(f, d)"
    with pytest.raises(InvalidArgumentError, match="<dead>"):
        values(text, "both", {"p:0": True})


def test_a_merge_with_two_live_inputs_has_no_answer() -> None:
    with pytest.raises(InvalidArgumentError, match="inputs 0 and 1 are both live") as caught:
        values("x: Const[1]\n y: Const[2]\n m: Merge(x, y)", "m")
    assert caught.value.node == "m"


def test_a_dead_control_input_kills_all_but_a_merge_and_a_control_trigger() -> None:
    text = BRANCHES + "i: Identity(x, ^t)\n k: Merge(x, t, ^t)\n trigger: ControlTrigger(^t)\n j: Neg(x, ^trigger)"
    assert values(text, "k j", {"p:0": False}) == [3, -3]
    with pytest.raises(InvalidArgumentError, match="<dead>"):
        values(text, "i", {"p:0": False})


def test_a_loop_goes_round_until_its_predicate_is_false() -> None:
    assert values(DOUBLING, "w") == [16]


def test_a_loop_that_does_not_begin_gives_what_it_was_given() -> None:
    assert values(DOUBLING.replace("one: Const[1]", "one: Const[11]"), "w") == [11]


def test_loops_in_one_another() -> None:
    """In each iteration of the outer loop the inner one doubles until 20 is reached."""
    text = (
        "one: Const[1]\n two: Const[2]\n twenty: Const[20]\n forty: Const[40]\n"
        + constant("o.forty", "o", "forty")
        + constant("o.twenty", "o", "twenty")
        + constant("o.two", "o", "two")
        + constant("i.twenty", "i", "o.twenty")
        + constant("i.two", "i", "o.two")
        + loop("o", "one", "Less(o.m, o.forty)", "Sub(i, o.two)")
        + loop("i", "o.x", "Less(i.m, i.twenty)", "Mul(i.x, i.two)")
    )
    # 1 doubles to 32, and 2 less is 30; the inner loop does not begin until it is 18, which doubles to 36: for ever.
    with pytest.raises(ResourceExhaustedError, match="loop 'o' goes round more than 1000 times"):
        values(text, "o", max_iterations=1000)
    # 7 doubles to 28, and that times 2 is 56.
    text = text.replace("one: Const[1]", "one: Const[7]").replace("Sub(i, o.two)", "Mul(i, o.two)")
    assert values(text, "o") == [56]


def test_variables_take_each_others_values_of_the_iteration_before() -> None:
    with ax.Graph() as graph:
        loop_vars = (0, 0, 1)
        _, a, b = ax.while_loop(lambda i, a, b: i < 10, lambda i, a, b: (i + 1, b, a + b), loop_vars)
    assert evaluate(graph, [a, b]) == [55, 89]


def test_branches_in_loops_in_branches() -> None:
    """The Collatz sequence of 6 takes 8 steps: 3 10 5 16 8 4 2 1."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [])

        def body(n: Any, count: Any) -> Any:
            return ax.cond(ax.equal(n % 2, 0), lambda: n // 2, lambda: 3 * n + 1), count + 1

        steps = ax.cond(x > 0, lambda: ax.while_loop(lambda n, _: n > 1, body, (x, 0))[1], lambda: ax.constant(-1))
    assert evaluate(graph, [steps], {x: 6}) == [8]
    assert evaluate(graph, [steps], {x: -6}) == [-1]


def test_a_loop_that_is_not_entered_is_dead_outside() -> None:
    text = BRANCHES + "ten: Const[10]\n" + constant("w.ten", "w", "ten")
    text += loop("w", "s:1", "Less(w.m, w.ten)", "AddV2(w.x, w.x)") + "out: Merge(w, f)"
    assert values(text, "out out:1", {"p:0": False}) == [-3, 1]
    assert values(text, "w out:1", {"p:0": True}) == [12, 0]


DYING = (
    DOUBLING
    + constant("w.four", "w", "four")
    + """
    four: Const[4]
    v.e: Enter[frame_name='w'](one)
    v.m: Merge(v.e, v.n)
    v.s: Switch(v.m, w.c)
    v.q: Less(w.x, w.four)
    v.t: Switch(v.s:1, v.q)
    v.n: NextIteration(v.t:1)
    v: Exit(v.s)
    trigger: ControlTrigger(^v)
    after: Identity(ten, ^trigger)
"""
)


def test_a_variable_that_dies_on_the_way_never_leaves_the_loop() -> None:
    assert values(DYING, "w") == [16]
    for fetch in ("v", "after"):  # not dead: of a dead one the ControlTrigger would have heard
        with pytest.raises(InvalidArgumentError, match="<absent>"):
            values(DYING, f"{fetch} w")


def test_a_variable_that_dies_in_the_last_iteration_is_dead_outside() -> None:
    last = DYING.replace("one: Const[1]", "one: Const[11]").replace("v.s: Switch(v.m, w.c)", "v.s: Switch(v.d, w.c)")
    last += constant("v.no", "w", "no") + "no: Const[false]\n v.d: Identity(v.g:1)\n v.g: Switch(v.m, v.no)"
    assert values(last, "after w") == [10, 11]
    with pytest.raises(InvalidArgumentError, match="<dead>"):
        values(last, "v w")


def test_an_endless_loop_ends_at_the_bound() -> None:
    assert values(DOUBLING, "w", max_iterations=4) == [16]
    with pytest.raises(ResourceExhaustedError, match="loop 'w' goes round more than 3 times"):
        values(DOUBLING, "w", max_iterations=3)


def test_what_is_fed_is_not_computed() -> None:
    text = "x: Placeholder[int32, []]\n y: Neg(x)\n z: Neg(y)"
    assert values(text, "y z", {"y:0": 5}) == [5, -5]
    with pytest.raises(InvalidArgumentError) as caught:
        values(text, "z")
    assert caught.value.node == "x"


def test_what_no_fetch_needs_is_not_computed() -> None:
    assert values("x: Placeholder[int32, []]\n y: Neg(x)\n z: Const[1]", "z") == [1]


def test_a_long_chain() -> None:
    with ax.Graph() as graph:
        one = ax.constant(1)
        x = ax.add(one, one)
    for i in range(100_000):
        x = graph.add_node(f"n{i}", x.op.properties, [x, one]).outputs[0]
    assert evaluate(graph, [x]) == [100_002]


def test_a_long_loop() -> None:
    text = DOUBLING.replace("ten: Const[10]", "ten: Const[10000]").replace("w.x, w.x", "w.x, w.one")
    assert values(text + constant("w.one", "w", "one"), "w") == [10_000]


def test_an_error_of_a_kernel_names_the_node() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        values(
            "x: Const[[1, 2]]\n y: Const[[1, 2, 3]]\n z: AddV2(a, b)\n a: Reshape(x, s)\n b: Neg(y)\n s: Const[[3]]",
            "z",
        )
    assert caught.value.node == "a"


def test_a_variable_is_read_where_a_value_is_wanted() -> None:
    text = """
        p: Const[true]
        c: Const[3.0]
        v: VariableV2[dtype=float32, shape=[]]
        a: Assign(v, c)
        s: RefSwitch(a, p)
        out: Neg(s:1)
    """
    assert values(text, "out a") == [-3, 3]


@pytest.mark.parametrize("fetch", ["w.x", "w.m"])
def test_inside_of_a_loop_there_is_no_one_value(fetch: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is inside of a loop"):
        values(DOUBLING, fetch)


@pytest.mark.parametrize(("fetch", "error"), [("y:0", NotFoundError), ("x:1", InvalidArgumentError)])
def test_a_fetch_that_there_is_not(fetch: str, error: type[OpError]) -> None:
    with pytest.raises(error):
        values("x: Const[1]", fetch)


def test_kernels_that_must_be_awaited_are_refused() -> None:
    @ax.op(outputs=[ax.int32])
    async def awaited(x: Any) -> Any:
        return x

    with ax.Graph() as graph:
        x = awaited(ax.constant(1))
    with pytest.raises(UnimplementedError, match="must be awaited") as caught:
        evaluate(graph, [x])
    assert caught.value.node == "awaited"


def test_calls_of_functions_are_refused() -> None:
    with pytest.raises(UnimplementedError, match="calls of functions"):
        values("x: Const[1]\n y: PartitionedCall[Tout=[int32], f=F](x)", "y")
