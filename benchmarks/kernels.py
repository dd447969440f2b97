"""The command ``python -m benchmarks.kernels [PATTERN ...] [--before PATH]``: single kernels against TensorFlow's.

Each contestant has a process and one thread; they take turns, and the best of their rounds count (processor time).
``--before`` names another checkout of the library, whose kernels take part too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from asyncexec.framework.extras import is_installed

ROOT: Final = Path(__file__).parent.parent
TIMER: Final = Path(__file__).with_name("kernel_timer.py")
THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
ROUNDS: Final = 5
Case = dict[str, Any]


def floats(*shape: int, **more: Any) -> Case:
    """An input of random float32."""
    return {"dtype": "float32", "shape": list(shape), **more}


def given(value: Any, dtype: str = "int32") -> Case:
    """An input of that *value*."""
    return {"dtype": dtype, "value": value}


def case(name: str, op: str, inputs: Sequence[Case], **attrs: Any) -> Case:
    """A call of *op*; its type is float32 unless the attrs say otherwise."""
    return {"name": name, "op": op, "inputs": list(inputs), "attrs": attrs}


def convolutions() -> Iterator[Case]:
    """Filters of real models: [model, image size, channels in, out, window, stride, padding]."""
    for model, size, depth, out, window, stride, padding in (
        ("resnet50_stem", 230, 3, 64, 7, 2, "VALID"),
        ("resnet50_3x3", 56, 64, 64, 3, 1, "SAME"),
        ("resnet50_3x3", 28, 128, 128, 3, 1, "SAME"),
        ("resnet50_3x3", 14, 256, 256, 3, 1, "SAME"),
        ("resnet50_3x3", 7, 512, 512, 3, 1, "SAME"),
        ("resnet50_1x1_strided", 56, 256, 128, 1, 2, "VALID"),
        ("resnet50_1x1", 14, 1024, 256, 1, 1, "VALID"),
        ("mobilenet_stem", 225, 3, 32, 3, 2, "VALID"),
        ("densenet_3x3", 28, 128, 32, 3, 1, "SAME"),
        ("inception_stem", 149, 32, 32, 3, 1, "VALID"),
        ("inception_stem", 147, 32, 64, 3, 1, "SAME"),
        ("inception_5x5", 35, 48, 64, 5, 1, "SAME"),
        ("inception_reduce", 35, 288, 384, 3, 2, "VALID"),
        ("unet_3x3", 128, 16, 16, 3, 1, "SAME"),
        ("unet_3x3", 64, 64, 64, 3, 1, "SAME"),
        ("vit_patches", 224, 3, 192, 16, 16, "VALID"),
        ("mnist_5x5", 28, 1, 32, 5, 1, "SAME"),
        ("small_3x3", 8, 4, 4, 3, 1, "SAME"),
        ("tiny_3x3", 3, 1, 1, 3, 1, "SAME"),
    ):
        for batch in (1, 16) if size < 100 else (1,):
            yield case(
                f"conv_{model}_{batch}x{size}x{depth}",
                "Conv2D",
                [floats(batch, size, size, depth), floats(window, window, depth, out)],
                strides=[1, stride, stride, 1],
                padding=padding,
                T="float32",
            )
    for kernel in ((1, 7), (7, 1)):
        yield case(
            f"conv_inception_{kernel[0]}x{kernel[1]}_1x17x160",
            "Conv2D",
            [floats(1, 17, 17, 160), floats(*kernel, 160, 160)],
            strides=[1, 1, 1, 1],
            padding="SAME",
            T="float32",
        )


def depthwise() -> Iterator[Case]:
    """Depthwise filters of real models."""
    for model, batch, size, depth, window, stride in (
        ("xception", 1, 147, 64, 3, 1),
        ("xception", 1, 37, 728, 3, 1),
        ("xception", 1, 19, 728, 3, 1),
        ("xception", 1, 10, 1024, 3, 1),
        ("mobilenet", 1, 112, 32, 3, 1),
        ("mobilenet", 16, 14, 384, 3, 1),
        ("mobilenet", 1, 57, 144, 3, 2),
        ("efficientnet", 1, 28, 240, 5, 1),
        ("efficientnet", 1, 7, 1152, 5, 1),
        ("convnext", 1, 56, 96, 7, 1),
        ("small", 1, 8, 4, 3, 1),
        ("tiny", 1, 3, 1, 3, 1),
    ):
        yield case(
            f"depthwise_{model}_{batch}x{size}x{depth}_{window}x{window}s{stride}",
            "DepthwiseConv2dNative",
            [floats(batch, size, size, depth), floats(window, window, depth, 1)],
            strides=[1, stride, stride, 1],
            padding="SAME" if stride == 1 else "VALID",
            T="float32",
        )


def pools() -> Iterator[Case]:
    """Poolings and their gradients."""
    for name, op, batch, size, depth, window, stride, padding in (
        ("resnet50", "MaxPool", 1, 114, 64, 3, 2, "VALID"),
        ("inception", "MaxPool", 1, 35, 288, 3, 2, "VALID"),
        ("unet", "MaxPool", 1, 128, 16, 2, 2, "VALID"),
        ("tiny", "MaxPool", 1, 4, 1, 2, 2, "VALID"),
        ("inception_same", "AvgPool", 1, 35, 192, 3, 1, "SAME"),
        ("inception_same", "AvgPool", 1, 17, 768, 3, 1, "SAME"),
        ("densenet", "AvgPool", 1, 56, 128, 2, 2, "VALID"),
        ("tiny", "AvgPool", 1, 4, 1, 2, 2, "SAME"),
    ):
        yield case(
            f"{op.lower()}_{name}_{batch}x{size}x{depth}",
            op,
            [floats(batch, size, size, depth)],
            ksize=[1, window, window, 1],
            strides=[1, stride, stride, 1],
            padding=padding,
            T="float32",
        )
    for batch, size, depth, window, out in ((32, 24, 32, 2, 12), (8, 27, 64, 3, 13), (1, 4, 1, 2, 2)):
        shapes = [floats(batch, size, size, depth), floats(batch, out, out, depth), floats(batch, out, out, depth)]
        attrs = {"ksize": [1, window, window, 1], "strides": [1, 2, 2, 1], "padding": "VALID", "T": "float32"}
        yield case(f"maxpoolgrad_{batch}x{size}x{depth}_{window}x{window}", "MaxPoolGrad", shapes, **attrs)
    for batch, size, depth, window, stride, padding in (
        (8, 35, 192, 3, 1, "SAME"),
        (32, 24, 32, 2, 2, "VALID"),
        (1, 4, 1, 2, 2, "VALID"),
    ):
        inputs = [given([batch, size, size, depth]), floats(batch, size // stride, size // stride, depth)]
        attrs = {"ksize": [1, window, window, 1], "strides": [1, stride, stride, 1], "padding": padding}
        name = f"avgpoolgrad_{batch}x{size}x{depth}_{window}x{window}"
        yield case(name, "AvgPoolGrad", inputs, **attrs, T="float32")


def elementwise() -> Iterator[Case]:
    """Activations, normalizations and the like."""
    for name, shape in (("convnext", (1, 56, 56, 384)), ("bert", (128, 3072)), ("row", (1, 256)), ("one", (1,))):
        for op in ("Erf", "Erfc"):
            yield case(f"{op.lower()}_{name}", op, [floats(*shape)], T="float32")
    for op in ("Relu6", "Elu", "Selu", "Softplus", "Softsign", "LeakyRelu", "Relu", "Sigmoid"):
        for name, shape in (("mobilenet", (1, 56, 56, 144)), ("row", (1, 256)), ("one", (1, 1))):
            yield case(f"{op.lower()}_{name}", op, [floats(*shape)], T="float32")
    for op in ("ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad"):
        for name, shape in (("large", (16, 28, 28, 64)), ("row", (1, 256))):
            yield case(f"{op.lower()}_{name}", op, [floats(*shape), floats(*shape)], T="float32")
    for op in ("Softmax", "LogSoftmax"):
        for name, shape in (
            ("bert", (1, 12, 128, 128)),
            ("vit", (16, 3, 197, 197)),
            ("classes", (16, 1000)),
            ("vocabulary", (8, 30522)),
            ("mnist", (128, 10)),
            ("tiny", (1, 4)),
        ):
            yield case(f"{op.lower()}_{name}", op, [floats(*shape)], T="float32")
    for name, shape in (("resnet50", (1, 56, 56, 256)), ("mobilenet", (1, 112, 112, 16)), ("tiny", (1, 2, 2, 3))):
        vectors = [floats(shape[-1], positive=True) for _ in range(4)]
        for training in (False, True):
            kind = "training" if training else "inference"
            extra = [given([], "float32")] * 2 if training else vectors[2:]
            yield case(
                f"batchnorm_{kind}_{name}",
                "FusedBatchNormV3",
                [floats(*shape), *vectors[:2], *extra],
                T="float32",
                U="float32",
                is_training=training,
            )
    for name, shape in (("alexnet", (1, 55, 55, 96)), ("tiny", (1, 2, 2, 4))):
        yield case(f"lrn_{name}", "LRN", [floats(*shape)], T="float32", depth_radius=5, alpha=1e-4, beta=0.75)
    for name, shape in (("resnet50", (1, 56, 56, 64)), ("bert", (128, 3072)), ("tiny", (1, 4))):
        yield case(f"biasadd_{name}", "BiasAdd", [floats(*shape), floats(shape[-1])], T="float32")


def moves() -> Iterator[Case]:
    """Blocks of space, resized images."""
    for name, shape in (("deeplab", (4, 17, 17, 512)), ("wavenet", (4, 500, 64)), ("tiny", (4, 2, 2, 1))):
        block, zeros = [2] * (len(shape) - 2), [[0, 0]] * (len(shape) - 2)
        block = [4] if len(block) == 1 else block
        attrs = {"T": "float32", "Tblock_shape": "int32"}
        pair = [floats(*shape), given(block), given(zeros)]
        yield case(f"batchtospace_{name}", "BatchToSpaceND", pair, **attrs, Tcrops="int32")
        even = (shape[0] // 4, *(n * b for n, b in zip(shape[1:-1], block, strict=True)), shape[-1])
        pair = [floats(*even), given(block), given(zeros)]
        yield case(f"spacetobatch_{name}", "SpaceToBatchND", pair, **attrs, Tpaddings="int32")
    for name, shape, out in (
        ("deeplab", (1, 33, 33, 256), (129, 129)),
        ("unet", (1, 64, 64, 32), (128, 128)),
        ("image", (1, 300, 400, 3), (224, 224)),
        ("tiny", (1, 2, 2, 1), (4, 4)),
    ):
        for op in ("ResizeBilinear", "ResizeNearestNeighbor"):
            inputs = [floats(*shape), given(list(out))]
            yield case(f"{op.lower()}_{name}", op, inputs, T="float32", half_pixel_centers=True)


def optimizers() -> Iterator[Case]:
    """Updates of variables."""
    for name, shape in (("bert", (768, 768)), ("bias", (64,)), ("one", ())):
        rates = [given(value, "float32") for value in (0.9, 0.999, 1e-3, 0.9, 0.999, 1e-7)]
        var = floats(*shape, variable=True, positive=True)
        grad = floats(*shape)
        yield case(f"adam_{name}", "ResourceApplyAdam", [var, var, var, *rates, grad], T="float32")
        given_rate = given(1e-3, "float32")
        yield case(f"sgd_{name}", "ResourceApplyGradientDescent", [var, given_rate, grad], T="float32")
        momentum = [var, var, given_rate, grad, given(0.9, "float32")]
        yield case(f"momentum_{name}", "ResourceApplyMomentum", momentum, T="float32")
        yield case(f"adagrad_{name}", "ResourceApplyAdagradV2", [var, var, given_rate, given_rate, grad], T="float32")
        four = [given(value, "float32") for value in (1e-3, 0.9, 0.9, 1e-7)]
        yield case(f"rmsprop_{name}", "ResourceApplyRMSProp", [var, var, var, *four, grad], T="float32")


class Timer:
    """A contestant in a process of its own."""

    def __init__(self, path: Path, *arguments: str) -> None:
        changed = {"PYTHONPATH": str(path), "TF_CPP_MIN_LOG_LEVEL": "3", **dict.fromkeys(THREADS, "1")}
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(TIMER), *arguments],
            env={**os.environ, **changed},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def time(self, timed: Case) -> float | str:
        """The nanoseconds of one call, or what went wrong."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(timed) + "\n")
        self._process.stdin.flush()
        answer: float | str = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table, in microseconds; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", default=["*"], metavar="PATTERN")
    parser.add_argument("--before", type=Path, metavar="PATH", help="another checkout, to compare with")
    options = parser.parse_args(arguments)
    timers = {"ours": Timer(ROOT)}
    if options.before is not None:
        timers["before"] = Timer(options.before)
    if is_installed("tensorflow"):
        timers["TensorFlow"] = Timer(ROOT, "tensorflow")
    print(f"{'µs':44}" + "".join(f"{name:>12}" for name in timers), flush=True)
    for timed in (*convolutions(), *depthwise(), *pools(), *elementwise(), *moves(), *optimizers()):
        if any(fnmatch(timed["name"], pattern) for pattern in options.names):
            rounds = [[timer.time(timed) for timer in timers.values()] for _ in range(ROUNDS)]
            print(f"{timed['name']:44}" + "".join(shown(times) for times in zip(*rounds, strict=True)), flush=True)
    for timer in timers.values():
        timer.close()
    return 0


def shown(times: Sequence[float | str]) -> str:
    """The best of *times* in microseconds."""
    figures = [time for time in times if not isinstance(time, str)]
    return f"{min(figures) / 1000:12.1f}" if len(figures) == len(times) else f"{times[0]!s:>12}"


if __name__ == "__main__":
    sys.exit(main())
