"""Lines of the log, in text or JSON, that no client can forge.  The command line imports it: it is light."""

from __future__ import annotations

import json
import logging
import re
import time
from typing import Final

# A line for each call, at level INFO, or WARNING where the service is at fault.
ACCESS: Final = logging.getLogger("asyncexec.service.access")
FIELDS: Final = "access"  # of its records
# Control characters, also those of 8 bits, what breaks lines elsewhere, what turns the direction of text, and lone
# surrogates, which cannot be written.
_UNSHOWN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: str) -> str:
    """*text* on one line: what would break or hide a part of it is shown as Python writes it."""
    return _UNSHOWN.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


class TextLines(logging.Formatter):
    """A line of text for each record.  What follows it, such as where an exception was raised, is indented.

    Attributes:
        has_iso_time: whether times are as of ISO 8601, in UTC.
    """

    has_iso_time: bool = False

    def format(self, record: logging.LogRecord) -> str:
        lines = [f"{self._time(record)} {record.levelname} {record.name}: {escaped(record.getMessage())}"]
        if record.exc_info:
            lines += self.formatException(record.exc_info).split("\n")
        return "\n  ".join([lines[0], *map(escaped, lines[1:])])

    def _time(self, record: logging.LogRecord) -> str:
        return iso_time(record) if TextLines.has_iso_time else self.formatTime(record)


class JsonLines(logging.Formatter):
    """An object of JSON in a line for each record; that of a call has its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": iso_time(record), "level": record.levelname, "logger": record.name}
        fields = getattr(record, FIELDS, None)
        line |= {"message": record.getMessage()} if fields is None else fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def iso_time(record: logging.LogRecord) -> str:
    """When *record* was made, as of ISO 8601, in UTC, with milliseconds."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"
