"""The files of described systems that the package brings."""

from __future__ import annotations

from importlib import resources


def names() -> list[str]:
    """Return the names of the described systems that the package brings, sorted."""
    folder = resources.files("linkgauge") / "systems"
    return sorted(entry.name[: -len(".toml")] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def text_of(name: str) -> str:
    """Return the TOML of one of `names()`."""
    return (resources.files("linkgauge") / "systems" / f"{name}.toml").read_text(encoding="utf-8")
