"""``python -m tests.golden.make_pnnx_golden`` writes tests/golden/pnnx: models that torch ran and pnnx converted.

For each model there are ``NAME.pnnx.param`` and ``NAME.pnnx.bin``, as the converter wrote them, and ``NAME.npz`` with
inputs ``x0``, ``x1``, ... and torch's outputs ``y0``, ``y1``, ....  It needs torch and pnnx, of PyPI.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np
import pnnx
import torch
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent / "pnnx"


def convert(model: nn.Module, inputs: tuple[torch.Tensor, ...], folder: Path, name: str, *options: str) -> list[Any]:
    """Write *name*'s param and bin files to *folder*; gives the outputs."""
    model.eval()
    with torch.no_grad(), tempfile.TemporaryDirectory() as scratch:
        outputs = model(*inputs)
        torch.jit.trace(model, inputs, check_trace=False).save(f"{scratch}/{name}.pt")
        shapes = ",".join(f"{list(x.shape)}{'i64' if x.dtype == torch.int64 else 'f32'}" for x in inputs)
        command = [pnnx.EXEC_PATH, f"{name}.pt", f"inputshape={shapes.replace(' ', '')}", "fp16=0", *options]
        subprocess.run(command, cwd=scratch, check=True, capture_output=True)
        for suffix in ("param", "bin"):
            found = Path(scratch) / f"{name.replace('-', '_')}.pnnx.{suffix}"
            (folder / f"{name}.pnnx.{suffix}").write_bytes(found.read_bytes())
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def randomized(model: nn.Module) -> nn.Module:
    """*model* with running statistics as after training."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model


class Small(nn.Module):
    """What the docs show."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.act = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.conv(x))
        return self.fc(torch.flatten(self.pool(y + y.sqrt()), 1))


class Layers(nn.Module):
    """Layers, one after the other on the same input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2),
                nn.Conv2d(6, 12, (3, 1), padding=(2, 0), dilation=(2, 1), groups=6, bias=False),
                nn.Conv2d(6, 4, 5, padding="same", padding_mode="reflect"),
                nn.Conv2d(6, 4, 1, stride=2),
                nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
                nn.ConvTranspose2d(6, 3, 2, stride=2, dilation=2, bias=False),
                nn.MaxPool2d(3, 2, 1, ceil_mode=True),
                nn.MaxPool2d(2, 3, dilation=2),
                nn.AvgPool2d(3, 2, 1, ceil_mode=True),
                nn.AvgPool2d(3, 2, 1, count_include_pad=False),
                nn.AvgPool2d(2, divisor_override=3),
                nn.AdaptiveAvgPool2d((3, 5)),
                nn.AdaptiveAvgPool2d((None, 2)),
                nn.AdaptiveMaxPool2d(4),
                nn.Sequential(nn.ReLU(), nn.BatchNorm2d(6)),
                nn.GroupNorm(3, 6),
                nn.InstanceNorm2d(6, affine=True),
                nn.LayerNorm([11, 10]),
                nn.LocalResponseNorm(3),
                nn.ReLU6(),
                nn.SiLU(),
                nn.GELU(),
                nn.GELU(approximate="tanh"),
                nn.Sigmoid(),
                nn.Hardsigmoid(),
                nn.Hardswish(),
                nn.Hardtanh(-0.5, 0.7),
                nn.LeakyReLU(0.2),
                nn.PReLU(6),
                nn.ELU(1.5),
                nn.SELU(),
                nn.Mish(),
                nn.Softplus(),
                nn.Tanh(),
                nn.LogSigmoid(),
                nn.Softmax(dim=1),
                nn.LogSoftmax(dim=-1),
                nn.Upsample(scale_factor=2, mode="nearest"),
                nn.Upsample(size=(7, 21), mode="bilinear", align_corners=True),
                nn.Upsample(scale_factor=1.5, mode="bilinear"),
                nn.Upsample(size=(14, 6), mode="bicubic"),
                nn.ChannelShuffle(3),
                nn.ZeroPad2d((1, 2, 0, 3)),
                nn.ReflectionPad2d((1, 2, 3, 0)),
                nn.ReplicationPad2d(2),
                nn.Linear(10, 3, bias=False),
                nn.Dropout(),
            ]
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple([layer(x) for layer in self.layers])


class Functions(nn.Module):
    """Functions and methods of tensors, and expressions."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(4, 1, 1))
        self._inner = nn.Conv2d(4, 4, 1)
        self.register_buffer("index", torch.tensor([2, 0, 1]))

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self._inner(x * self.scale) / (x.abs() + 1.5).sqrt() - 2 * torch.exp(-x) + x**2
        parts = torch.split(y, [1, 3], 1)
        first, second = torch.chunk(z, 2, dim=-1)
        return (
            F.interpolate(y, size=(9, 9), mode="bilinear", align_corners=False),
            F.interpolate(y, scale_factor=(2.0, 3.0), mode="nearest"),
            F.pad(y, (1, 2, 0, 1), value=0.5),
            F.leaky_relu(F.max_pool2d(y, 2) + F.avg_pool2d(y, 2), 0.2),
            F.adaptive_avg_pool2d(y, (1, 1)).flatten(1),
            F.relu(parts[0]),
            F.gelu(parts[1]),
            F.normalize(z, dim=1),
            F.softmax(z, -1),
            F.hardswish(y),
            y.view(x.size(0), -1, y.size(2) * y.size(3)).transpose(1, 2),
            y.permute(0, 2, 3, 1).reshape(2, -1),
            torch.cat([x, y], 1),
            torch.stack([x, y], -1),
            torch.matmul(first, second.transpose(-1, -2)),
            torch.einsum("bij,bkj->bik", first, second),
            z.mean(dim=(0, 2)),
            y.sum(-1, keepdim=True),
            torch.max(z, dim=-1)[0],
            z.argmax(-1),
            torch.norm(z, dim=-1),
            torch.clamp(y, -0.5, 0.5),
            y[:, 1:, ::2, 3],
            y[:, :, -3:],
            torch.roll(y, (1, -2), (2, 3)),
            torch.flip(y, (1,)),
            y.unsqueeze(0).squeeze(0).repeat(1, 2, 1, 1),
            self.scale.expand(-1, 2, 3),
            torch.where(x > 0.5, x, y),
            (x > 0.25).float(),
            torch.index_select(y, 1, self.index),
            torch.addmm(z[0], z[0], z[1]),
            torch.tanh(torch.minimum(x, y)) * torch.sigmoid(torch.pow(x, 1.5)),
        )


