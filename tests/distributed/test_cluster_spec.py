"""ClusterSpec: jobs, tasks and addresses, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError

SPEC = ax.ClusterSpec({"ps": ["a:1"], "worker": {0: "b:1", 2: "unix:/run/w"}})


def test_what_is_in_a_spec() -> None:
    assert SPEC.jobs == ("ps", "worker")
    assert SPEC.tasks("worker") == (0, 2)
    assert SPEC.address("worker", 2) == "unix:/run/w"
    assert dict(SPEC) == {
        "/job:ps/replica:0/task:0": "a:1",
        "/job:worker/replica:0/task:0": "b:1",
        "/job:worker/replica:0/task:2": "unix:/run/w",
    }
    assert len(SPEC) == 3
    assert repr(SPEC) == "ClusterSpec({'ps': {0: 'a:1'}, 'worker': {0: 'b:1', 2: 'unix:/run/w'}})"


def test_specs_of_the_same_workers_are_equal() -> None:
    same = ax.ClusterSpec({"worker": {2: "unix:/run/w", 0: "b:1"}, "ps": {0: "a:1"}})
    assert same == SPEC
    assert {same, SPEC} == {SPEC}
    assert ax.ClusterSpec({"ps": ["a:1"]}) != SPEC


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ("worker", "takes a mapping of jobs, not str"),
        ({"worker": "a:1"}, "takes a list of addresses, not 'a:1'"),
        ({"worker": []}, "job 'worker' has no tasks"),
        ({"a b": ["a:1"]}, "the name of a job is a word"),
        ({"localhost": ["a:1"]}, "the process that the session is in"),
        ({"worker": {-1: "a:1"}}, "the number of a task of job 'worker' is 0 or more, not -1"),
        ({"worker": [""]}, "the address of task 0 of job 'worker' is a text, not ''"),
        ({"worker": ["a:1", "a:1"]}, "have the same address: 'a:1'"),
    ],
)
def test_what_is_no_spec(jobs: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ax.ClusterSpec(jobs)


def test_what_is_not_in_a_spec() -> None:
    with pytest.raises(InvalidArgumentError, match="there is no job 'chief'; there is ps, worker"):
        SPEC.tasks("chief")
    with pytest.raises(InvalidArgumentError, match="job 'worker' has no task 1; it has 0, 2"):
        SPEC.address("worker", 1)
