"""The numbers of a run's launches: each has its own, also one that is started again."""

from __future__ import annotations

from collections.abc import Sequence

from linkgauge.run.parent.prepared import Pending
from linkgauge.store.folder import RunFolder


class LaunchNumbers:
    """Gives each new launch the next number, and keeps in run.json which one it repeats."""

    def __init__(self, folder: RunFolder, pending: Sequence[Pending]) -> None:
        """Begin behind the launches that are planned."""
        self._folder = folder
        self._next = max((one.number for one in pending), default=-1) + 1
        self._repeats: dict[str, int] = dict(folder.info.get("relaunched", {}))

    def take(self) -> int:
        """The next number."""
        self._next += 1
        return self._next - 1

    def renew(self, one: Pending) -> None:
        """Give a launch that is started again, or has changed, the next number."""
        one.number = self.take()
        self._repeats[str(one.number)] = one.planned.number
        self._folder.update_info({"relaunched": self._repeats})
