"""``python -m tests.oracle.architectures [NAME ...]``: a table of all architectures by form, or of those named."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.oracle.architectures.catalogue import ARCHITECTURES
from tests.oracle.architectures.forms import ALL_FORMS, compare


def outcome(name: str, form: str) -> str:
    """ "equal", or what went wrong."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            compare(name, form, Path(folder))
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return "equal"


def main(names: list[str]) -> int:
    num_failed = num_equal = 0
    for one in [ARCHITECTURES[name] for name in names or ARCHITECTURES]:
        found = {form: outcome(one.name, form) for form in one.forms}
        cells = ["-" if form not in found else "equal" if found[form] == "equal" else "FAIL" for form in ALL_FORMS]
        print(f"{one.family:18} {one.name:36} " + "  ".join(f"{cell:5}" for cell in cells), flush=True)
        for form, each in found.items():
            if each != "equal":
                print(f"    {form}: {each}", flush=True)
        num_failed += any(each != "equal" for each in found.values())
        num_equal += all(each == "equal" for each in found.values())
    print(f"{num_equal} architectures are equal in all their forms, {num_failed} are not")
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
