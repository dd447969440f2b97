"""Node -> kernel: found in the registry, built for the node, reading variables where a value is wanted."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from asyncexec.compilation.blas_kernels import BLAS_OPS, calls_blas, with_blas_threads
from asyncexec.compilation.growing_kernels import checks_room, may_grow
from asyncexec.compilation.guarded_kernels import guarded, guarded_async
from asyncexec.compilation.observed_kernels import Observer, is_observed
from asyncexec.compilation.onnx_kernel import OnnxKernel, OwnKernels
from asyncexec.compilation.shared_inputs import is_user_function, makes_new, protected, watched
from asyncexec.framework.cooperative import Stage, in_parts, run_at_once
from asyncexec.framework.device import AllocatorAttributes, Device
from asyncexec.framework.errors import InternalError
from asyncexec.framework.foreign_errors import as_op_error
from asyncexec.framework.kernel import (
    DEAD,
    AsyncKernel,
    Kernel,
    KernelKind,
    OpKernelConstruction,
    do_nothing,
    pass_on,
    switch,
)
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.layer_rule import FindLayers, LayerRule
from asyncexec.framework.memory_budget import MemoryBudget
from asyncexec.framework.rendezvous import NO_ARGS, ROOT_FRAME, RendezvousArgs, args_on, full_key
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.spans import Spans
from asyncexec.framework.types import DType
from asyncexec.graph.node import Node, NodeProperties
from asyncexec.partition.send_recv import RECVS, SENDS, rendezvous_key
from asyncexec.passes.onnx_cluster import OnnxCluster
from asyncexec.passes.onnx_clusters import ClusterRegistration
from asyncexec.process.blas_threads import blas_threads, found_blas
from asyncexec.process.imports import imported
from asyncexec.process.load_threads import LoadThreads
from asyncexec.pruning.feed_errors import fed_reference

TRANSFERS: Final = SENDS | RECVS
TAKES_NO_MEMORY: Final = (do_nothing, pass_on, switch)
_ON_HOST: Final = frozenset({"_HostSend", "_HostRecv"})


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a Send or a Recv does.

    Attributes:
        prefix: its key but for frame and iteration; root_key: its key outside of all loops.
        args: the memory that the value is in, or is wanted in.
        reads: whether it gets a reference to a variable, and sends the value.
        is_fetch: whether it sends to the client.
    """

    is_send: bool
    prefix: str
    root_key: str
    args: RendezvousArgs
    reads: bool = False
    is_fetch: bool = False


class BoundKernel(NamedTuple):
    """The kernel of a node."""

    kernel: Kernel
    kind: KernelKind
    is_expensive: bool | None = None  # what the user said of a sync kernel
    finish: Callable[[Any], object] | None = None  # makes outputs of an async kernel's result, or of a Recv's
    transfer: Transfer | None = None  # what a Send or Recv does instead
    gives_new: bool = False  # whether nobody else has the arrays that it gives
    is_undoable: bool = False  # whether an async kernel gives Changes
    is_elementwise: bool = False  # whether it may get its inputs part by part
    may_grow: bool = False  # whether it is a sync kernel that may make much of little


class Binder(Protocol):
    """What gives the kernels of a graph.

    Attributes:
        debug: whether they are watched; protects_inputs: whether users' functions are still to be kept from writing to
            what others may see.
    """

    @property
    def debug(self) -> bool: ...

    @property
    def protects_inputs(self) -> bool: ...

    def bind(self, node: Node, fed: Container[tuple[Node, int]] = ()) -> BoundKernel:
        """The kernel of *node*."""
        ...

    def stage(self, node: Node, fed: Container[tuple[Node, int]]) -> Stage[BoundKernel]:
        """The same as a stage, for very many inputs."""
        ...

    def constant(self, node: Node) -> Any:
        """The value of a Const."""
        ...


