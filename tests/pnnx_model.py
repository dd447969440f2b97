"""The model that pages and docstrings load as ``model.pnnx.param``."""

from __future__ import annotations

import shutil
from pathlib import Path

SMALL = Path(__file__).parent / "golden" / "pnnx" / "small"


def put_pnnx_model(folder: Path) -> None:
    """Put the model's files into *folder*."""
    for suffix in ("param", "bin"):
        shutil.copy(SMALL.with_name(f"{SMALL.name}.pnnx.{suffix}"), folder / f"model.pnnx.{suffix}")
