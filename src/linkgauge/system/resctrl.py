"""What all cores move from and to memory, as the processors count it where resctrl is mounted.

Linux, Documentation/filesystems/resctrl.rst: each group has `mon_data/mon_L3_NN/mbm_total_bytes`, bytes since it was
made, of all its tasks and those of the monitoring groups in it. All groups together are the machine; whose they are is
not told. 10 us a domain and group.
"""

from __future__ import annotations

from pathlib import Path

from linkgauge.files import kernel_text
from linkgauge.system.sysfs import entries

_NO_GROUPS = ("info", "mon_data", "mon_groups")


class MemoryTraffic:
    """The counters of this machine, found once. `root` stands for / in tests."""

    def __init__(self, root: Path = Path("/")) -> None:
        """Find the groups' counters."""
        top = root / "sys/fs/resctrl"
        groups = [top, *(one for one in entries(top) if one.name not in _NO_GROUPS)]
        self._files = [domain / "mbm_total_bytes" for group in groups for domain in entries(group / "mon_data")
                       if domain.name.startswith("mon_L3_") and (domain / "mbm_total_bytes").exists()]  # fmt: skip

    def __bool__(self) -> bool:
        """Whether anything is counted."""
        return bool(self._files)

    def read(self) -> int | None:
        """Return the bytes so far; None where a counter says nothing now (`Unavailable`, `Error`)."""
        texts = [kernel_text(file) for file in self._files]
        if not texts or not all(text.isdecimal() and len(text) < 20 for text in texts):
            return None
        return sum(map(int, texts))
