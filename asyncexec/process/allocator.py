"""What the arrays of one step leave, those of the next take: freed memory is kept rather than given back.

glibc gives a large block back to the system when it is freed, and cuts the heap when much of its end is free; then the
pages of the next array of that size come anew, one fault each, which takes longer than most kernels need to fill them.
What is large it learns (mallopt(3), M_MMAP_THRESHOLD): the size of the largest such block that was ever freed, and
twice that for the end of the heap.  So one block is taken, which costs nothing as long as it is not touched, and freed.
Other allocators, and a glibc whose thresholds were set by hand, take no notice.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

# glibc learns nothing from 32 MiB on.  What has been in use at once may stay with the process, as far as it lies below
# what is in use still; it does not grow beyond that.
BLOCK_BYTES: Final = 16 * 2**20


@cache
def keep_freed_memory() -> None:
    """From now on, let the memory of arrays up to BLOCK_BYTES be used again in this process."""
    np.empty(BLOCK_BYTES, np.uint8)
