"""What a client is told of an error: neither where the code of the model is, nor how to configure a session."""

from __future__ import annotations

from typing import Final

from asyncexec.framework.errors import Code, OpError, ResourceExhaustedError
from asyncexec.service.observing.call_record import note_error

_OF_CALLERS: Final = (  # codes that blame the caller
    Code.INVALID_ARGUMENT,
    Code.NOT_FOUND,
    Code.ALREADY_EXISTS,
    Code.PERMISSION_DENIED,
    Code.FAILED_PRECONDITION,
    Code.OUT_OF_RANGE,
    Code.UNIMPLEMENTED,
    Code.UNAUTHENTICATED,
)


def told_to_client(error: OpError) -> tuple[Code, str]:
    """The code and the text of *error* for a client.

    An exception of the model's own code is INTERNAL, whatever it is: the client cannot mend it.
    """
    note_error(error)
    code = error.code
    if code in _OF_CALLERS and _is_of_the_model(error):
        code = Code.INTERNAL
    text = error.message
    if error.node is not None:
        text += f"\n  [[{{{{node {error.node}}}}}" + (f" = {error.op}" if error.op else "") + "]]"
    elif error.hint is not None and not isinstance(error, ResourceExhaustedError):
        text += f"; {error.hint}"
    return code, text


def _is_of_the_model(error: OpError) -> bool:
    """Whether an exception of the model's own code has become *error*, whose text then begins with its class."""
    cause = error.__cause__
    if error.node is None or cause is None or isinstance(cause, OpError):
        return False
    return error.message.partition(":")[0] == type(cause).__name__
