"""TensorFlow's own client against a service: ``python -m tests.service.tensorflow_client PORT``.

It is a program of its own, for TensorFlow keeps threads and channels until its process ends.  It prints what it has
checked, and ends with an AssertionError at the first difference.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions

v1 = tf.compat.v1
v1.disable_eager_execution()
v1.disable_control_flow_v2()

TARGET = f"grpc://127.0.0.1:{sys.argv[1]}"
GOLDEN = Path(__file__).parents[1] / "golden" / "tf"


def raises(kind: type[Exception], call: Callable[[], object]) -> Any:
    """The error of *kind* that *call* raises."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def feeds_and_fetches() -> None:
    x = v1.placeholder(tf.float32, [None], name="x")
    y, z = x * 2.0, tf.constant([1, 2], tf.int64)
    with v1.Session(TARGET) as session:
        values = session.run({"y": y, "again": [y, z], "op": y.op}, {x: [1, 2]})
        assert values["y"].tolist() == values["again"][0].tolist() == [2, 4]
        assert values["again"][1].tolist() == [1, 2]
        assert [device.device_type for device in session.list_devices()] == ["CPU"]


def loops_and_conds() -> None:
    n = v1.placeholder(tf.int32, [])
    _, total = tf.while_loop(lambda i, _: i < n, lambda i, total: (i + 1, total + i), [0, 0])
    text = v1.cond(n > 3, lambda: tf.constant("large"), lambda: tf.strings.join(["sm", "all"]))
    grad = tf.gradients(tf.while_loop(lambda x: x < 100.0, lambda x: x * x, [tf.cast(n, tf.float32)]), [n])
    assert grad == [None]
    with v1.Session(TARGET) as session:
        assert session.run([total, text], {n: 5}) == [10, b"large"]
        assert session.run([total, text], {n: 0}) == [0, b"small"]


def strings_and_large_tensors() -> None:
    texts, numbers = v1.placeholder(tf.string, [None]), v1.placeholder(tf.float32, [None])
    joined, doubled = tf.strings.join([texts, "!"]), numbers * 2.0
    with v1.Session(TARGET) as session:
        assert session.run(joined, {texts: [b"a", b"\xff\0", "ü"]}).tolist() == [b"a!", b"\xff\0!", "ü!".encode()]
        large = np.arange(5 * 2**20, dtype=np.float32)  # 20 MB
        np.testing.assert_array_equal(session.run(doubled, {numbers: large}), large * 2)


def errors() -> None:
    i = v1.placeholder(tf.int32, [], name="i")
    quotient = tf.math.floordiv(10, i, name="quotient")
    long = v1.Assert(i > 0, ["m" * 100_000], name="long")
    with v1.Session(TARGET) as session:
        error = raises(tf.errors.InvalidArgumentError, lambda: session.run(quotient, {i: 0}))
        assert error.op is quotient.op
        assert "Integer division by zero" in error.message
        assert "quotient" in error.message
        assert "m" * 100_000 in raises(tf.errors.InvalidArgumentError, lambda: session.run(long, {i: 0})).message
        assert session.run(quotient, {i: 5}) == 2
    assert "closed" in str(raises(RuntimeError, lambda: session.run(quotient, {i: 5})))


def variables_and_extension() -> None:
    variable = v1.get_variable("v", initializer=3.0)
    changed = v1.assign_add(variable, 1.0)
    with v1.Session(TARGET) as session:
        raises(tf.errors.FailedPreconditionError, lambda: session.run(variable))
        session.run(v1.global_variables_initializer())
        assert session.run(changed) == 4
        assert session.run(variable * 2.0) == 8  # a node more
        loss = tf.square(variable - 1.0)
        step = v1.train.GradientDescentOptimizer(0.25).minimize(loss)
        for _ in range(20):
            session.run(step)
        assert abs(session.run(variable) - 1.0) < 1e-4


def shared_state() -> None:
    variable = v1.get_variable("shared", initializer=1)
    changed = v1.assign_add(variable, 1)
    named, own = (tf.queue.FIFOQueue(3, [tf.int32], shared_name=name, name="q") for name in ("q", None))
    sizes = [named.size(), own.size()]
    with v1.Session(TARGET) as session:
        session.run([variable.initializer, named.enqueue(7), own.enqueue(7)])
        assert session.run(changed) == 2
        with v1.Session(TARGET) as other:
            assert other.run([changed, *sizes]) == [3, 1, 0]
    with v1.Session(TARGET, config=v1.ConfigProto(isolate_session_state=True)) as apart:
        raises(tf.errors.NotFoundError, lambda: apart.run(changed))
    with v1.Session(TARGET) as later:
        assert later.run([changed, *sizes]) == [4, 1, 0]
    v1.Session.reset(TARGET)
    with v1.Session(TARGET) as last:
        raises(tf.errors.NotFoundError, lambda: last.run(changed))
        assert last.run(sizes) == [0, 0]


def functions() -> None:
    @tf.function
    def f(x: Any) -> Any:
        return x + 1

    y = f(tf.constant(1))
    with v1.Session(TARGET) as session:
        assert session.run(y) == 2
        assert session.run(f(y)) == 3  # the function is sent again


