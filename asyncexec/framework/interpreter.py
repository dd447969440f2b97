"""What kind of interpreter this is: with a global lock, which threads take turns to hold, or free-threaded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

# Such a build may still have the lock: by PYTHON_GIL=1, or because of an extension that was imported and asks for it.
# Its garbage collector knows no generations: each collection walks all objects.
IS_FREE_THREADED: Final = "free-threading" in sys.version
# Whether threads take turns just now.  Looked up once: to look in vain takes more than a microsecond.
gil_is_enabled: Final[Callable[[], bool]] = getattr(sys, "_is_gil_enabled", None) or (lambda: True)
