"""CallRecord: what is known of a client's call, for its line in the log, its span and its trace."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import OpError
from asyncexec.service.observing.traces import Trace, Traces
from asyncexec.service.requests import InferRequest


class CallRecord:
    """A call of a client, over any protocol.

    Attributes:
        traces: what samples the requests of models; None where nothing is traced.
        model_name, model_version: of the model that it asks; "" where it has asked none.
        code, error, node: why it failed: the code, the text in one line, and the node that did; "" where it has not.
    """

    # Of the class, as most calls leave them so: to set them in each would take longer.
    model_name: str = ""
    model_version: str = ""
    code: str = ""
    error: str = ""
    node: str = ""

    def __init__(self, traces: Traces | None) -> None:
        self.traces: Traces | None = traces

    def attributes(self) -> dict[str, str]:
        """What a span tells of it."""
        return {"asyncexec.model": self.model_name, "asyncexec.version": self.model_version}

    def name_model(self, name: str, version: str) -> None:
        """The call asks this model."""
        self.model_name, self.model_version = name, version

    def begin_inference(self, name: str, version: str, request: InferRequest) -> Trace | None:
        """The call asks a model; the trace of *request*, if it is to have one."""
        self.name_model(name, version)
        return None if self.traces is None else self.traces.sample(name, version, request)


# The call that the running code answers; the tasks that it starts answer it, too.  None where nobody wants to know of
# it, until it fails.
current_call: Final[ContextVar[CallRecord | None]] = ContextVar("asyncexec_service_call", default=None)


def failed_call() -> CallRecord:
    """The call that the running code answers, which has failed."""
    call = current_call.get()
    if call is None:
        call = CallRecord(None)
        current_call.set(call)
    return call


def note_error(error: OpError) -> None:
    """The call that is answered failed with *error*."""
    call = failed_call()
    call.code, call.error, call.node = error.code.name, one_line(error), error.node or ""


def end_call() -> CallRecord | None:
    """What is known of the call that was answered, if anything is; from now on, none is answered."""
    call = current_call.get()
    if call is not None:
        current_call.set(None)
    return call
