"""Errors that a user meets, by who must act. Each carries one line: the cause, the thing, and what would be right."""

from __future__ import annotations

import enum
from collections.abc import Collection

# What quotes a file's own words may quote a megabyte of them.
_LONGEST_LINE = 1500


def one_line(text: str) -> str:
    """`text` as one line that a terminal only prints: white space as blanks, other control characters by number."""
    shown = "".join(ch if ch.isprintable() else " " if ch.isspace() else f"\\x{ord(ch):02x}" for ch in text)
    line = " ".join(shown.split())
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 310]} [...] {line[-300:]}"


class Exit(enum.IntEnum):
    """What the command line ends with (docs/definitions.md, exit status)."""

    DONE = 0
    FAIL = 1
    BAD_INPUT = 2
    UNKNOWN = 3
    SOME_FAILED = 4
    LACKING = 5
    NOTHING = 6
    UNFORESEEN = 70
    INTERRUPTED = 130

    @property
    def words(self) -> str:
        """What it means, as every help says it."""
        return _EXIT_WORDS[self]


_EXIT_WORDS = {
    Exit.DONE: "done",
    Exit.FAIL: "FAIL",
    Exit.BAD_INPUT: "wrong input",
    Exit.UNKNOWN: "UNKNOWN",
    Exit.SOME_FAILED: "some cases failed",
    Exit.LACKING: "cannot run here",
    Exit.NOTHING: "no case was measured",
    Exit.UNFORESEEN: "a bug in Linkgauge",
    Exit.INTERRUPTED: "interrupted",
}


class LinkgaugeError(Exception):
    """Base of every error that is shown as one line instead of a traceback.

    Its text is one line whatever it was made of: a stranger's file may have put control characters into what is
    quoted. `exit_status` is what the command line ends with.
    """

    exit_status = Exit.LACKING

    def __str__(self) -> str:
        """The message, as one line."""
        return one_line(super().__str__())


class UsageError(LinkgaugeError):
    """Bad input: a wrong flag, plan key, size, device, file or library name."""

    exit_status = Exit.BAD_INPUT


class EnvironmentLackingError(LinkgaugeError):
    """The environment cannot run what was asked: no launcher, no library, no memory, no permission."""

    exit_status = Exit.LACKING


class RunFolderError(UsageError):
    """A run folder that is missing, truncated, of another version, or not a run folder at all."""


class DamagedRunWarning(UserWarning):
    """A run folder of which a part is damaged is read without that part."""


def brief(word: str) -> str:
    """A word that was typed, for an error: of a very long one its beginning, and how long it is."""
    return word if len(word) <= 80 else f"{word[:20]}... ({len(word)} characters)"


FORMER_PATTERNS = {
    "chase": "pointer_chase", "floor": "empty_op", "cpu_stream": "host_stream",
    "host_device_both": "host_device_bidirectional", "host_to_device_beside": "host_to_device_contended",
    "device_to_host_beside": "device_to_host_contended",
}  # fmt: skip
"""What patterns were called until 0.2.0, in run folders too (store/older.py)."""
# What else was called otherwise until then. The nearest word by its letters is another thing.
_RENAMED = FORMER_PATTERNS | {
    "beside": "background", "stop_relative_half_width": "ci_width", "stop_time_ns": "max_time",
    "stop_time": "max_time", "budget": "time_limit", "choose": "placement", "up_to": "max_size",
    "exchanged": "swap_roles", "against": "crosscheck", "system": "topology", "part_unused": "rail_unused",
    "several_modes": "multimodal", "not_by_network": "bypassed_network", "collective_far": "collective_below_limit",
}  # fmt: skip


def renamed(word: str, known: Collection[str]) -> str:
    """What a word is called since 0.2.0, where that is known here; else empty."""
    now = _RENAMED.get(word.strip("-").replace("-", "_"), "")
    return next((one for one in (now, f"--{now.replace('_', '-')}") if now and one in known), "")


def nearest(word: str, known: Collection[str]) -> str:
    """` (did you mean 'x'?)` where a known word is close, else nothing."""
    import difflib

    if now := renamed(word, known):
        return f" (did you mean '{now}'?)"
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""


def not_one_of(word: str, known: Collection[str]) -> str:
    """What follows a word that is none of those known: the nearest of them, and all."""
    return f"{nearest(word, list(known))}: expected one of {', '.join(known) or 'none'}"
