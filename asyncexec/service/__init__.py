"""The executor as a service: models for clients of the Open Inference Protocol, such as Triton's and KServe's.

It needs ``pip install "asyncexec[serve]"``, and is imported when it is first used::

    app = ax.service.create_app({"double": graph})         # an ASGI app
    await ax.service.serve("models", http_port=8000)       # on two ports, until SIGTERM
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncexec.framework.extras import require

if TYPE_CHECKING:
    from asyncexec.service.app import InferenceApp as InferenceApp
    from asyncexec.service.app import create_app as create_app
    from asyncexec.service.models.files import ModelSource as ModelSource
    from asyncexec.service.models.repository import ModelRepository as ModelRepository
    from asyncexec.service.server import Ports as Ports
    from asyncexec.service.server import Tls as Tls
    from asyncexec.service.server import serve as serve
    from asyncexec.service.server import serving as serving

_MODULES = {
    "InferenceApp": "app",
    "ModelRepository": "models.repository",
    "ModelSource": "models.files",
    "Ports": "server",
    "Tls": "server",
    "create_app": "app",
    "serve": "server",
    "serving": "server",
}
__all__ = ["InferenceApp", "ModelRepository", "ModelSource", "Ports", "Tls", "create_app", "serve", "serving"]
_EXTRA = ("grpc", "orjson", "prometheus_client", "starlette", "uvicorn", "websockets")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    for module in _EXTRA:
        require(module, extra="serve")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
