"""Stage 3: the builder, functions that add nodes to the current graph."""

import asyncexec.frontend.operators  # noqa: F401 - gives tensors their operators
