"""The ops, one module a family: what each takes and gives (OpDef), its shape function and its kernel.

A module is imported when one of its ops is first looked up: all of them take longer than everything else together.
"""

from __future__ import annotations

from importlib import import_module

from asyncexec.framework.op_registry import registry
from asyncexec.ops.op_index import OPS

_MODULES = {op: module for module, ops in OPS.items() for op in ops.split()}


def _load(op: str) -> None:
    import_module(f"{__name__}.{_MODULES[op]}")


registry.set_loader(_MODULES, _load)
