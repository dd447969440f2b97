"""Tables from the cases of TensorFlow's own tests to ours, and the check that what they name exists.

A table maps a case to ``test_name`` (of the module that has the table), to ``package.module:test_name``, or to the
reason why the case means nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module


def is_test(entry: str) -> bool:
    """Whether *entry* names a test; else it is a reason."""
    return " " not in entry and entry.rpartition(":")[2].startswith("test_")


def missing_tests(cases: Mapping[str, str], module: str) -> list[str]:
    """The cases in the table of *module* that name a test which does not exist, or give a reason of one word."""
    return [case for case, entry in cases.items() if not (_exists(entry, module) if is_test(entry) else " " in entry)]


def _exists(entry: str, module: str) -> bool:
    where, _, name = entry.rpartition(":")
    return callable(getattr(import_module(where or module), name, None))
