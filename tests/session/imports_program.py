"""Sessions whose kernels, passes and functions need modules; prints what the thread of the event loop has imported.

The graph that is named calls a function.
"""

import asyncio
import sys
import threading
from importlib.machinery import SourceFileLoader
from types import ModuleType

import asyncexec as ax
from asyncexec.framework.step_stats import PassStats

WATCHED = ("asyncexec", "scipy", "threadpoolctl", "llvmlite", "onnx", "onnxruntime")
MODULES = ("scipy.special", "asyncexec.ops.onnx.activations", "asyncexec.ops.math.bitwise")
on_loop: list[str] = []
exec_module = SourceFileLoader.exec_module


def note(loader: SourceFileLoader, module: ModuleType) -> None:
    """Take note of what the main thread imports."""
    if threading.current_thread() is threading.main_thread() and module.__name__.partition(".")[0] in WATCHED:
        on_loop.append(module.__name__)
    exec_module(loader, module)


async def main() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 4], name="x")
        y = ax.create_op("Erf", [ax.matmul(x, [[1.0] * 4] * 4)])
        attrs = {"Tin": [ax.float32], "Tout": [ax.float32], "opset": 17}
        z = ax.add(y, ax.create_op("Onnx>Sigmoid", [[y]], attrs))
    with ax.Graph() as calling:
        ax.import_graph_def(ax.load_graph_def(sys.argv[1]))
    async with ax.Session(graph) as session, ax.Session(calling) as calls:
        SourceFileLoader.exec_module = note  # type: ignore[assignment, method-assign]
        await calls.run("y:0", {"x:0": 5})
        for _ in range(1000):
            await session.run(z, {x: [[1.0] * 4] * 3})
            await asyncio.sleep(0.0005)
            if "asyncexec.passes.dependencies" in sys.modules:  # it has been compiled, and is being optimized
                break
    print(sorted(set(on_loop)))
    print([name in sys.modules for name in MODULES])
    print(PassStats.__pydantic_complete__)


asyncio.run(main())
