"""Where systems come from by name: the descriptions inside the package, and files."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from linkgauge.errors import UsageError, nearest
from linkgauge.files import read_file
from linkgauge.model.log_text import log_text
from linkgauge.system.discovery import discover
from linkgauge.system.fabric_forms import not_a_system
from linkgauge.system.form import from_json, from_toml, refuse_twice
from linkgauge.system.model import System
from linkgauge.system.printed import printed
from linkgauge.system.record import MOST_BYTES, is_recording, parsed_recording, unpacked
from linkgauge.system.shipped import names, nodes, text_of

# What people write has some thousand bytes, and a MiB of TOML takes a second; a dumped system of thousands of devices
# has a few MiB of JSON, which is read in a tenth of the time.
_MOST_TOML, _MOST_JSON = 1 << 20, 8 << 20


def load(name_or_path: str | Path) -> System:
    """Return a described system by name, or one from a TOML or JSON file.

    What looks like a path (a slash, or a known ending), or is no name and a file, is read as a file; all else is a
    name. A file's form is TOML or JSON by its ending, else by what it holds. `UsageError` otherwise.

    >>> system = load("hgx-h100-8")
    >>> system.title
    'HGX H100 with 8 GPUs and 4 NVSwitches'
    >>> [node.name for node in system.nodes if node.kind == "device"][:2]
    ['gpu0', 'gpu1']
    """
    text = str(name_or_path)
    path = Path(text)
    if path.suffix in (".toml", ".json") or "/" in text or isinstance(name_or_path, Path):
        return _load_file(path)
    known = names()
    if text.lower() not in known and os.path.isfile(text):  # of a name that is too long Path raises
        return _load_file(path)
    if text.lower() not in known:
        raise UsageError(
            f"there is no described system {text[:80]!r}{nearest(text.lower(), known)}: expected a name of "
            f"'linkgauge list systems'"
        )
    return from_toml(text_of(text.lower()), f"{text.lower()}.toml")


@functools.lru_cache(maxsize=1)
def described_nodes() -> tuple[System, ...]:
    """Return the described systems that are a node themselves."""
    return tuple(load(name) for name in nodes())


def _load_file(path: Path) -> System:
    toml = path.suffix == ".toml"
    content = read_file(path, _MOST_TOML if toml else MOST_BYTES, "a system's TOML or JSON")
    if not toml and is_recording(content):
        with unpacked(parsed_recording(content, path.name), path.name) as folder:
            return discover(folder, name=path.name.partition(".")[0] or "recorded")
    if path.suffix not in (".toml", ".json") and (found := _printed(content, path)) is not None:
        return found
    if len(content) > _MOST_JSON:
        raise UsageError(f"{path}: more than {_MOST_JSON >> 20} MiB, too large: expected a system's TOML or JSON")
    system = (from_toml if toml else from_json)(content, path.name)
    refuse_twice(system, path.name)
    return system


def _printed(content: bytes, path: Path) -> System | None:
    """The system in what a tool printed; None where it may be JSON. UsageError where it tells of something else."""
    lines = log_text(content).lines
    if (found := printed(lines, path.name)) is not None:
        refuse_twice(found, path.name)
        return found
    if what := not_a_system("\n".join(line.text for line in lines)):
        raise UsageError(f"{path}: this is {what}")
    return None
