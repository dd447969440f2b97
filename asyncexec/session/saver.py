"""Saving and restoring the variables of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from asyncexec.checkpoints.bundle_writer import SavedTensor
from asyncexec.checkpoints.variables_file import VariablesFile, open_variables, write_variables
from asyncexec.framework.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
)
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node
from asyncexec.ops.state.variable_state import ANONYMOUS, DEFAULT_CONTAINER, Variable, locked, variable_of
from asyncexec.session.remote_variables import RemoteVariable, RemoteVariables, assign_remote, read_remote

if TYPE_CHECKING:
    from asyncexec.session.admission import AdmissionControl
    from asyncexec.session.direct_session import Session
    from asyncexec.session.graph_execution_state import GraphExecutionState
    from asyncexec.session.session_loop import SessionLoop

_VARIABLE_OPS: Final = frozenset({"VarHandleOp", "Variable", "VariableV2"})
_SHOWN: Final = 50
V = TypeVar("V")


class SessionSaver:
    """What a session has of saving; a base of Session."""

    if TYPE_CHECKING:
        graph: Graph
        _admission: AdmissionControl
        _state: GraphExecutionState
        _loop: SessionLoop
        _resource_mgr: ResourceMgr
        _remote: RemoteVariables

        def _check_open(self) -> None: ...

    async def save(self, path: str | PathLike[str], *, variables: Iterable[str] | None = None) -> None:
        """Write the variables to a file, on a thread.

        What is written are the values of one moment; a step under way may have made a part of its assignments.
        Variables on workers are read by a step of their own, just before.  What was at *path* is replaced when all has
        been written, so that a crash leaves one or the other.

        Args:
            path: ``NAME.safetensors``, or any other name for a checkpoint of TensorFlow's format, which is
                ``NAME.index`` and ``NAME.data-00000-of-00001``.
            variables: the names of those to save, by default all of the graph.

        Raises:
            FailedPreconditionError: some have no value; all of these are named.
            NotFoundError: there is no variable of such a name.
            InvalidArgumentError: the format has no form for the dtype of a variable.
            ResourceExhaustedError: the disk is full.
        """
        here, remote = self._variables(variables)
        values = await read_remote(self._as_session(), remote)
        saved = [SavedTensor(name, value, remote[name].dtype) for name, value in values.items()]
        await asyncio.to_thread(_save, here, Path(path), saved)
        self._check_open()

    async def restore(self, path: str | PathLike[str], *, variables: Iterable[str] | None = None) -> None:
        """Assign the variables in a file, which are read on a thread, all at once; those on workers after the others.

        Args:
            path: as of ``save``; also a SavedModel, for its variables.  Checkpoints of ``tf.train.Saver`` and
                ``tf.train.Checkpoint`` can be read, too.
            variables: the names of those to restore; others in the file do not matter then.  By default all of the
                graph, and the file must have these alone.

        Raises:
            NotFoundError, InvalidArgumentError: the file does not fit: it names the variables that are missing, those
                that the graph does not have, and those of another dtype or shape.  No variable is changed.
            DataLossError: the file is cut short, or damaged.
        """
        here, remote = self._variables(variables)
        values = await asyncio.to_thread(_restore, here, remote, Path(path), ignores_others=variables is not None)
        self._check_open()
        await assign_remote(self._as_session(), remote, values)

    async def _restore_by(self, restore: str | PathLike[str] | Callable[[Session], Awaitable[object]]) -> None:
        admission = self._admission.enter_at_once()
        try:
            if isinstance(restore, (str, PathLike)):
                await self.restore(restore)
            else:
                await restore(self._as_session())
        finally:
            self._admission.leave(admission)

    async def restore_unset(self, path: Path) -> None:
        """Assign those variables in a file that have no value yet; others are left alone."""
        self._check_open()
        self._loop.enter()
        here = variables_of(self.graph, self._resource_mgr, self._nodes_on_workers())
        await asyncio.to_thread(_restore_unset, here, path)
        self._check_open()

    def values_of(self, nodes: Iterable[Node]) -> dict[Node, Any]:
        """What *nodes*, variables of this process, hold; None where one has no value.  Any thread may ask."""
        variables = {node: _variable(node, self._resource_mgr) for node in nodes}
        with locked(variables.values()):
            return {node: variable.value for node, variable in variables.items()}

    def _variables(self, names: Iterable[str] | None) -> tuple[dict[str, Variable], dict[str, RemoteVariable]]:
        """The variables called *names*, or all: those of this process, and those on workers.

        Raises:
            NotFoundError: there is no variable of such a name.
        """
        self._check_open()
        self._loop.enter()
        elsewhere = self._nodes_on_workers()
        here, remote = variables_of(self.graph, self._resource_mgr, elsewhere), self._remote.of(self.graph, elsewhere)
        if names is None:
            return here, remote
        chosen = frozenset(names)
        unknown = sorted(chosen - here.keys() - remote.keys())
        if unknown:
            raise NotFoundError(f"the graph has no variables {_listed(unknown)}")
        return _among(here, chosen), _among(remote, chosen)

    def _nodes_on_workers(self) -> list[Node]:
        if self._state.workers is None:
            return []
        return [node for node in self.graph.operations if node.op in _VARIABLE_OPS and "/job:" in node.device]

    def _as_session(self) -> Session:
        return cast("Session", self)


def variables_of(graph: Graph, resource_mgr: ResourceMgr, elsewhere: Collection[Node] = ()) -> dict[str, Variable]:
    """The variables of this process by name, also those that have no value yet, but for those *elsewhere*."""
    found: dict[str, Variable] = {}
    left_out = frozenset(elsewhere)
    for node in graph.operations:
        if node.op in _VARIABLE_OPS and node.attrs["shared_name"] != ANONYMOUS and node not in left_out:
            variable = _variable(node, resource_mgr)
            found[_name_of(variable)] = variable
    for resource in resource_mgr.resources():
        if isinstance(resource, Variable) and resource.container == DEFAULT_CONTAINER:
            found.setdefault(resource.name, resource)
    return found


def _variable(node: Node, resource_mgr: ResourceMgr) -> Variable:
    try:
        return variable_of(OpKernelConstruction(node.name, node.op_def, node.attrs, resource_mgr=resource_mgr))
    except OpError as error:
        raise error.locate(node) from None


def _name_of(variable: Variable) -> str:
    if variable.container == DEFAULT_CONTAINER:
        return variable.name
    return f"{variable.container}/{variable.name}"


def _among(variables: Mapping[str, V], names: Collection[str]) -> dict[str, V]:
    return {name: variable for name, variable in variables.items() if name in names}


def _save(variables: Mapping[str, Variable], path: Path, others: Sequence[SavedTensor]) -> None:
    with locked(variables.values()):
        values = {name: each.value for name, each in sorted(variables.items())}
    unset = [name for name, value in values.items() if value is None]
    if unset:
        raise FailedPreconditionError(
            f"variables have no value: {_listed(unset)}", hint="initialize them, or save(..., variables=[...])"
        )
    write_variables(
        path, [*others, *(SavedTensor(name, value, variables[name].dtype) for name, value in values.items())]
    )


def _restore(
    variables: Mapping[str, Variable], remote: Mapping[str, RemoteVariable], path: Path, *, ignores_others: bool
) -> dict[str, object]:
    """Assign *variables*; the values of those on workers."""
    file = open_variables(path)
    _check_fit({**variables, **remote}, file, path, ignores_others=ignores_others)
    values = {name: file.read(name) for name in remote}
    _assign(variables, file)
    return values


def _restore_unset(variables: Mapping[str, Variable], path: Path) -> None:
    file = open_variables(path)
    chosen = {name: each for name, each in variables.items() if not each.is_initialized and name in file.specs}
    _check_fit(chosen, file, path, ignores_others=True)
    _assign(chosen, file)


def _assign(variables: Mapping[str, Variable], file: VariablesFile) -> None:
    values = {name: file.read(name) for name in variables}
    with locked(variables.values()):
        for name, variable in variables.items():
            variable.assign(values[name])


def _check_fit(
    variables: Mapping[str, Variable | RemoteVariable], file: VariablesFile, path: Path, *, ignores_others: bool
) -> None:
    specs = file.specs
    missing = sorted(variables.keys() - specs.keys())
    told = [f"missing there: {_listed(missing)}"] if missing else []
    others = [] if ignores_others else sorted(specs.keys() - variables.keys())
    if others:
        told.append(f"not in the graph: {_listed(others)}")
    for name in sorted(variables.keys() & specs.keys()):
        variable, (dtype, shape) = variables[name], specs[name]
        if variable.dtype.base_dtype is not dtype or not variable.shape.accepts(shape):
            here = f"{variable.dtype.base_dtype.name} of shape {variable.shape}"
            told.append(f"{name!r} is {here} here, and {dtype.name} of shape {list(shape)} there")
    if told:
        kind = NotFoundError if missing else InvalidArgumentError
        hint = "restore(..., variables=[...]) restores some" if missing or others else None
        raise kind(f"the variables in {str(path)!r} do not fit: {'; '.join(told[:_SHOWN])}", hint=hint)


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(map(repr, list(names)[:_SHOWN]))
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
