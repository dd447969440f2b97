"""Graphs with functions, made and run by TensorFlow: tests/golden/functions/<case>.pb and answers.json.

Run with an environment that has tensorflow-cpu 2.21, from the root of the repository::

    python -m tests.golden.make_function_golden

Each run of a case is kept with its feeds, fetches and targets, and the values that TensorFlow gave or the code of the
error it raised.  The runs of a case are made in order in one session, all graph optimizations off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.function import Defun

FOLDER = Path(__file__).parent / "functions"
v1 = tf.compat.v1
v1.disable_eager_execution()
v1.enable_control_flow_v2()

Runs = list[tuple[dict[str, Any], list[str], list[str]]]
CASES: dict[str, Callable[[], Runs]] = {}


def case(build: Callable[[], Runs]) -> Callable[[], Runs]:
    CASES[build.__name__] = build
    return build


def ask(*fetches: str, targets: str = "", **feeds: Any) -> tuple[dict[str, Any], list[str], list[str]]:
    return {f"{name}:0": value for name, value in feeds.items()}, list(fetches), targets.split()


def hold(dtype: Any, shape: Any = (), name: str = "x") -> Any:
    return v1.placeholder(dtype, shape, name)


def out(value: Any, name: str = "out") -> Any:
    return tf.identity(value, name=name)


def concrete(function: Callable[..., Any], *specs: Any) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def spec(dtype: Any, shape: Any = ()) -> Any:
    return tf.TensorSpec(shape, dtype)


def functional(op: Any, *functions: Any, **attrs: Any) -> Any:
    """The raw op, after adding the functions it names to the graph."""
    for function in functions:
        function.add_to_graph(v1.get_default_graph())
    return op(**attrs)


INT, FLOAT = tf.int32, tf.float32


@case
def if_simple() -> Runs:
    a, pred = hold(INT, name="a"), hold(tf.bool, name="pred")
    double, fourfold = concrete(lambda x: x * 2, spec(INT)), concrete(lambda x: x * 4, spec(INT))
    functional(
        tf.raw_ops.If,
        double,
        fourfold,
        cond=pred,
        input=[a],
        Tout=[INT],
        then_branch=double,
        else_branch=fourfold,
        name="if",
    )
    return [ask("if:0", a=10, pred=False), ask("if:0", a=10, pred=True)]


@case
def if_predicates() -> Runs:
    yes, no = concrete(lambda: tf.constant("yes")), concrete(lambda: tf.constant("no"))
    runs = []
    for name, dtype in {"i": INT, "f": FLOAT, "s": tf.string, "b": tf.bool}.items():
        pred = hold(dtype, None, name)
        functional(
            tf.raw_ops.StatelessIf,
            yes,
            no,
            cond=pred,
            input=[],
            Tout=[tf.string],
            then_branch=yes,
            else_branch=no,
            name=f"if_{name}",
        )
    for name, values in {
        "i": [0, 3, -1, [0, 0], []],
        "f": [0.0, 0.5, [0.0], np.zeros((0, 2))],
        "s": ["", "a", [""], []],
        "b": [False, True],
    }.items():
        runs += [ask(f"if_{name}:0", **{name: value}) for value in values]
    return runs


@case
def case_of_three() -> Runs:
    index, x = hold(INT, name="index"), hold(FLOAT)
    branches = [concrete(lambda x, k=k: x + float(k), spec(FLOAT)) for k in (10, 20, 30)]
    functional(
        tf.raw_ops.StatelessCase, *branches, branch_index=index, input=[x], Tout=[FLOAT], branches=branches, name="case"
    )
    one = branches[:1]
    functional(tf.raw_ops.Case, *one, branch_index=index, input=[x], Tout=[FLOAT], branches=one, name="one")
    return [ask("case:0", "one:0", index=i, x=1.0) for i in (-1, 0, 1, 2, 3, 100)]


@case
def while_simple() -> Runs:
    a = hold(INT, name="a")
    cond, body = concrete(lambda x: x <= 8, spec(INT)), concrete(lambda x: x * 2, spec(INT))
    functional(tf.raw_ops.While, cond, body, input=[a], cond=cond, body=body, parallel_iterations=100, name="while")
    return [ask("while:0", a=value) for value in (1, 3, 9)]


@case
def while_inputs_and_predicates() -> Runs:
    """Variables that change places, that stay, that come back in another's place, and a condition that is no bool."""
    a, b, c, n = hold(INT, name="a"), hold(INT, name="b"), hold(INT, name="c"), hold(INT, name="n")
    s = spec(INT)
    cond = concrete(lambda n, a, b, c, d: n, s, s, s, s, s)
    body = concrete(lambda n, a, b, c, d: (n - 1, b, a, c, c), s, s, s, s, s)
    functional(tf.raw_ops.StatelessWhile, cond, body, input=[n, a, b, c, n], cond=cond, body=body, name="while")
    out(tf.stack([v1.get_default_graph().get_tensor_by_name(f"while:{i}") for i in range(5)]))
    return [ask("out:0", "while:3", a=1, b=2, c=3, n=n) for n in (0, 1, 5)]