class Attention(nn.Module):
    """A transformer's layer, with tokens from a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.table(tokens)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        heads = x.reshape(x.shape[0], -1, 4, 2).transpose(1, 2)
        return self.mlp(x), F.scaled_dot_product_attention(heads, heads, heads)


class UNet(nn.Module):
    """Down, up, and what is kept from the way down."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self._block(3, 4), self._block(4, 8), self._block(8, 16)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(16, 8, 2, stride=2), nn.ConvTranspose2d(8, 4, 2, stride=2)])
        self.join = nn.ModuleList([self._block(16, 8), self._block(8, 4)])
        self.head = nn.Conv2d(4, 2, 1)

    @staticmethod
    def _block(inside: int, outside: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(inplace=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for block in self.down[:2]:
            x = block(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.down[2](x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        return torch.sigmoid(self.head(x))


class Detect(nn.Module):
    """Boxes of three stages, each with a grid and anchors of its own."""

    def __init__(self, sizes: list[int], channels: int, classes: int) -> None:
        super().__init__()
        self.m = nn.ModuleList(nn.Conv2d(channels, 3 * (classes + 5), 1) for _ in sizes)
        self.grids = [self._grid(size) for size in sizes]
        self.anchors = [torch.rand(1, 3, 1, 1, 2).expand(1, 3, size, size, 2) * 50 for size in sizes]
        self.strides = torch.tensor([8.0, 16.0, 32.0])

    @staticmethod
    def _grid(size: int) -> torch.Tensor:
        y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        return torch.stack((x, y), 2).expand(1, 3, size, size, 2).float() - 0.5

    def forward(self, *stages: torch.Tensor) -> torch.Tensor:
        found = []
        for number, x in enumerate(stages):
            x = self.m[number](x)
            batch, channels, height, width = x.shape
            y = x.view(batch, 3, channels // 3, height, width).permute(0, 1, 3, 4, 2).sigmoid()
            place, size, rest = y.split((2, 2, channels // 3 - 4), 4)
            place = (place * 2 + self.grids[number]) * self.strides[number]
            size = (size * 2) ** 2 * self.anchors[number]
            found.append(torch.cat((place, size, rest), 4).view(batch, 3 * height * width, channels // 3))
        return torch.cat(found, 1)


class Detector(nn.Module):
    """Three strides of an image, and what is found in them."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(channels, 4, 2, stride=2) for channels in (3, 4, 4))
        self.detect = Detect([8, 4, 2], 4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stages = []
        for layer in self.down:
            x = F.silu(layer(x))
            stages.append(x)
        return self.detect(*stages)


def write(name: str, model: nn.Module, inputs: tuple[torch.Tensor, ...], *options: str) -> None:
    """Convert *model*, and keep what it gives."""
    outputs = convert(randomized(model), inputs, HERE, name, *options)
    arrays = {f"x{number}": x.numpy() for number, x in enumerate(inputs)}
    arrays |= {f"y{number}": y.detach().numpy() for number, y in enumerate(outputs)}
    np.savez_compressed(HERE / f"{name}.npz", **arrays)


def main() -> None:
    torch.manual_seed(0)
    HERE.mkdir(exist_ok=True)
    yolo = types.ModuleType("models.yolo")  # the converter finds the module by this name
    sys.modules["models.yolo"] = yolo
    Detect.__module__ = "models.yolo"
    write("small", Small(), (torch.rand(1, 3, 8, 8),))
    write("small_free", Small(), (torch.rand(1, 3, 8, 8),), "inputshape2=[2,3,12,12]")
    write("layers", Layers(), (torch.randn(2, 6, 11, 10),))
    write("functions", Functions(), (torch.rand(2, 4, 6, 6), torch.randn(2, 4, 4)))
    write("attention", Attention(), (torch.randint(0, 11, (2, 5)),))
    write("unet", UNet(), (torch.rand(1, 3, 16, 16),))
    write("detect", Detector(), (torch.rand(1, 3, 16, 16),), "moduleop=models.yolo.Detect")


if __name__ == "__main__":
    main()