class KernelBinder:
    """Binds the kernels of one session; nodes of a stateless op with the same attrs and shapes share theirs.

    Args:
        debug: watch kernels; checks_received: check what Recvs get, where others may send what they like.
        spans: makes the spans of calls, where somebody wants to know of them.
        budget: the memory that kernels are to stay within.
        leaves_blas: whether BLAS takes as many threads as the host application says, whatever runs.
        forces_onnx: whether clusters run by ONNX Runtime though they may not be quicker so.
        find_layers: gives the native code of convolutions; None if there is to be none.
        load_threads: on which the models of clusters are loaded; they end with the session.
    """

    protects_inputs = True

    def __init__(
        self,
        resource_mgr: ResourceMgr,
        device: Device | None = None,
        *,
        debug: bool = False,
        checks_received: bool = False,
        spans: Spans | None = None,
        budget: MemoryBudget | None = None,
        leaves_blas: bool = False,
        forces_onnx: bool = False,
        find_layers: FindLayers | None = None,
        load_threads: LoadThreads | None = None,
    ) -> None:
        self._resource_mgr = resource_mgr
        self._device = device
        self._device_type = "CPU" if device is None else device.device_type
        self._shares_host_memory = device is None or device.shares_host_memory
        self.debug: bool = debug and self._shares_host_memory  # what is checked are numpy's arrays
        self._checks_received = self.debug or checks_received
        self._spans = spans
        self._leaves_blas = leaves_blas or not self._shares_host_memory
        self._forces_onnx = forces_onnx
        self._load_threads = load_threads
        self._find_layers = find_layers if self._shares_host_memory else None
        self._budget = budget if self._shares_host_memory else None
        self._shared: dict[tuple[NodeProperties, object], BoundKernel] = {}

    def prepare(self, nodes: Sequence[Node]) -> Stage[None]:
        """Import what the kernels of *nodes* are made with, as a stage that does so outside of the event loop."""
        ops: set[str] = set()
        for part in in_parts(nodes):
            for node in part:
                ops.add(node.op)
                if isinstance(node.properties.registration, ClusterRegistration):
                    ops.update(node.properties.registration.ops)
            yield
        yield from imported({library for op in ops for library in kernel_registry.libraries(op)})
        if not (self._leaves_blas or BLAS_OPS.isdisjoint(ops)):
            yield from found_blas()

    def stage(self, node: Node, fed: Container[tuple[Node, int]]) -> Stage[BoundKernel]:
        """What bind() gives, as a stage, for very many inputs, or a cluster."""
        references: list[int] = []
        for slots in in_parts(range(len(node.inputs))):
            references += reference_inputs(node, fed, slots)
            yield
        registration, made = node.properties.registration, None
        if isinstance(registration, ClusterRegistration) and registration.cluster is not None:
            made = yield from self._make_cluster(registration.cluster)
        return self.bind(node, fed, references, made)

    def bind(
        self,
        node: Node,
        fed: Container[tuple[Node, int]] = (),
        references: Sequence[int] | None = None,
        made: BoundKernel | None = None,
    ) -> BoundKernel:
        """The kernel of *node*, which gets the outputs in *fed* from the caller.

        *references* are those of its inputs that take a value and get a reference, where they are known; *made* is the
        kernel, where it has been made.

        Raises:
            UnimplementedError: there is none for its op.
            InvalidArgumentError: there is none for its dtypes, or it changes a variable whose value is fed.
            OpError: the node's attrs are such that the kernel refuses them.
        """
        properties = node.properties
        if properties.op in TRANSFERS:
            return self._bind_transfer(node)
        director = self._resource_mgr.director
        if director is not None and director.plays(node):
            return BoundKernel(director.kernel_of(node), KernelKind.ASYNC)
        key = (properties, tuple([shape.dims for shape in node.output_shapes]))  # factories may look at the shapes
        bound = self._shared.get(key)
        if bound is None:
            bound = made or self._make(node)
            if not properties.op_def.is_stateful:
                self._shared[key] = bound
        if references is None:
            references = reference_inputs(node, fed)
        if references:
            reading = _reading_merged if properties.op == "Merge" else _reading
            kernel = protected(bound.kernel, references) if is_user_function(node) else bound.kernel
            bound = bound._replace(kernel=reading(kernel, references), is_elementwise=False)
        if self._budget is not None:
            bound = _guarded(bound, node, self._budget)
        elif bound.may_grow and self._shares_host_memory:
            kernel = checks_room(bound.kernel, node)
            bound = bound if kernel is bound.kernel else bound._replace(kernel=kernel)
        if self.debug:
            bound = _checked(bound, node)
        if self._spans is not None and is_observed(node, bound.kind, bound.is_expensive):
            device = "" if self._device is None else self._device.name
            bound = _observed(bound, Observer(node, device, self._spans))
        return bound

    def constant(self, node: Node) -> Any:
        """The value of a Const, in the memory of the device."""
        return node.attrs["value"] if self._shares_host_memory else self.bind(node).kernel()

    def _bind_transfer(self, node: Node) -> BoundKernel:
        prefix = rendezvous_key(node.attrs)
        on_host = AllocatorAttributes(on_host=node.op in _ON_HOST)
        args = NO_ARGS if self._device is None else args_on(self._device, on_host)
        finish = partial(check_outputs, node) if self._checks_received and node.op in RECVS else None
        is_send, reads = node.op in SENDS, bool(reference_inputs(node))
        is_fetch = is_send and bool(node.get_attr("client_terminated"))
        transfer = Transfer(is_send, prefix, full_key(prefix, ROOT_FRAME), args, reads, is_fetch)
        return BoundKernel(_never_called, KernelKind.CHEAP, False, finish, transfer)

    def _make_cluster(self, cluster: OnnxCluster) -> Stage[BoundKernel]:
        own = yield from OwnKernels.bound(cluster, lambda call: self._make_within_budget(call.node).kernel)
        threads = self._load_threads
        kernel = OnnxKernel(cluster, own, is_forced=self._forces_onnx, budget=self._budget, threads=threads)
        # Not for the event loop's thread: to load a model, if that is forced, and to look for idle cores.
        stays_on_worker = self._forces_onnx or cluster.translation.is_large
        return BoundKernel(kernel, KernelKind.EXPENSIVE, is_expensive=stays_on_worker or None)

    def _make_within_budget(self, node: Node) -> BoundKernel:
        bound = self._make(node)
        return bound if self._budget is None else _guarded(bound, node, self._budget)

    def _make(self, node: Node) -> BoundKernel:
        properties = node.properties
        if isinstance(properties.registration, ClusterRegistration) and properties.registration.cluster is not None:
            return run_at_once(self._make_cluster(properties.registration.cluster))
        construction = OpKernelConstruction(
            node.name,
            properties.op_def,
            properties.attrs,
            properties.input_dtypes,
            properties.output_dtypes,
            self._resource_mgr,
            node.output_shapes,
            "" if self._device is None else self._device.name,
        )
        try:
            found: KernelRegistration = properties.registration.kernel or kernel_registry.lookup(
                node.op, self._device_type, properties.attrs
            )
            with np.errstate(all="ignore"):  # as around a kernel: some compute with their attrs
                kernel = found.factory(construction)
        except Exception as error:
            found_wrong = as_op_error(error, node)
            try:
                raise found_wrong from found_wrong.__cause__
            finally:
                del found_wrong  # its traceback holds this frame
        if isinstance(kernel, AsyncKernel):
            return BoundKernel(
                kernel.start,
                found.kind,
                found.is_expensive,
                kernel.finish,
                gives_new=found.gives_new,
                is_undoable=kernel.is_undoable,
            )
        gives_new = found.gives_new or makes_new(kernel)
        rule: LayerRule | None = getattr(kernel, "layer_rule", None)
        if rule is not None:
            rule.find_native = self._find_layers
        if not self._leaves_blas and calls_blas(node) and (threads := blas_threads()) is not None:
            kernel = with_blas_threads(kernel, node, threads)
        is_elementwise = found.is_elementwise and all(
            _is_real(dtype) for dtype in (*properties.input_dtypes, *properties.output_dtypes)
        )
        return BoundKernel(
            kernel,
            found.kind,
            found.is_expensive,
            gives_new=gives_new,
            is_elementwise=is_elementwise,
            may_grow=found.kind is not KernelKind.ASYNC and may_grow(node),
        )