@case
def while_of_constants() -> Runs:
    """A loop whose variables all stay as they are, and one without any variable, run once or not at all."""
    x = hold(INT)
    state = v1.get_variable("state", initializer=3, use_resource=True)
    s = spec(INT)
    cond, body = concrete(lambda x: x > 100, s), concrete(lambda x: x, s)
    functional(tf.raw_ops.StatelessWhile, cond, body, input=[x], cond=cond, body=body, name="never")
    handle = spec(tf.resource)

    def count_down(handle: Any) -> Any:
        tf.raw_ops.AssignSubVariableOp(resource=handle, value=1)
        return handle

    again = concrete(lambda handle: tf.raw_ops.ReadVariableOp(resource=handle, dtype=INT) > 0, handle)
    less = concrete(count_down, handle)
    loop = functional(tf.raw_ops.While, again, less, input=[state.handle], cond=again, body=less, name="countdown")
    out(tf.raw_ops.ReadVariableOp(resource=loop[0], dtype=INT))
    return [ask("never:0", x=5), ask(targets=state.initializer.name), ask("out:0"), ask("out:0")]


@case
def for_loops() -> Runs:
    start, limit, delta, x = (hold(INT, None, name) for name in ("start", "limit", "delta", "x"))
    body = concrete(lambda i, x, y: (x + i, y * 2), spec(INT), spec(INT), spec(INT))
    functional(tf.raw_ops.For, body, start=start, limit=limit, delta=delta, input=[x, x], body=body, name="for")
    ranges = [(0, 5, 1), (0, 5, 2), (5, 0, -2), (3, 3, 0), (3, 3, 1), (0, 5, 0), (0, 5, -1), (5, 0, 1), ([0], 5, 1)]
    return [ask("for:0", "for:1", start=a, limit=b, delta=c, x=100) for a, b, c in ranges]


@case
def for_keeps_the_order_of_effects() -> Runs:
    state = v1.get_variable("state", initializer=1, use_resource=True)

    def body(i: Any, handle: Any) -> Any:
        value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=INT)
        tf.raw_ops.AssignVariableOp(resource=handle, value=value * 3 + i)
        return handle

    function = concrete(body, spec(INT), spec(tf.resource))
    loop = functional(
        tf.raw_ops.For, function, start=0, limit=6, delta=1, input=[state.handle], body=function, name="for"
    )
    out(tf.raw_ops.ReadVariableOp(resource=loop[0], dtype=INT))
    return [ask(targets=state.initializer.name), ask("out:0"), ask("out:0")]


@case
def while_in_cond_in_call() -> Runs:
    x, pred = hold(INT), hold(tf.bool, name="pred")

    @tf.function(autograph=False)
    def inner(x: Any, pred: Any) -> Any:
        def loop() -> Any:
            return tf.while_loop(
                lambda i, y: i < x, lambda i, y: (i + 1, y + tf.cond(i > 2, lambda: i, lambda: -x)), [0, x]
            )[1]

        return tf.cond(pred, loop, lambda: x - 1), tf.constant(7)

    @tf.function(autograph=False)
    def outer(x: Any, pred: Any) -> Any:
        first, seven = inner(x, pred)
        return inner(first, tf.logical_not(pred))[0] + seven

    out(outer(x, pred))
    return [ask("out:0", x=value, pred=pred) for value in (0, 4, 7) for pred in (True, False)]


@case
def nested_loops() -> Runs:
    n, m = hold(INT, name="n"), hold(INT, name="m")

    @tf.function(autograph=False)
    def table(n: Any, m: Any) -> Any:
        def row(i: Any, total: Any) -> Any:
            inner = tf.while_loop(lambda j, t: j < m, lambda j, t: (j + 1, t + i * j + m), [0, total])
            return i + 1, inner[1]

        return tf.while_loop(lambda i, t: i < n, row, [0, 0])[1]

    out(table(n, m))
    return [ask("out:0", n=n, m=m) for n, m in ((0, 3), (3, 0), (4, 5))]


