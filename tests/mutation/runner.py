"""MutationRun: the pytest plugin that finds out which tests run which lines, and runs them under each mutant."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import math
import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.operators import Mutant, functions_of, lines_of, mutated_code
from tests.mutation.processes import Ended, run_in_children

# Processor seconds of a test, traced, from which on it is left out; and that it may take under a mutant.
SLOW_TEST_S: Final = 3.0
BUSY_S: Final = 20.0
_NOT_MADE: Final = ("", True)


class Verdict(enum.Enum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"
    UNREACHED = "reached by no test"
    NOT_MADE = "not made"


@dataclass(slots=True)
class Traced:
    """What is known of a test that was run once, traced: the lines that it runs, by module, and its time."""

    lines: dict[str, set[int]]
    seconds: float
    has_passed: bool


@dataclass(slots=True)
class MutationRun:
    """Runs the tests that pytest has collected under each of *mutants*, in place of running them.

    Args:
        mutants: what to try.
        texts: of the modules, by path.

    Attributes:
        verdicts: of each mutant that was tried.
        num_tests, num_left_out: that were traced, and that do not count: they are slow, or fail when they are traced.
    """

    mutants: Sequence[Mutant]
    texts: Mapping[str, str]
    root: Path
    num_processes: int
    verdicts: dict[Mutant, Verdict] = field(default_factory=dict)
    num_tests: int = 0
    num_left_out: int = 0

    def pytest_configure(self) -> None:
        """Let tests of properties stop at the first failing example, and not look for a smaller one."""
        import hypothesis  # not before pytest has: it rewrites its assertions

        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        same = hypothesis.settings.get_profile("same")
        hypothesis.settings.register_profile("mutation", same, phases=phases, database=None)
        hypothesis.settings.load_profile("mutation")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run it all."""
        if session.testsfailed:
            return True
        items = {item.nodeid: item for item in session.items}
        items = {name: item for name, item in items.items() if not is_repeated(name, items)}
        traced = self._trace(items)
        used = {name: one for name, one in traced.items() if one.has_passed and one.seconds < SLOW_TEST_S}
        self.num_tests, self.num_left_out = len(traced), len(traced) - len(used)
        _Trials(self, items, used).run()
        return True

    def _trace(self, items: Mapping[str, pytest.Item]) -> dict[str, Traced]:
        """Run each test once."""
        functions = spans(self.mutants, self.texts, self.root)
        modules: dict[str, list[str]] = {}
        for name in items:
            modules.setdefault(module_of(name), []).append(name)

        def work(names: Sequence[str], tell: Callable[[Any], None]) -> None:
            for name in names:
                tracer = LineTracer(functions)
                start = time.process_time()
                with tracer:
                    has_passed = passes(items[name])
                tell((name, Traced(tracer.lines, time.process_time() - start, has_passed)))

        found: dict[str, Traced] = {}
        pending = list(modules.values())
        while pending:
            jobs, pending = pending, []
            for names, ended in run_in_children(jobs, work, self.num_processes, 2 * SLOW_TEST_S):
                found.update(ended.messages)
                _show(f"traced: {module_of(names[0])}: {sum(one.seconds for _, one in ended.messages):.1f} s")
                if not ended.is_done:  # go on behind the test that took too long
                    slow, *rest = names[len(ended.messages) :]
                    found[slow] = Traced({}, math.inf, has_passed=False)
                    pending += [rest] if rest else []
        return found


class _Trials:
    """The trials of all mutants of one run."""

    def __init__(self, run: MutationRun, items: Mapping[str, pytest.Item], traced: Mapping[str, Traced]) -> None:
        self._run = run
        self._items = items
        self._traced = traced
        self._num_killed_by: dict[str, int] = {}
        self._doubtful: set[str] = set()  # tests that have failed without a mutant

    def run(self) -> None:
        """Try all with the tests that reach them; again those whose killer fails without them too."""
        run, pending = self._run, list(self._run.mutants)

        def work(mutant: Mutant, tell: Callable[[Any], None]) -> None:
            try:
                apply(mutant, run.texts[mutant.path], run.root)
            except (LookupError, ValueError):  # a closure, say, that the change does without
                tell(_NOT_MADE)
                return
            for name in self._reaching(mutant):
                has_passed = passes(self._items[name])
                tell((name, has_passed))
                if not has_passed:
                    return

        while pending:
            again: list[Mutant] = []
            for mutant, ended in run_in_children(pending, work, run.num_processes, BUSY_S):
                verdict = self._verdict(ended)
                if verdict is None:
                    again.append(mutant)
                else:
                    run.verdicts[mutant] = verdict
                    _show(f"{verdict.value}: {mutant.key}: {mutant.text}")
            pending = again

    def _verdict(self, ended: Ended) -> Verdict | None:
        """What became of a mutant; None if the test that failed does so without it too."""
        killer = ended.messages[-1][0] if ended.messages and not ended.messages[-1][1] else None
        if killer is not None:
            if not self._is_sound(killer):
                return None
            self._num_killed_by[killer] = self._num_killed_by.get(killer, 0) + 1
            return Verdict.KILLED
        if _NOT_MADE in ended.messages:
            return Verdict.NOT_MADE
        if not ended.is_done:
            return Verdict.TIMED_OUT
        return Verdict.SURVIVED if ended.messages else Verdict.UNREACHED

    def _reaching(self, mutant: Mutant) -> list[str]:
        """The tests that run its line: first those that have killed others, then the quickest."""
        traced = self._traced
        names = [name for name, one in traced.items() if mutant.line in one.lines.get(mutant.path, ())]
        names = [name for name in names if name not in self._doubtful]
        return sorted(names, key=lambda name: (-self._num_killed_by.get(name, 0), traced[name].seconds))

    def _is_sound(self, name: str) -> bool:
        """Whether the test passes without any mutant, once more."""
        if self._num_killed_by.get(name):
            return True

        def work(name: str, tell: Callable[[Any], None]) -> None:
            tell(passes(self._items[name]))

        ((_, ended),) = run_in_children([name], work, 1, BUSY_S)
        if ended.messages == [True]:
            return True
        self._doubtful.add(name)
        return False


