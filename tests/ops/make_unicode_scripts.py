"""``python -m tests.ops.make_unicode_scripts`` writes asyncexec/ops/string/unicode_scripts.py; wants TensorFlow."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

import numpy as np
import tensorflow as tf

import asyncexec.ops.string

TABLE: Final = Path(asyncexec.ops.string.__file__).with_name("unicode_scripts.py")
HEAD: Final = '''"""The scripts of Unicode's code points: of each range how many they are, and their script.

Written by ``python -m tests.ops.make_unicode_scripts`` from what TensorFlow's ICU says.
"""

from __future__ import annotations

from typing import Final

# fmt: off
RANGES: Final = (
'''


def source() -> str:
    """The text of the module."""
    scripts = tf.raw_ops.UnicodeScript(input=np.arange(0x110000, dtype=np.int32)).numpy()
    starts = np.flatnonzero(np.diff(scripts, prepend=-2))
    counts = np.diff(starts, append=scripts.size)
    text = " ".join(f"{count}:{scripts[start]}" for start, count in zip(starts, counts, strict=True))
    return HEAD + "".join(f'    "{part} "\n' for part in textwrap.wrap(text, 112)) + ")\n"


if __name__ == "__main__":
    TABLE.write_text(source(), encoding="utf-8")