@case
def effects_once_a_call() -> Runs:
    state = v1.get_variable("state", initializer=0, use_resource=True)
    by = hold(INT, name="by")

    @tf.function(autograph=False)
    def add(by: Any) -> Any:
        state.assign_add(by)
        return by * 2

    first = add(by)
    with tf.control_dependencies([first]):
        second = add(by + 1)
    with tf.control_dependencies([second]):
        out(state.read_value())
    tf.identity(first, name="first")
    return [ask(targets=state.initializer.name), ask("out:0", by=10), ask("first:0", by=10), ask("out:0", by=1)]


@case
def control_dependencies_around_calls() -> Runs:
    """Assign, then a call that reads, then an assign, then a read: all by control edges."""
    state = v1.get_variable("state", initializer=1, use_resource=True)
    x = hold(INT)

    @tf.function(autograph=False)
    def read() -> Any:
        return state.read_value()

    @tf.function(autograph=False)
    def write(x: Any) -> None:
        state.assign(x)

    @tf.function(autograph=False)
    def same(x: Any) -> Any:
        return x

    write(x)
    graph = v1.get_default_graph()
    written = graph.get_operations()[-1]
    with tf.control_dependencies([written]):
        seen = out(read(), "seen")
    with tf.control_dependencies([seen]):
        again = state.assign(x * 10)
    with tf.control_dependencies([again]):
        passed = same(x)
    with tf.control_dependencies([passed]):
        out(state.read_value() + 0 * passed)
    return [ask(targets=state.initializer.name), ask("seen:0", "out:0", x=5), ask("out:0", "seen:0", x=6)]


@case
def branches_without_outputs() -> Runs:
    state = v1.get_variable("state", initializer=1, use_resource=True)
    pred = hold(tf.bool, name="pred")
    handle = spec(tf.resource)

    def change(by: int) -> Callable[[Any], None]:
        def branch(handle: Any) -> None:
            value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=INT)
            tf.raw_ops.AssignVariableOp(resource=handle, value=value * by)

        return branch

    two, three = concrete(change(2), handle), concrete(change(3), handle)
    made = functional(
        tf.raw_ops.If,
        two,
        three,
        cond=pred,
        input=[state.handle],
        Tout=[],
        then_branch=two,
        else_branch=three,
        name="if",
    )
    with tf.control_dependencies([made]):
        out(state.read_value())
    return [
        ask(targets=state.initializer.name),
        ask("out:0", pred=True),
        ask("out:0", pred=False),
        ask(targets="if", pred=True),
        ask("out:0", pred=False),
    ]


@case
def untaken_branch_has_no_effect() -> Runs:
    """What a branch does without any input, in a call within the branch too."""
    state = v1.get_variable("state", initializer=1, use_resource=True)
    pred = hold(tf.bool, name="pred")

    @tf.function(autograph=False)
    def bump() -> Any:
        state.assign_add(1)
        return tf.constant(5)

    @tf.function(autograph=False)
    def choose(pred: Any) -> Any:
        return tf.cond(pred, lambda: bump() + bump(), lambda: tf.constant(-1))

    chosen = out(choose(pred))
    with tf.control_dependencies([chosen]):
        out(state.read_value(), "state_after")
    return [ask(targets=state.initializer.name)] + [
        ask("out:0", "state_after:0", pred=p) for p in (False, True, False, True)
    ]


@case
def dead_calls() -> Runs:
    """Calls on one side of a Switch: all they give is dead, also what takes no dead input in the body."""
    x, pred = hold(FLOAT), hold(tf.bool, name="pred")
    state = v1.get_variable("state", initializer=0.0, use_resource=True)

    @tf.function(autograph=False)
    def both(x: Any, y: Any) -> Any:
        return x + 1.0, y * 2.0, tf.constant(3.0), tf.identity(y)

    @tf.function(autograph=False)
    def effect(x: Any, y: Any) -> Any:
        state.assign_add(y)
        return x

    no, yes = tf.raw_ops.Switch(data=x, pred=pred)
    live = x + 100.0
    outputs = both(yes, live)
    for i, value in enumerate(outputs):
        tf.raw_ops.Merge(inputs=[value, -no], name=f"merge_{i}")
    tf.raw_ops.Merge(inputs=[effect(yes, live), no], name="effect")
    with tf.control_dependencies([v1.get_default_graph().get_tensor_by_name("effect:0")]):
        out(state.read_value())
    merges = [f"merge_{i}:0" for i in range(4)]
    return [
        ask(targets=state.initializer.name),
        ask(*merges, x=2.0, pred=True),
        ask(*merges, x=2.0, pred=False),
        ask("out:0", x=2.0, pred=False),
        ask("out:0", x=2.0, pred=True),
    ]


