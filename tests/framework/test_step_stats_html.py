"""What RunMetadata says of itself, in a line and as a timeline."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from asyncexec.framework.step_stats import DeviceStepStats, NodeExecStats, PassStats, RunMetadata, StepStats
from asyncexec.framework.step_stats_html import MAX_EXECUTIONS

SPACE = "{http://www.w3.org/2000/svg}"
DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def execution(name: str, begin_us: int, end_us: int, failure: str = "") -> NodeExecStats:
    return NodeExecStats(
        node_name=name,
        all_start_micros=begin_us,
        all_start_nanos=begin_us * 1_000,
        op_end_rel_nanos=(end_us - begin_us) * 1_000,
        timeline_label=f"{name} = Neg()",
        thread_id=1,
        failure=failure,
    )


def metadata(*executions: NodeExecStats) -> RunMetadata:
    device = DeviceStepStats(device=DEVICE, node_stats=list(executions), thread_names={1: "event loop"})
    return RunMetadata(step_stats=StepStats(dev_stats=[device]))


def bars(html: str) -> list[ElementTree.Element]:
    found = re.search(r"<svg.*</svg>", html, re.DOTALL)
    assert found is not None
    return list(ElementTree.fromstring(found[0]).iter(f"{SPACE}rect"))


def test_a_line_says_what_ran_for_how_long_and_what_else_there_is() -> None:
    filled = metadata(execution("a", 0, 1_500), execution("b", 1_000, 2_000, "cancelled"))
    filled.passes = [PassStats(name="prune", num_nodes_before=2, num_nodes_after=1)]
    assert repr(filled) == "<ax.RunMetadata: 2 executions on 1 device in 2 ms, 1 failed, 1 pass>"
    assert str(filled) == repr(filled)
    assert repr(RunMetadata()) == "<ax.RunMetadata: not traced>"


def test_the_timeline_has_a_bar_where_each_node_ran() -> None:
    a, b = bars(metadata(execution("a", 0, 1_000), execution("b", 1_500, 2_000))._repr_html_())
    assert float(a.get("width", "")) == 2 * float(b.get("width", ""))
    assert float(a.get("x", "")) + 1.5 * float(a.get("width", "")) == float(b.get("x", ""))
    assert a.get("y") == b.get("y")
    assert "a\n" in "".join(a.itertext())


def test_executions_that_overlap_have_rows_of_their_own() -> None:
    a, b = bars(metadata(execution("a", 0, 1_000), execution("b", 500, 1_500))._repr_html_())
    assert a.get("y") != b.get("y")


def test_a_failure_is_of_another_colour() -> None:
    a, b = bars(metadata(execution("a", 0, 10), execution("b", 10, 20, "InternalError"))._repr_html_())
    assert a.get("fill") != b.get("fill")


def test_a_run_that_was_not_traced_has_no_timeline() -> None:
    html = RunMetadata()._repr_html_()
    assert "<svg" not in html
    assert "RunOptions(trace=True)" in html


def test_the_longest_of_many_executions_are_shown() -> None:
    many = [execution(f"n{i}", i * 10, i * 10 + 1 + (i == 7)) for i in range(MAX_EXECUTIONS + 50)]
    html = metadata(*many)._repr_html_()
    assert len(bars(html)) == MAX_EXECUTIONS
    assert "n7\n" in html
    assert "50 executions" in html


def test_names_of_strangers_stay_text() -> None:
    html = metadata(execution("<script>", 0, 10_000))._repr_html_()
    assert "<script" not in html
