"""Which build of the program this is: version, commit, and how the core was compiled. Nothing of who built it.

A checkout is asked by git when it is needed, because its files change after the build. Elsewhere the file _built.json
says it, which CMake writes where it builds in a clone.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

from linkgauge import __version__
from linkgauge.children import NoAnswerError, output_of

FILE = "_built.json"
_PATIENCE_S = 5.0


@dataclasses.dataclass(frozen=True)
class Build:
    """A build. Empty texts: not known. `dirty`: tracked files differ from the commit."""

    version: str
    commit: str = ""
    dirty: bool = False
    build_type: str = ""
    compiler: str = ""

    @property
    def words(self) -> str:
        """It in words: `0.1.0, commit 0123456789ab, with changes`."""
        commit = f", commit {self.commit[:12]}" if self.commit else ""
        return f"{self.version}{commit}" + (", with changes" if self.dirty else "")


@functools.cache
def this_build() -> Build:
    """Return the build of this process."""
    stored = _stored()
    found = Build(
        __version__,
        str(stored.get("commit", "")),
        stored.get("dirty") is True,
        str(stored.get("build_type", "")),
        str(stored.get("compiler", "")),
    )
    root = Path(__file__).resolve().parents[2]
    if not ((root / ".git").exists() and (root / "src" / "linkgauge" / "built.py").exists()):
        return found
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return dataclasses.replace(found, commit=(commit or "").strip(), dirty=bool(changed and changed.strip()))


def build_of(info: Any) -> Build:
    """Return the build that a run folder's `run.json` names; of older ones the version alone."""
    stored = info.get("build") or {}
    version = str(stored.get("version") or (info.get("versions") or {}).get("linkgauge") or "")
    known = {name: stored[name] for name in ("commit", "dirty", "build_type", "compiler") if name in stored}
    return Build(version, **known)


def _stored() -> dict[str, Any]:
    core = importlib.util.find_spec("linkgauge._core")
    if core is None or not core.origin:
        return {}
    try:
        found = json.loads((Path(core.origin).parent / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _git(root: Path, *words: str) -> str | None:
    """Return what git prints of a checkout; None where it is not there, or refuses."""
    try:
        # A checkout's own settings may name a program to start.
        done = output_of(["git", "-C", str(root), "-c", "core.fsmonitor=false", *words], _PATIENCE_S)
    except NoAnswerError:
        return None
    return done.stdout if done.returncode == 0 else None
