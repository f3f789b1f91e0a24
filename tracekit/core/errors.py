"""Everything tracekit raises for its user, and the notes it attaches to a result.

    TracekitError
    ├── UsageError        the call itself is wrong (exit status 2)
    ├── ReadError         one file cannot be read; the others still can
    │   ├── LimitError    a safety limit was reached while unpacking
    │   └── NotATraceError  the file is something else, and sound as that
    └── NoTraceError      nothing readable was found at all (exit status 2)

Each error is one line: what happened, where, and what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["info", "warning", "error"]


class TracekitError(Exception):
    """Base of all errors meant for the user.

    Parameters
    ----------
    what : str
        The fault, with the offending value.
    where : str, optional
        File (and byte or event) concerned.
    hint : str, optional
        What the user can do.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = what, where, hint
        super().__init__(self.line())

    def line(self) -> str:
        """The error as one line of text, without control characters."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        text = f"{text}; {self.hint}" if self.hint else text
        return one_line(text)


class UsageError(TracekitError):
    """The call is wrong: an unknown option value, a range that is none."""


class ReadError(TracekitError):
    """One file cannot be read as a trace."""


class LimitError(ReadError):
    """A limit on size or compression ratio was reached while unpacking."""


class NotATraceError(ReadError):
    """The file is no trace: another format, or some other document."""


class NoTraceError(TracekitError):
    """No readable trace was found where the user pointed."""


@dataclass(frozen=True, slots=True)
class Note:
    """A remark that belongs to a result: what was odd, and what it costs.

    Attributes
    ----------
    code : str
        Stable short name, for example ``truncated`` or ``same-rank-twice``.
    text : str
        One sentence for a person.
    severity : {"info", "warning", "error"}
        ``error`` marks a file (or part of it) that could not be used.
    file : str
        The file concerned, empty for the whole run.
    """

    code: str
    text: str
    severity: Severity = "warning"
    file: str = ""

    def as_dict(self) -> dict[str, str]:
        """The note as the JSON report shows it."""
        return {"code": self.code, "severity": self.severity, "file": self.file, "text": self.text}


def one_line(text: str, limit: int = 600) -> str:
    """Flatten ``text`` to one printable line of at most ``limit`` characters."""
    flat = "".join(c if c.isprintable() else " " for c in text)
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
