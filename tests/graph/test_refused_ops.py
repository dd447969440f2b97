"""Ops that reach outside of an imported graph and were not allowed: they are in the graph, and never run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.distributed.graph_wire import WireGraph, WorkerPolicy, decode_partitions
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.errors import PermissionDeniedError
from asyncexec.framework.graph_def import FunctionDefLibrary, GraphDef
from asyncexec.testing.evaluate import evaluate
from tests.distributed.clusters import small_cluster
from tests.ops.data.pipelines import iterated, slices
from tests.optimization.function_text import function, node


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "secret"
    path.write_bytes(b"secret")
    yield path
    assert path.read_bytes() == b"secret"


def stranger(secret: Path) -> GraphDef:
    """A graph that reads and writes, and gives 3 to whom asks for no file."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        ax.add(x, 1.0, name="y")
        read = ax.create_op("ReadFile", [str(secret)], name="read")
        again = ax.create_op("ReadFile", [str(secret)], name="again")
        ax.string_join([read, again], name="both")
        ax.create_op("WriteFile", [str(secret), "gone"], name="write")
        with ax.control_dependencies([graph["write"]]):
            ax.identity(x, name="after")
    return graph.as_graph_def()


def imported(graph_def: GraphDef, **options: Any) -> ax.Graph:
    with ax.Graph() as graph:
        ax.import_graph_def(graph_def, **options)
    return graph


async def refusal(graph: ax.Graph, *fetches: str, config: ax.SessionConfig | None = None) -> PermissionDeniedError:
    async with ax.Session(graph, config) as session:
        with pytest.raises(PermissionDeniedError) as caught:
            await session.run(list(fetches), {"x:0": 2.0} if "x" in graph else {})
    return caught.value


async def test_what_nobody_fetches_is_no_error(secret: Path) -> None:
    async with ax.Session(imported(stranger(secret))) as session:
        assert await session.run("y:0", {"x:0": 2.0}) == 3.0
        assert await session.run("both:0", {"read:0": b"a", "again:0": b"b"}) == b"ab"


@pytest.mark.parametrize("executor_type", ["DEFAULT", "COMPILED"])
async def test_all_that_a_fetch_needs_is_named_at_once(secret: Path, executor_type: str) -> None:
    graph = imported(stranger(secret))
    error = await refusal(graph, "both:0", "after:0", config=ax.SessionConfig(executor_type=executor_type))
    assert "ReadFile ('read', 'again')" in error.message
    assert "WriteFile ('write')" in error.message
    assert error.node in {"read", "again", "write"}
    assert error.hint is not None
    assert "allowed_ops=['ReadFile', 'WriteFile']" in error.hint or "['WriteFile', 'ReadFile']" in error.hint
    assert "allowed_folders" in error.hint


async def test_what_is_allowed_runs_and_the_rest_does_not(secret: Path) -> None:
    graph = imported(stranger(secret), allowed_ops=["ReadFile"])
    async with ax.Session(graph) as session:
        assert await session.run("both:0") == b"secretsecret"
    assert "ReadFile" not in (await refusal(graph, "both:0", "after:0")).message


async def test_each_import_is_decided_for_itself(secret: Path) -> None:
    graph_def = stranger(secret)
    with ax.Graph() as graph:
        ax.import_graph_def(graph_def, "before")
        ax.import_graph_def(graph_def, "trusted", allowed_ops=["ReadFile"])
        ax.import_graph_def(graph_def, "after")
        own = ax.create_op("ReadFile", [str(secret)], name="own")
    async with ax.Session(graph) as session:
        assert await session.run([own, "trusted/read:0"]) == [b"secret", b"secret"]
        for name in ("before", "after"):
            with pytest.raises(PermissionDeniedError):
                await session.run(f"{name}/read:0")
        await session.extend(GraphDef(node=tuple(n for n in graph_def.node if n.name.startswith("read"))))
        with pytest.raises(PermissionDeniedError):
            await session.run("read:0")
    with pytest.raises(PermissionDeniedError):  # whoever writes a graph down trusted it, but its reader may not
        async with ax.Session(imported(graph.as_graph_def())) as session:
            await session.run("own:0")


async def test_files_that_are_known_are_not_folded_into_constants(secret: Path) -> None:
    config = ax.SessionConfig(optimization="on")
    assert "ReadFile" in (await refusal(imported(stranger(secret)), "both:0", config=config)).message


READS = function("Reads(name: string) -> text: string", node("r", "ReadFile", "name"), ret="text=r:contents:0")


def calling(secret: Path) -> GraphDef:
    """A graph that reads by a function, called by its name, by a branch and for each element of a dataset."""
    with ax.Graph() as graph:
        ax.constant(str(secret), name="name")
    call = node("call", "Reads", "name")
    nested = node("nested", "PartitionedCall", "name", f="Reads", Tin=[ax.string], Tout=[ax.string])
    return GraphDef(node=(*graph.as_graph_def().node, call, nested), library=FunctionDefLibrary(function=(READS,)))