def _is_real(dtype: DType) -> bool:
    """Whether *dtype* is of real numbers or truth values: a product of complex ones may depend on their order."""
    return dtype.is_floating or dtype.is_integer or dtype.is_bool


def _never_called(*inputs: object) -> object:
    raise InternalError("a Send or Recv is the executor's to do")


def reference_inputs(
    node: Node, fed: Container[tuple[Node, int]] = (), slots: Sequence[int] | None = None
) -> Sequence[int]:
    """Inputs of *node*, of those in *slots* if given, that take a value and get a reference to a variable.

    Raises:
        InvalidArgumentError: an input takes a reference, and its source is in *fed*: what is fed is a plain value.
    """
    wanted = node.properties.input_dtypes
    found: list[int] = []
    for slot in range(len(node.inputs)) if slots is None else slots:
        tensor = node.inputs[slot]
        if tensor.op.properties.output_dtypes[tensor.index].is_ref:
            is_fed = (tensor.op, tensor.index) in fed
            if is_fed and wanted[slot].is_ref:
                raise fed_reference(node, slot)
            if not is_fed and not wanted[slot].is_ref:
                found.append(slot)
    return found


def _reading(kernel: Kernel, references: Sequence[int]) -> Kernel:
    def reading(*inputs: Any) -> object:
        values = list(inputs)
        for slot in references:
            values[slot] = values[slot].read()
        return kernel(*values)

    return reading


