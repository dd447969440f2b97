"""Saving and restoring the variables of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from asyncexec.checkpoints.bundle_writer import SavedTensor
from asyncexec.checkpoints.variables_file import VariablesFile, open_variables, write_variables
from asyncexec.framework.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    UnimplementedError,
)
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node
from asyncexec.ops.state.variable_state import ANONYMOUS, DEFAULT_CONTAINER, Variable, locked, variable_of

if TYPE_CHECKING:
    from asyncexec.session.graph_execution_state import GraphExecutionState
    from asyncexec.session.session_loop import SessionLoop

_VARIABLE_OPS: Final = frozenset({"VarHandleOp", "Variable", "VariableV2"})
_SHOWN: Final = 50
# What is done with the variables of a session, a path, and the names that the caller chose.
Saving: TypeAlias = Callable[[Mapping[str, Variable], Path, frozenset[str] | None], None]


class SessionSaver:
    """What a session has of saving; a base of Session."""

    if TYPE_CHECKING:
        graph: Graph
        _state: GraphExecutionState
        _loop: SessionLoop
        _resource_mgr: ResourceMgr

        def _check_open(self) -> None: ...

    async def save(self, path: str | PathLike[str], *, variables: Iterable[str] | None = None) -> None:
        """Write the variables to a file, on a thread.

        What is written are the values of one moment; a step under way may have made a part of its assignments.  What
        was at *path* is replaced when all has been written, so that a crash leaves one or the other.

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
        await self._on_thread(_save, Path(path), variables)

    async def restore(self, path: str | PathLike[str], *, variables: Iterable[str] | None = None) -> None:
        """Assign the variables in a file, which are read on a thread, all at once.

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
        await self._on_thread(_restore, Path(path), variables)

    async def restore_unset(self, path: Path) -> None:
        """Assign those variables in a file that have no value yet; others are left alone."""
        await self._on_thread(_restore_unset, path, None)

    async def _on_thread(self, function: Saving, path: Path, names: Iterable[str] | None) -> None:
        self._check_open()
        self._loop.enter()
        chosen = None if names is None else frozenset(names)
        has_workers = self._state.workers is not None
        await asyncio.to_thread(
            lambda: function(variables_of(self.graph, self._resource_mgr, has_workers=has_workers), path, chosen)
        )
        self._check_open()


def variables_of(graph: Graph, resource_mgr: ResourceMgr, *, has_workers: bool = False) -> dict[str, Variable]:
    """The variables of a session by name, also those that have no value yet.

    Raises:
        UnimplementedError: some live on workers; all of these are named.
    """
    found: dict[str, Variable] = {}
    elsewhere = []
    for node in graph.operations:
        if node.op in _VARIABLE_OPS and node.attrs["shared_name"] != ANONYMOUS:
            if has_workers and "/job:" in node.device:
                elsewhere.append(node.name)
            else:
                variable = _variable(node, resource_mgr)
                found[_name_of(variable)] = variable
    if elsewhere:
        raise UnimplementedError(f"variables on workers are not saved: {', '.join(elsewhere[:_SHOWN])}")
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


def _chosen(variables: Mapping[str, Variable], names: frozenset[str] | None) -> Mapping[str, Variable]:
    if names is None:
        return variables
    unknown = sorted(names - variables.keys())
    if unknown:
        raise NotFoundError(f"the graph has no variables {_listed(unknown)}")
    return {name: variables[name] for name in names}


def _save(variables: Mapping[str, Variable], path: Path, names: frozenset[str] | None) -> None:
    chosen = _chosen(variables, names)
    with locked(chosen.values()):
        values = {name: each.value for name, each in sorted(chosen.items())}
    unset = [name for name, value in values.items() if value is None]
    if unset:
        raise FailedPreconditionError(
            f"variables have no value: {_listed(unset)}", hint="initialize them, or save(..., variables=[...])"
        )
    write_variables(path, [SavedTensor(name, value, chosen[name].dtype) for name, value in values.items()])


def _restore(variables: Mapping[str, Variable], path: Path, names: frozenset[str] | None) -> None:
    chosen = _chosen(variables, names)
    file = open_variables(path)
    _check_fit(chosen, file, path, ignores_others=names is not None)
    _assign(chosen, file)


def _restore_unset(variables: Mapping[str, Variable], path: Path, names: frozenset[str] | None) -> None:
    file = open_variables(path)
    chosen = {name: each for name, each in variables.items() if not each.is_initialized and name in file.specs}
    _check_fit(chosen, file, path, ignores_others=True)
    _assign(chosen, file)


def _assign(variables: Mapping[str, Variable], file: VariablesFile) -> None:
    values = {name: file.read(name) for name in variables}
    with locked(variables.values()):
        for name, variable in variables.items():
            variable.assign(values[name])


def _check_fit(variables: Mapping[str, Variable], file: VariablesFile, path: Path, *, ignores_others: bool) -> None:
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
