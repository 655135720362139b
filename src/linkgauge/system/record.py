"""A machine as one file: what discovery and the doctor looked at here, to be played back elsewhere.

A recording is JSON: `files` by path, texts as they are and others in hexadecimal, `links` between folders as sysfs has
them, and `answers` of what is no file. It holds exactly what was looked at (`linkgauge.files.listening`), and no
identities (`linkgauge.system.anonymous`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from linkgauge.errors import EnvironmentLackingError
from linkgauge.files import read_file
from linkgauge.model.shape import MisshapenError, as_it_is, exact, mapping, one_of, parsed, table, whole
from linkgauge.system.anonymous import Pseudonyms

FORMAT = "linkgauge-recording"
VERSION = 1
WHAT = "a recording of a machine (linkgauge record FILE)"
MOST_BYTES = 64 << 20
_MOST_FILES = 1 << 17
_TOPS = ("sys", "proc", "dev", "boot", "etc")
_OF_MACHINE = ("nvml.json", "hwloc.xml")  # what a recorded machine has beside the kernel's files
_OTHERS = re.compile(r"proc/([0-9]+)/")
_KERNEL_OPTION = re.compile(r"CONFIG_(DMABUF|PCI|NUMA|HSA|HMM|DEVICE_PRIVATE)\w*=")
_EXTENDED, _SERIAL_NUMBER = 0x100, 0x0003
_MOST_LINKS = 40  # as the kernel follows


def _path(value: Any, at: str) -> str:
    """A path below the root, as a recording names files: nothing of it leads out."""
    found = exact(value, at)
    parts = found.split("/")
    inside = all(part not in ("", ".", "..") for part in parts) and len(found) < 1000
    if not inside or not (parts[0] in _TOPS or found in _OF_MACHINE):
        raise MisshapenError(f"{at} is {found[:60]!r}: expected a path such as sys/class/net/eth0/speed")
    return found


def _content(value: Any, at: str) -> str | bytes | None:
    if value is None:
        return None
    if isinstance(value, dict):
        digits = exact(value.get("hex"), f"{at}.hex")
        try:
            return bytes.fromhex(digits)
        except ValueError:
            raise MisshapenError(f"{at}.hex is no hexadecimal number: expected digits in pairs") from None
    return exact(value, at)


_SHAPE = table(
    {
        "format": one_of((FORMAT,)),
        "format_version": whole(1, VERSION),
        "files": mapping(_content, _path),
        "links": mapping(_path, _path),
        "answers": table({}, as_it_is),
    },
    needed=("format", "format_version", "files", "links", "answers"),
)


def is_recording(content: bytes) -> bool:
    """Whether a file's content begins as a recording's does."""
    return f'"format": "{FORMAT}"'.encode() in content[:100]


class Recorder:
    """Keeps what is looked at below `root` while it listens (`files.listening(recorder.hear)`)."""

    def __init__(self, root: Path, pseudonyms: Pseudonyms) -> None:
        """`pseudonyms` replace identities in all that is kept."""
        self._root = os.path.abspath(root)
        self._pseudonyms = pseudonyms
        self._files: dict[str, bytes | None] = {}
        self._links: dict[str, str] = {}
        self._places: dict[str, str] = {}  # where each path that was looked at leads: most are looked at several times

    def hear(self, path: str, content: bytes | None) -> None:
        """Keep a file with its content, or only that something is there."""
        relative = os.path.relpath(path, self._root)
        if relative.split("/")[0] not in _TOPS:
            return
        place = self._places.get(relative) or self._places.setdefault(relative, self._real(relative))
        if (other := _OTHERS.match(place)) and other[1] != str(os.getpid()):
            return  # another process's: its name and user are nobody's business
        if content is not None or place not in self._files:
            self._files[place] = content

    def _real(self, relative: str) -> str:
        """Where a path leads; keeps the links on the way."""
        left, here = relative.split("/")[::-1], ""
        for _ in range(_MOST_LINKS * 20):
            if not left:
                break
            at = posixpath.normpath(posixpath.join(here, left.pop()))
            try:
                target = os.readlink(f"{self._root}/{at}")
            except OSError:
                here = at
                continue
            inside = target.lstrip("/") if target.startswith("/") else posixpath.normpath(posixpath.join(here, target))
            if inside.split("/")[0] not in _TOPS:
                here = at
                continue
            self._links[at] = inside
            left += inside.split("/")[::-1]
            here = ""
        return here

    def as_json(self, answers: Mapping[str, Any], more: Mapping[str, str]) -> str:
        """The recording. `answers` of what is no file; `more`: other files of a recorded machine (`nvml.json`)."""
        above = {place[:at] for place in (*self._files, *self._links) for at, sign in enumerate(place) if sign == "/"}
        kept = {place: _kept(place, content, self._pseudonyms) for place, content in sorted(self._files.items())
                if content is not None or place not in above}  # fmt: skip
        for place, content in kept.items():
            if content is None and os.path.isdir(f"{self._root}/{place}"):
                kept[place] = None
            elif content is None:
                kept[place] = ""  # a device or a socket: that it is there is what counts
        clean = self._pseudonyms.of
        data = {
            "format": FORMAT, "format_version": VERSION, "answers": answers,
            "links": {clean(place): clean(target) for place, target in sorted(self._links.items())},
            "files": {clean(place): content for place, content in kept.items()} | dict(more),
        }  # fmt: skip
        return json.dumps(data, indent=0) + "\n"


def _kept(place: str, content: bytes | None, pseudonyms: Pseudonyms) -> str | dict[str, str] | None:
    """A file's content as a recording has it: without identities, and without what nobody reads."""
    if content is None:
        return None
    name = place.rpartition("/")[2]
    if name == "config" and place.startswith("sys/"):
        return {"hex": _without_serial_number(content).hex()}
    if name == "raw" and len(content) > 1:
        return {"hex": content[: content[1]].hex()}  # serial numbers come after the figures
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"hex": content.hex()}
    if place == "proc/cpuinfo":
        text = text.split("\n\n", 1)[0] + "\n"
    elif name == "mountinfo":  # other mounts name servers and users
        text = "".join(line + "\n" for line in text.splitlines() if " - cgroup" in line)
    elif place.startswith("boot/"):
        text = "".join(line + "\n" for line in text.splitlines() if _KERNEL_OPTION.match(line))
    elif place.endswith("net/route"):
        text = pseudonyms.route_table(text)
    return pseudonyms.of(text)