class LineTracer:
    """Notes which lines of some functions run, in any thread, while it is entered.

    Args:
        functions: of each file, by its name in code objects, the key for its lines and the functions' first and last
            lines; functions inside of them count.

    Attributes:
        lines: those that ran, by the files' keys.
    """

    def __init__(self, functions: Mapping[str, tuple[str, Sequence[tuple[int, int]]]]) -> None:
        self._functions = functions
        self._tracers: dict[CodeType, Any] = {}
        self.lines: dict[str, set[int]] = {key: set() for key, _ in functions.values()}

    def __enter__(self) -> None:
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code not in self._tracers:
            self._tracers[code] = self._tracer_of(code)
        return self._tracers[code]

    def _tracer_of(self, code: CodeType) -> Any:
        key, found = self._functions.get(code.co_filename, ("", ()))
        if not any(first <= code.co_firstlineno <= last for first, last in found):
            return None
        lines = self.lines[key]

        def on_line(frame: FrameType, event: str, arg: Any) -> Any:
            lines.add(frame.f_lineno)
            return on_line

        return on_line


def spans(
    mutants: Iterable[Mutant], texts: Mapping[str, str], root: Path
) -> dict[str, tuple[str, list[tuple[int, int]]]]:
    """For a LineTracer: the functions of *mutants*, in the files that lie at *root*."""
    names: dict[str, set[str]] = {}
    for mutant in mutants:
        names.setdefault(mutant.path, set()).add(mutant.function)
    return {
        str(root / path): (
            path,
            [lines_of(node) for name, node in functions_of(ast.parse(texts[path])) if name in wanted],
        )
        for path, wanted in names.items()
    }


def is_repeated(name: str, names: Container[str]) -> bool:
    """Whether the test repeats another one of *names*, on the second event loop."""
    return "uvloop" in name and name.replace("uvloop", "asyncio") in names


def _show(line: str) -> None:
    """Tell who watches how far it is."""
    print(line, file=sys.stderr, flush=True)


def module_of(name: str) -> str:
    """The file of a test."""
    return name.partition("::")[0]


def passes(item: pytest.Item) -> bool:
    """Whether the test passes, or is skipped, its setup and teardown included."""
    reports = runtestprotocol(item, log=False, nextitem=None)
    return not any(report.failed for report in reports)


def apply(mutant: Mutant, text: str, root: Path) -> None:
    """Change the function in this process.

    Raises:
        LookupError: it cannot be found.
        ValueError: it holds other variables of functions around it than before.
    """
    filename = str(root / mutant.path)
    module = importlib.import_module(mutant.path.removesuffix(".py").replace("/", "."))
    new = mutated_code(text, mutant, filename)
    functions = list(live_functions(module, mutant.function, new))
    if not functions:
        raise LookupError(mutant.function)
    for function in functions:
        function.__code__ = new


def live_functions(module: Any, name: str, code: CodeType) -> Iterable[FunctionType]:
    """The functions of that *name* and first line in an imported module, whatever they are wrapped in."""
    owner = module
    *outer, last = name.split(".")
    for part in outer:
        owner = vars(owner)[part]
    found = vars(owner)[last]
    parts = (found.fget, found.fset, found.fdel) if isinstance(found, property) else (found,)
    for part in parts:
        function = inspect.unwrap(getattr(part, "__func__", part)) if part is not None else None
        if isinstance(function, FunctionType) and function.__code__.co_firstlineno == code.co_firstlineno:
            yield function