@pytest.mark.parametrize("fetch", ["call:0", "nested:0"])
async def test_functions(secret: Path, fetch: str) -> None:
    assert "ReadFile" in (await refusal(imported(calling(secret)), fetch)).message
    async with ax.Session(imported(calling(secret), allowed_ops=["ReadFile"])) as session:
        assert await session.run(fetch) == b"secret"
    async with ax.Session(imported(calling(secret), allowed_folders=[secret.parent])) as session:
        assert await session.run(fetch) == b"secret"


async def test_a_function_is_not_allowed_what_another_import_is(secret: Path) -> None:
    with ax.Graph() as graph:
        ax.import_graph_def(stranger(secret), "trusted", allowed_ops=["ReadFile"])
        ax.import_graph_def(calling(secret))
    assert "ReadFile" in (await refusal(graph, "call:0")).message


async def test_who_trusts_a_graph_later_imports_it_again(secret: Path) -> None:
    with ax.Graph() as graph:
        ax.import_graph_def(calling(secret))
    async with ax.Session(graph) as session:
        with pytest.raises(PermissionDeniedError):
            await session.run("call:0")
        with graph:
            ax.import_graph_def(calling(secret), "again", allowed_ops=["ReadFile"])
        assert await session.run("again/call:0") == b"secret"


async def first_element(session: ax.Session) -> Any:
    await session.run([], targets=["it/make"])
    return await session.run("it/next:0")


async def test_functions_of_datasets(secret: Path) -> None:
    with ax.Graph() as graph:
        iterated(slices([str(secret)]).map(lambda name: ax.create_op("ReadFile", [name])), "it")
    for allowed in ([], ["ReadFile"]):
        async with ax.Session(imported(graph.as_graph_def(), allowed_ops=allowed)) as session:
            if not allowed:
                with pytest.raises(PermissionDeniedError):
                    await first_element(session)
            else:
                assert await first_element(session) == b"secret"


async def test_an_op_of_the_user(secret: Path) -> None:
    calls = []

    @ax.op
    def called_by_strangers(x: int) -> int:
        calls.append(x)
        return x

    with ax.Graph() as graph:
        called_by_strangers(ax.constant(1))
    graph_def = graph.as_graph_def()
    assert called_by_strangers.name in (await refusal(imported(graph_def), f"{called_by_strangers.name}:0")).message
    assert calls == []


def test_the_plain_evaluator_refuses_too(secret: Path) -> None:
    graph = imported(stranger(secret))
    with pytest.raises(PermissionDeniedError):
        evaluate(graph, [graph["read:0"]])


@pytest.mark.parametrize(
    ("objects", "allowed", "wanted", "granted"),
    [
        (False, (), ["ReadFile"], None),
        (False, ["ReadFile"], ["ReadFile", "WriteFile"], {"ReadFile"}),
        (True, (), ["ReadFile"], {"ReadFile"}),
        (True, ["ReadFile"], [], None),
    ],
)
def test_a_worker_allows_functions_what_the_client_and_its_own_policy_do(
    objects: bool, allowed: list[str], wanted: list[str], granted: set[str] | None
) -> None:
    part = GraphDef(library=FunctionDefLibrary(function=(READS,)))
    wire = WireGraph(partitions={"/device:CPU:0": part}, in_functions={"Reads": wanted}, outside={"ReadFile"})
    library = ax.Graph()
    run_at_once(decode_partitions(wire, WorkerPolicy(objects, allowed), library))
    assert library.allowed_ops.get("Reads") == granted


def test_a_worker_refuses_nodes_before_anything_runs(secret: Path) -> None:
    wire = WireGraph(partitions={"/device:CPU:0": stranger(secret)})
    with pytest.raises(PermissionDeniedError, match="WriteFile"):
        run_at_once(decode_partitions(wire, WorkerPolicy(), ax.Graph()))


@pytest.mark.parametrize("allowed", [[], ["ReadFile"]])
async def test_steps_over_workers(secret: Path, allowed: list[str]) -> None:
    with ax.Graph() as made:
        iterated(slices([str(secret)]).map(lambda name: ax.create_op("ReadFile", [name])), "it")
        ax.create_op("ReadFile", [str(secret)], name="read")
    with ax.Graph() as graph, ax.device("/job:worker/task:1"):
        ax.import_graph_def(made.as_graph_def(), allowed_ops=allowed)
        ax.create_op("ReadFile", [str(secret)], name="own")
    async with small_cluster(objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        assert await session.run("own:0") == b"secret"
        if allowed:
            assert await first_element(session) == await session.run("read:0") == b"secret"
            return
        with pytest.raises(PermissionDeniedError, match=r"ReadFile \('read'\)"):
            await session.run(["read:0", "own:0"])
        with pytest.raises(PermissionDeniedError):
            await first_element(session)
