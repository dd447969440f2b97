"""Large libraries that are loaded before they are imported: Python would keep the GIL while it loads one."""

from __future__ import annotations

import ctypes
import os
import sys
from importlib.util import find_spec
from pathlib import Path


def load_ahead(package: str, pattern: str) -> None:
    """Load the libraries of *package* whose paths in it match *pattern*; not on Windows, and nothing if there are none.

    The system's loader takes 10 to 20 milliseconds for one of 100 MB.  What imports the library finds it loaded.
    """
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):  # something stands in its place
        return
    if sys.platform == "win32" or spec is None or spec.origin is None:
        return
    load = ctypes.CDLL(None).dlopen
    load.argtypes, load.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
    for file in Path(spec.origin).parent.glob(pattern):
        load(os.fsencode(file), os.RTLD_NOW)  # the import tells better if it fails
