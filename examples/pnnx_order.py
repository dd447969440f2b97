"""A PNNX model, operator by operator: what the file says, and the order in which they run, breadth first.

The model has two branches that meet.  The program writes it as PNNX does, so that nothing is needed but asyncexec:

    python examples/pnnx_order.py
"""

import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import asyncexec as ax

PARAM = """7767517
7 6
pnnx.Input       input    0 1 0 #0=(1,2,4,4)f32
nn.Conv2d        wide     1 1 0 1 bias=False kernel_size=(3,3) padding=(1,1) stride=(1,1) @weight=(2,2,3,3)f32
nn.Conv2d        narrow   1 1 0 2 bias=False kernel_size=(1,1) padding=(0,0) stride=(1,1) @weight=(2,2,1,1)f32
nn.ReLU          act      1 1 1 3
pnnx.Expression  sum      2 1 3 2 4 expr=add(@0,mul(@1,5.000000e-01))
nn.MaxPool2d     pool     1 1 4 5 kernel_size=(2,2) stride=(2,2)
pnnx.Output      output   1 0 5
"""


def write_model(folder: Path) -> Path:
    """Write the two files of the model; gives the one with the operators."""
    path = folder / "branches.pnnx.param"
    path.write_text(PARAM)
    with zipfile.ZipFile(path.with_suffix(".bin"), "w") as archive:  # stored, as PNNX does
        archive.writestr("wide.weight", np.full((2, 2, 3, 3), 0.1, np.float32).tobytes())
        archive.writestr("narrow.weight", np.ones((2, 2, 1, 1), np.float32).tobytes())
    return path


async def run(graph: ax.Graph) -> list[str]:
    """Run the model, and give the operators in the order in which they ran."""
    metadata = ax.RunMetadata()
    config = ax.SessionConfig(executor_type="BREADTH_FIRST")
    async with ax.Session(graph, config) as session:
        feeds = {"input:0": np.ones((1, 2, 4, 4), np.float32)}
        options = ax.RunOptions(trace=True)
        pooled = await session.run("output:0", feeds, options=options, metadata=metadata)
    print("output:", pooled[0, 0].tolist())
    names = [node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats]
    return [name for name in names if not name.startswith("_")]


def main() -> None:
    with TemporaryDirectory() as folder, ax.Graph() as graph:
        path = write_model(Path(folder))
        for operator in ax.load_pnnx(path).operators.values():
            print(f"{operator.type:16} {operator.name:7} then {', '.join(operator.consumers) or 'nothing'}")
        ax.import_pnnx(path)
    order = ax.run(run(graph))
    print("order:", *order)


if __name__ == "__main__":
    main()
