"""The client of a service: sessions of models that another process serves, by ``ax.connect``.

It needs ``pip install "asyncexec[client]"``, or ``asyncexec[serve]``, when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncexec.framework.extras import require

if TYPE_CHECKING:
    from asyncexec.client.remote_server import ModelState as ModelState
    from asyncexec.client.remote_server import RemoteServer as RemoteServer
    from asyncexec.client.remote_session import RemoteSession as RemoteSession
    from asyncexec.client.remote_signature import TensorInfo as TensorInfo
    from asyncexec.client.remote_streams import RemoteMap as RemoteMap
    from asyncexec.client.remote_streams import RemoteStream as RemoteStream

_MODULES = {
    "ModelState": "remote_server",
    "RemoteMap": "remote_streams",
    "RemoteServer": "remote_server",
    "RemoteSession": "remote_session",
    "RemoteStream": "remote_streams",
    "TensorInfo": "remote_signature",
}
__all__ = ["ModelState", "RemoteMap", "RemoteServer", "RemoteSession", "RemoteStream", "TensorInfo"]
EXTRA = ("grpc", "google.protobuf")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    for module in EXTRA:
        require(module, extra="client")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