def _without_serial_number(config: bytes) -> bytes:
    """A configuration space whose Device Serial Number (PCIe Base Specification, 7.9.3) is zeros: a card's GUID."""
    made, at, seen = bytearray(config), _EXTENDED, set()
    while _EXTENDED <= at <= len(made) - 4 and at not in seen:
        seen.add(at)
        header = int.from_bytes(made[at : at + 4], "little")
        if header & 0xFFFF == _SERIAL_NUMBER:
            made[at + 4 : at + 12] = bytes(len(made[at + 4 : at + 12]))
        at = header >> 20
    return bytes(made)


def read_recording(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A recording as `files`, `links` and `answers`; UsageError where it is none."""
    return parsed_recording(read_file(path, MOST_BYTES, WHAT), os.fspath(path))


def parsed_recording(content: bytes, where: str) -> dict[str, Any]:
    """Likewise, of what a file holds."""
    found: dict[str, Any] = parsed(content, _SHAPE, where)
    for name in ("files", "links"):
        if len(found[name]) > _MOST_FILES:
            raise MisshapenError(f"{where}: {len(found[name])} {name}: expected at most {_MOST_FILES}")
    return found


@contextlib.contextmanager
def unpacked(recording: Mapping[str, Any], where: str) -> Iterator[Path]:
    """The recorded files in a folder that lasts as long as the context: a root for all that reads machines."""
    links = recording["links"]
    for place in (*recording["files"], *links):
        # A place behind a link would be another one than it says, maybe outside the folder.
        if any(place[:at] in links for at, sign in enumerate(place) if sign == "/"):
            raise MisshapenError(f"{where}: {place[:60]} is behind a link: expected the place that it leads to")
    with tempfile.TemporaryDirectory(prefix="linkgauge-recording-") as folder:
        root = Path(os.path.realpath(folder)) / "recorded"
        try:
            root.mkdir()
            _unpack(recording, root)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise EnvironmentLackingError(f"{root}: cannot be written ({error.strerror})") from None
            raise MisshapenError(
                f"{where}: its files and links cannot be laid out ({error.strerror}): expected {WHAT}"
            ) from None
        yield root


def _unpack(recording: Mapping[str, Any], root: Path) -> None:
    for place, content in recording["files"].items():
        target = root / place
        if content is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode(errors="surrogateescape"))
    for place, where in recording["links"].items():
        link = root / place
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(root / where, link.parent))
