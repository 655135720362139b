"""Where systems come from by name: the descriptions inside the package, and files."""

from __future__ import annotations

import difflib
import sys
from importlib import resources
from pathlib import Path

from linkgauge.errors import UsageError
from linkgauge.system.form import from_json, read
from linkgauge.system.model import System

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MAX_FILE_BYTES = 64 << 20  # a dumped system of thousands of devices has a few


def names() -> list[str]:
    """Return the names of the described systems that the package brings, sorted."""
    folder = resources.files("linkgauge") / "systems"
    return sorted(entry.name[: -len(".toml")] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(name_or_path: str | Path) -> System:
    """Return a described system by name, or one from a TOML or JSON file.

    What looks like a path (a slash, or a known ending) is read as a file; all else is a name. `UsageError`
    otherwise.
    """
    text = str(name_or_path)
    path = Path(text)
    if path.suffix in (".toml", ".json") or "/" in text or isinstance(name_or_path, Path):
        return _load_file(path)
    known = names()
    if text.lower() not in known:
        close = difflib.get_close_matches(text.lower(), known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        raise UsageError(f"there is no described system {text!r}; {hint}")
    file = resources.files("linkgauge") / "systems" / f"{text.lower()}.toml"
    return from_toml(file.read_text(encoding="utf-8"), f"{text.lower()}.toml")


def _load_file(path: Path) -> System:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        content = data.decode("utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as text ({error})") from None
    if len(data) > _MAX_FILE_BYTES:
        raise UsageError(f"{path}: more than {_MAX_FILE_BYTES >> 20} MiB, so no system")
    if path.suffix == ".toml":
        return from_toml(content, path.name)
    return from_json(content, path.name)


def from_toml(text: str, place: str = "system") -> System:
    """Read the TOML form; `UsageError` names `place` and the entry or line that is wrong."""
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib's own, and a number of too many digits
        raise UsageError(f"{place}: is no TOML: {error}") from None
    return read(data, place)
