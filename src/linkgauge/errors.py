"""Errors that a user meets, by who must act. Each carries one line: the cause, the thing, and what would be right."""

from __future__ import annotations


class LinkgaugeError(Exception):
    """Base of every error that is shown as one line instead of a traceback.

    `exit_status` is what the command line ends with (docs/definitions.md, exit status).
    """

    exit_status = 5


class UsageError(LinkgaugeError):
    """Bad input: a wrong flag, plan key, size, device, file or library name."""

    exit_status = 2


class EnvironmentLackingError(LinkgaugeError):
    """The environment cannot run what was asked: no launcher, no library, no memory, no permission."""

    exit_status = 5


class RunFolderError(UsageError):
    """A run folder that is missing, truncated, of another version, or not a run folder at all."""
