"""Strategies for graphs: what they reach, how a program is shown, and that only they need hypothesis."""

from __future__ import annotations

import ast
import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.graph_text import graph_text
from asyncexec.testing.evaluate import evaluate
from asyncexec.testing.graph_strategies import Program, programs, raw_programs

GENERATE = settings(
    max_examples=200,
    phases=[Phase.generate],
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def outcome(program: Program) -> str:
    try:
        evaluate(program.graph(), program.fetches, program.feeds)
    except InvalidArgumentError as error:
        return error.message.rpartition(" ")[2]
    return "live"


def features(program: Program) -> Iterator[str]:
    names = [re.sub(r"_\d+", "", node.name) for node in program.graph_def.node]
    for part in ("while/cond", "cond/while", "while/while", "switch_case"):
        if any(part in name for name in names):
            yield part
    if any(call.startswith("while/") for call in program.calls):
        yield "call in a loop"
    if len(program.fetches) == 4:
        yield "four fetches"
    is_looping = any(node.op == "LoopCond" for node in program.graph_def.node)
    yield f"{outcome(program)} {'with' if is_looping else 'without'} a loop"


def check_reaches(strategy: SearchStrategy[Program], wanted: set[str]) -> None:
    missing = set(wanted)

    def is_last(program: Program) -> bool:
        missing.difference_update(features(program))
        return not missing

    with contextlib.suppress(NoSuchExample):
        find(strategy, is_last, settings=GENERATE)
    assert missing == set()


def test_programs_reach() -> None:
    nests = {"while/cond", "cond/while", "while/while", "switch_case", "call in a loop", "four fetches"}
    check_reaches(programs(dead_fetches=True), nests | {"live with a loop", "<dead> with a loop"})


def test_raw_programs_reach() -> None:
    outcomes = {"live with a loop", "<dead> with a loop", "<dead> without a loop"}
    check_reaches(raw_programs(), outcomes | {"four fetches"})


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs() | raw_programs())
def test_a_program_is_shown_as_what_makes_it(program: Program) -> None:
    again = Program.parse(*ast.literal_eval(repr(program).removeprefix("Program.parse")))
    assert graph_text(again.graph_def) == graph_text(program.graph_def)
    assert again.fetches == program.fetches
    assert outcome(again) == outcome(program)
    assert {k: v.tolist() for k, v in program.feeds.items()} == again.feeds


def test_the_package_does_without_hypothesis() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; import asyncexec.testing"
    subprocess.run([sys.executable, "-c", code], check=True)
