"""``python -m tests.ops.make_op_index`` writes which module of ops registers what: op_index.py and onnx_index.py."""

from __future__ import annotations

import json
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import asyncexec.ops
from asyncexec.framework import kernel_registry, onnx_kernels, op_registry

Registered = dict[str, list[str]]

HEAD = '''"""Which module declares an op and registers its kernels.

Written by ``python -m tests.ops.make_op_index``; tests/ops/test_op_index.py holds it to what the modules register.
"""

from __future__ import annotations

from typing import Final

# fmt: off
OPS: Final = {
'''
ONNX_HEAD = HEAD.replace("declares an op and registers its kernels", "registers kernels of an ONNX op").replace(
    "OPS:", "ONNX_KERNELS:"
)


def registering_module() -> str:
    """The module of ops whose import is going on, without its package."""
    frame: Any = sys._getframe(1)
    while frame.f_code.co_name != "<module>" or not frame.f_globals["__name__"].startswith("asyncexec.ops."):
        frame = frame.f_back
    return str(frame.f_globals["__name__"]).removeprefix("asyncexec.ops.")


def recorded(register: Callable[..., None], found: dict[str, set[str]]) -> Callable[..., None]:
    """*register*, which adds the op it is called for to *found* as well."""

    def record(op: str, *args: Any, **options: Any) -> None:
        found[registering_module()].add(op)
        register(op, *args, **options)

    return record


def collect() -> tuple[Registered, Registered, Registered]:
    """Module -> the ops that it declares, that it has kernels for, and that it has ONNX kernels for.

    Wants a process without any loaded yet.
    """
    declared: dict[str, set[str]] = defaultdict(set)
    with_kernel: dict[str, set[str]] = defaultdict(set)
    vars(op_registry.registry)["declare"] = recorded(op_registry.registry.declare, declared)
    vars(kernel_registry.registry)["register"] = recorded(kernel_registry.registry.register, with_kernel)
    onnx: dict[str, set[str]] = defaultdict(set)
    vars(onnx_kernels)["onnx_kernel"] = recorded_onnx(onnx_kernels.onnx_kernel, onnx)
    for module in walk_packages(asyncexec.ops.__path__, "asyncexec.ops."):
        import_module(module.name)
    return as_table(declared), as_table(with_kernel), as_table(onnx)


def recorded_onnx(register: Callable[..., Any], found: dict[str, set[str]]) -> Callable[..., Any]:
    """The decorator *register*, which adds the ops it is called for to *found* as well."""

    def onnx_kernel(*op_types: str, domain: str = onnx_kernels.ONNX_DOMAIN, **options: Any) -> Any:
        found[registering_module()].update(onnx_kernels.graph_op(op_type, domain) for op_type in op_types)
        return register(*op_types, domain=domain, **options)

    return onnx_kernel


def as_table(found: dict[str, set[str]]) -> Registered:
    """The same, in order."""
    return {module: sorted(found[module]) for module in sorted(found)}


def as_source(declared: Registered, head: str = HEAD) -> str:
    """The text of asyncexec/ops/op_index.py, or of the other one with its *head*."""
    return head + "".join(entry(module, " ".join(ops)) for module, ops in declared.items()) + "}\n"


def entry(module: str, ops: str) -> str:
    """One module's line, or lines, of the table."""
    line = f'    "{module}": "{ops}",\n'
    if len(line) <= 121:
        return line
    first, *others = reversed(textwrap.wrap(ops, 109))
    strings = [f'        "{part} "\n' for part in reversed(others)] + [f'        "{first}"\n']
    return f'    "{module}": (\n{"".join(strings)}    ),\n'


if __name__ == "__main__":
    registered = collect()
    if "--print" in sys.argv:
        print(json.dumps(registered))
    else:
        folder = Path(asyncexec.ops.__file__).parent
        (folder / "op_index.py").write_text(as_source(registered[0]), encoding="utf-8")
        (folder / "onnx/onnx_index.py").write_text(as_source(registered[2], ONNX_HEAD), encoding="utf-8")