def _reading_merged(kernel: Kernel, references: Sequence[int]) -> Kernel:
    """A Merge gets one pair: the value that came first, and the index of the input it came by."""

    def reading(merged: Any) -> object:
        value, index = merged
        return kernel((value.read(), index) if index in references else merged)

    return reading


def _observed(bound: BoundKernel, observer: Observer) -> BoundKernel:
    """*bound*, whose calls are spans."""
    if bound.kind is not KernelKind.ASYNC:
        return bound._replace(kernel=observer.sync(bound.kernel), is_elementwise=False)
    wrap = observer.changing if bound.is_undoable else observer.awaited
    return bound._replace(kernel=wrap(bound.kernel))


def _guarded(bound: BoundKernel, node: Node, budget: MemoryBudget) -> BoundKernel:
    """*bound*, whose outputs are to have room; but for what takes no memory."""
    if bound.is_undoable or bound.kernel in TAKES_NO_MEMORY:
        return bound
    if bound.kind is KernelKind.ASYNC:
        return bound._replace(kernel=guarded_async(bound.kernel, node, budget))
    return bound._replace(kernel=guarded(bound.kernel, node, budget), is_elementwise=False)


def _checked(bound: BoundKernel, node: Node) -> BoundKernel:
    is_async = bound.kind is KernelKind.ASYNC
    kernel, finish = bound.kernel, bound.finish or _untouched
    if not is_user_function(node) and not bound.is_undoable:  # of a user's inputs some are its own; a Change stays one
        kernel = watched(kernel, node, is_async=is_async)
    if is_async:
        return bound._replace(kernel=kernel, finish=lambda result: check_outputs(node, finish(result)))
    return bound._replace(kernel=lambda *inputs: check_outputs(node, kernel(*inputs)))


def _untouched(result: object) -> object:
    return result


def check_outputs(node: Node, result: Any) -> object:
    """*result* of *node*'s kernel, once it is what the op promises; InternalError where it is not."""
    dtypes = node.properties.output_dtypes
    outputs = (result,) if not node.op_def.returns_tuple else result
    if dtypes and (not isinstance(outputs, (tuple, list)) or len(outputs) != len(dtypes)):
        raise InternalError(f"the kernel gave {type(result).__name__}, not {len(dtypes)} outputs", node=node)
    for index, (value, dtype) in enumerate(zip(outputs, dtypes, strict=True) if dtypes else ()):
        if dtype.is_opaque or dtype.is_ref or value is DEAD:
            continue
        got = np.dtype(object) if isinstance(value, bytes) else getattr(value, "dtype", None)
        if got != dtype.as_numpy_dtype or (isinstance(value, np.ndarray) and not value.ndim):
            raise InternalError(f"output {index} is {type(value).__name__} {got}, not {dtype.name}", node=node)
        if not node.output_shapes[index].accepts(np.shape(value)):
            raise InternalError(
                f"output {index} has the shape {list(np.shape(value))}, inferred was {node.output_shapes[index]}",
                node=node,
            )
    return result