@case
def calls_in_v1_control_flow() -> Runs:
    """Calls, an If and a While in the body of a loop of Enters and Exits."""
    n = hold(INT, name="n")

    @tf.function(autograph=False)
    def step(i: Any, total: Any) -> Any:
        return tf.cond(i % 2 > 0, lambda: total + i, lambda: total * 2)

    @tf.function(autograph=False)
    def three() -> Any:
        return tf.constant(3)

    v1.disable_control_flow_v2()
    try:
        loop = v1.while_loop(lambda i, t: i < n, lambda i, t: (i + 1, step(i, t) + three()), [0, 1])
        out(v1.cond(loop[1] > 50, lambda: step(n, loop[1]), lambda: three() - loop[1]))
    finally:
        v1.enable_control_flow_v2()
    return [ask("out:0", n=n) for n in (0, 1, 4, 7)]


@case
def v1_control_flow_in_a_function() -> Runs:
    """A function with Enters, Exits, Switches and Merges of its own, called in a loop and on what it gave."""
    n = hold(INT, name="n")
    v1.disable_control_flow_v2()
    try:

        @Defun(INT, func_name="Loop")
        def loop(n: Any) -> Any:
            total = v1.while_loop(lambda i, t: i < n, lambda i, t: (i + 1, t + i), [0, 0])[1]
            return v1.cond(total > 5, lambda: total * 1, lambda: -n)

        first = loop(n)
        second = v1.while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, tf.reshape(loop(t + i), [])), [0, n])[1]
        with tf.control_dependencies([second]):
            out(loop(first + 2) + first)
        out(second, "second")
    finally:
        v1.enable_control_flow_v2()
    return [ask("out:0", "second:0", n=n) for n in (0, 3, 4, 6)]


@case
def loop_with_effects() -> Runs:
    """Each iteration reads what the one before has written."""
    state = v1.get_variable("state", initializer=1, use_resource=True)
    n = hold(INT, name="n")

    @tf.function(autograph=False)
    def run(n: Any) -> Any:
        def body(i: Any) -> Any:
            state.assign(state.read_value() * 3 + i)
            return i + 1

        last = tf.while_loop(lambda i: i < n, body, [0], parallel_iterations=32)
        return state.read_value() + 0 * last[0]

    out(run(n))
    return [ask(targets=state.initializer.name), ask("out:0", n=0), ask("out:0", n=4), ask("out:0", n=2)]


def as_json(value: Any, dtype: Any) -> dict[str, Any]:
    array = np.asarray(value)
    values = array.ravel().tolist()
    values = [v.decode() if isinstance(v, bytes) else v for v in values]
    return {"dtype": dtype.base_dtype.name, "shape": list(array.shape), "values": values}


def answer(session: Any, feeds: dict[str, Any], fetches: list[str], targets: list[str]) -> dict[str, Any]:
    graph = session.graph
    fed = {name: graph.get_tensor_by_name(name) for name in feeds}
    run: dict[str, Any] = {
        "feeds": {
            name: as_json(
                np.asarray(value, object if fed[name].dtype == tf.string else fed[name].dtype.as_numpy_dtype),
                fed[name].dtype,
            )
            for name, value in feeds.items()
        },
        "fetches": fetches,
        "targets": targets,
    }
    try:
        wanted = [graph.get_tensor_by_name(name) for name in fetches]
        values, _ = session.run([wanted, [graph.get_operation_by_name(name) for name in targets]], feeds)
        run["values"] = [as_json(value, tensor.dtype) for value, tensor in zip(values, wanted, strict=True)]
    except tf.errors.OpError as error:
        run["error"] = error.error_code
    return run


def main() -> None:
    answers: dict[str, Any] = {}
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    for name, build in CASES.items():
        with v1.Graph().as_default() as graph, v1.Session(graph=graph, config=config) as session:
            runs = build()
            (FOLDER / f"{name}.pb").write_bytes(graph.as_graph_def().SerializeToString(deterministic=True))
            answers[name] = [answer(session, *run) for run in runs]
            print(name, [run.get("error", [v["values"] for v in run.get("values", ())]) for run in answers[name]])
    (FOLDER / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
