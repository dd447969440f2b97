"""How many threads BLAS takes for one operation, such as a product of matrices.

Kernels of several steps run side by side anyway.  Where BLAS splits each of them among threads of its own, those of
different operations wait for each other, and for the rest of the process, and they take processor time while they wait.
"""

from __future__ import annotations

from asyncexec.framework.extras import require


def limit_blas_threads(count: int) -> None:
    """Let BLAS take *count* threads for one operation from now on, in the whole process.

    Raises:
        MissingExtraError: threadpoolctl is not installed: ``pip install "asyncexec[serve]"``.
    """
    require("threadpoolctl", extra="serve").threadpool_limits(count, user_api="blas")
