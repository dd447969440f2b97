"""The guards of tests/conftest.py do guard: a test that breaks a rule fails, and each loop really runs."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).with_name("conftest.py")
SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
addopts = -p no:anyio -p no:cacheprovider
markers =
    deep
    first
    one_of
    virtual_clock
    allow_blocking
"""


async def test_each_loop_really_runs(request: pytest.FixtureRequest) -> None:
    named = "uvloop" if "uvloop" in request.node.name else "asyncio"
    assert type(asyncio.get_running_loop()).__module__.startswith(named)


def test_an_asynchronous_test_runs_once_on_each_loop(request: pytest.FixtureRequest) -> None:
    names = {item.name for item in request.session.items}
    loops = ["asyncio"] if sys.platform == "win32" else ["asyncio", "uvloop"]
    if len(request.session.items) > 1:
        assert {f"test_each_loop_really_runs[{loop}]" for loop in loops} <= names


@pytest.fixture
def outcome(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> object:
    """Runs a test module under our conftest in a process of its own."""
    monkeypatch.setenv("PYTHONPATH", str(CONFTEST.parents[1]))
    pytester.makeconftest(CONFTEST.read_text().replace("GRACE_S = 2.0", "GRACE_S = 0.05"))
    pytester.makefile(".ini", pytest=SETTINGS)

    def run(source: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess(*arguments)

    return run


def test_what_is_left_behind_fails_the_test(outcome) -> None:  # type: ignore[no-untyped-def]
    result = outcome(
        """
        import asyncio, threading, os

        kept = []

        async def test_task():
            kept.append(asyncio.ensure_future(asyncio.sleep(60)))

        def test_thread():
            threading.Thread(target=threading.Event().wait, name="stray", daemon=True).start()

        def test_file():
            kept.append(os.open("pytest.ini", os.O_RDONLY))

        async def test_clean():
            await asyncio.gather(asyncio.sleep(0), asyncio.to_thread(len, ""))
            with open("pytest.ini") as file:
                file.read()
        """
    )
    result.assert_outcomes(passed=6, errors=4)
    result.stdout.fnmatch_lines(["*left tasks behind*", "*left threads behind: stray*", "*left files open*pytest.ini*"])


def test_one_of_the_variants_runs_and_the_others_are_deep(outcome) -> None:  # type: ignore[no-untyped-def]
    source = """
        import pytest

        @pytest.mark.one_of("part")
        @pytest.mark.parametrize("part", "abc")
        @pytest.mark.parametrize("number", range(4))
        def test_parts(part, number):
            pass

        @pytest.mark.one_of("loop")
        @pytest.mark.parametrize("number", range(2))
        async def test_loops(number):
            pass
        """
    result = outcome(source, "-v", "-m", "not deep")
    result.assert_outcomes(passed=4 + 2, deselected=4 * 2 + 2)
    parts = dict(re.findall(r"test_parts\[(\d)-(\w)\] PASSED", result.stdout.str()))
    assert set(parts.values()) == set("abc")
    loops = re.findall(r"test_loops\[(\w+)-\d\] PASSED", result.stdout.str())
    assert sorted(loops) == ["asyncio", "uvloop"]


def test_what_takes_long_begins_before_the_others(outcome) -> None:  # type: ignore[no-untyped-def]
    result = outcome(
        """
        import pytest

        def test_a(): pass

        def test_b(): pass

        @pytest.mark.first
        def test_c(): pass
        """,
        "-v",
    )
    result.assert_outcomes(passed=3)
    assert re.findall(r"::test_(\w) PASSED", result.stdout.str()) == ["c", "a", "b"]


def test_reports_of_workers_are_complete(outcome) -> None:  # type: ignore[no-untyped-def]
    """But for the keywords of what has passed, which are left out."""
    result = outcome(
        """
        import pytest

        def test_passed(record_property):
            record_property("counts", {"nodes": 2})

        @pytest.mark.skip(reason="not now")
        def test_skipped(): pass

        def test_failed():
            print("said")
            assert [] == [1]
        """,
        *("-n", "1", "-rs", "--durations", "1"),
    )
    result.assert_outcomes(passed=1, skipped=1, failed=1)
    result.stdout.fnmatch_lines(["*assert [[][]] == [[]1[]]", "*said*", "*slowest 1 durations*", "SKIPPED*not now*"])
    result.stdout.fnmatch_lines(["*test_passed: 2 nodes"])


def test_a_call_that_blocks_the_loop_fails_the_test(outcome) -> None:  # type: ignore[no-untyped-def]
    result = outcome(
        """
        import time
        import pytest
        from asyncexec.framework import extras

        @pytest.fixture
        def nap(monkeypatch):
            # as if a function of asyncexec slept
            code = compile("import time\\ndef nap(): time.sleep(0.001)", extras.__file__, "exec")
            exec(code, namespace := {})
            return namespace["nap"]

        async def test_asleep(nap):
            nap()

        @pytest.mark.allow_blocking
        async def test_allowed(nap):
            nap()

        def test_no_loop(nap):
            nap()
        """
    )
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(["*BlockingError: Blocking call to time.sleep*"])


def test_a_forgotten_await_fails_the_test(outcome) -> None:  # type: ignore[no-untyped-def]
    result = outcome(
        """
        import asyncio

        async def test_forgotten():
            asyncio.sleep(0)
        """
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*never awaited*"])