def partial_runs_and_callables() -> None:
    a, b = v1.placeholder(tf.float32, [], name="a"), v1.placeholder(tf.float32, [])
    first, second = a * 2.0, a + b
    with v1.Session(TARGET) as session:
        handle = session.partial_run_setup([first, second], [a, b])
        assert session.partial_run(handle, first, {a: 3}) == 6
        assert session.partial_run(handle, second, {b: 4}) == 7
        raises(tf.errors.InvalidArgumentError, lambda: session.partial_run(handle, second))
        call = session.make_callable(first, [a])
        assert call(4.0) == 8
        made = session._make_callable_from_options(CallableOptions(feed=["a:0"], fetch=[first.name]))
        assert made(np.float32(5)) == [10]
        del made  # while there is a session to release it


def timeouts_and_traces() -> None:
    x = tf.identity(tf.constant(1), name="traced")
    got = tf.queue.FIFOQueue(1, tf.int32).dequeue()
    late = tf.errors.DeadlineExceededError
    with v1.Session(TARGET) as session:
        raises(late, lambda: session.run(got, options=v1.RunOptions(timeout_in_ms=50)))
        metadata = v1.RunMetadata()
        session.run(x, options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), run_metadata=metadata)
        assert "traced" in {stats.node_name for device in metadata.step_stats.dev_stats for stats in device.node_stats}
    with v1.Session(TARGET, config=v1.ConfigProto(operation_timeout_in_ms=2000)) as session:
        assert session.run(x) == 1
        raises(late, lambda: session.run(got))


def files() -> None:
    text = tf.io.read_file("/etc/hostname")
    with v1.Session(TARGET) as session:
        raises(tf.errors.PermissionDeniedError, lambda: session.run(text))


def reset() -> None:
    one = tf.constant(1)
    session = v1.Session(TARGET)
    session.run(one)
    v1.Session.reset(TARGET)
    raises(tf.errors.AbortedError, lambda: session.run(one))
    raises(tf.errors.AbortedError, session.close)


def golden_graphs() -> None:
    """Each graph of ``tests/golden/tf`` that TensorFlow's client lets through: values, errors and traces."""
    counts: Counter[str] = Counter()
    for folder in sorted(path for path in GOLDEN.iterdir() if path.is_dir()):
        meta = json.loads((folder / "meta.json").read_text())
        if meta["import_error"]:
            continue
        with np.load(folder / "data.npz", allow_pickle=False) as data:
            arrays = dict(data)
        with v1.Graph().as_default() as graph:
            tf.import_graph_def(v1.GraphDef.FromString((folder / "graph.pb").read_bytes()), name="")
            with v1.Session(
                TARGET, config=v1.ConfigProto(isolate_session_state=True, **meta["session_config"])
            ) as session:
                for number, run in enumerate(meta["runs"]):
                    try:
                        golden_run(session, graph, meta, run, arrays)
                    except Exception as error:
                        error.add_note(f"{folder.name}, run {number}")
                        raise
                    counts["error" if run["error"] else "value"] += 1
        counts["graph"] += 1
    print(", ".join(f"{number} {what}s" for what, number in counts.items()))


def golden_run(session: Any, graph: Any, meta: dict[str, Any], run: dict[str, Any], arrays: dict[str, Any]) -> None:
    """One run of a golden graph: what TensorFlow's own runtime has made of it."""

    def array(spec: dict[str, Any]) -> Any:
        found = arrays[spec["array"]]
        return found.astype(object) if spec["dtype"] == "string" else found.reshape(spec["shape"])

    feeds = {name: array(spec) for name, spec in run["feeds"].items()}
    fetches = [[spec["tensor"] for spec in run["fetches"]], run["targets"]]
    options = v1.RunOptions(trace_level=3, timeout_in_ms=run.get("options", {}).get("timeout_in_ms"))
    metadata, wanted = v1.RunMetadata(), run["error"]
    if wanted is not None:
        kind = tf.errors.OpError if wanted["phase"] == "run" else Exception
        error = raises(kind, lambda: session.run(fetches, feeds, options=options, run_metadata=metadata))
        assert wanted["phase"] != "run" or error.error_code == wanted["code"]
        return
    values = session.run(fetches, feeds, options=options, run_metadata=metadata)[0]
    for value, spec in zip(values, run["fetches"], strict=True):
        expected, got = array(spec), np.asarray(value, object if spec["dtype"] == "string" else None)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        if expected.dtype.kind in "fcV":
            np.testing.assert_allclose(got, expected, rtol=meta["rtol"], atol=meta["atol"])
        else:
            assert got.tolist() == expected.tolist()
    if "traced_nodes" in run:
        names = {node.name for node in graph.get_operations()}
        stats = [each.node_name for device in metadata.step_stats.dev_stats for each in device.node_stats]
        assert Counter(name for name in stats if name in names) == run["traced_nodes"]


CHECKS = (
    feeds_and_fetches,
    loops_and_conds,
    strings_and_large_tensors,
    errors,
    variables_and_extension,
    shared_state,
    functions,
    partial_runs_and_callables,
    timeouts_and_traces,
    files,
    reset,
    golden_graphs,
)

if __name__ == "__main__":
    for check in CHECKS:
        with v1.Graph().as_default():
            check()
        print(check.__name__)
