"""Sessions whose kernels, passes and functions need modules; prints what the thread of the event loop has imported.

The graph that is named calls a function.
"""

import asyncio
import sys
import threading
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from types import ModuleType

import asyncexec as ax
from asyncexec.framework.step_stats import PassStats

WATCHED = ("asyncexec", "scipy", "threadpoolctl", "llvmlite", "onnx", "onnxruntime")
MODULES = ("scipy.special", "asyncexec.ops.onnx.activations", "asyncexec.ops.math.bitwise")
NATIVE = ("asyncexec.executor.plans.native_tiles", "asyncexec.executor.plans.native_layers")
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
        rows = ax.softmax(ax.zeros([4, 2000]))  # of a size that native code is asked for, once the other is there
    with ax.Graph() as calling:
        ax.import_graph_def(ax.load_graph_def(sys.argv[1]))
    async with ax.Session(graph) as session, ax.Session(calling) as calls:
        SourceFileLoader.exec_module = note  # type: ignore[assignment, method-assign]
        await calls.run("y:0", {"x:0": 5})
        # It has been compiled, and is being optimized.
        wanted = ["asyncexec.passes.dependencies", *(NATIVE if find_spec("llvmlite") else ())]
        while not all(name in sys.modules for name in wanted):
            await session.run([z, rows], {x: [[1.0] * 4] * 3})
            await asyncio.sleep(0.0005)
    print(sorted(set(on_loop)))
    print([name in sys.modules for name in MODULES])
    print(PassStats.__pydantic_complete__)


asyncio.run(main())
