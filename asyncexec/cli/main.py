"""Entry of the command ``asyncexec``."""

from __future__ import annotations

import importlib
import sys

from asyncexec.framework.errors import MissingExtraError
from asyncexec.framework.extras import require


def main() -> None:
    """Run the command line; how it went is the exit code: 0 fine, 1 failed, 2 misused, 130 interrupted."""
    try:
        require("typer", extra="cli")
        # By name, since the verbs cannot be imported where typer is missing, and then the message below is due.
        importlib.import_module("asyncexec.cli.app").app(prog_name="asyncexec")
    except MissingExtraError as error:
        print(f"asyncexec: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:  # while modules were imported, which takes its time
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
