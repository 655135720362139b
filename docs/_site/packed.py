"""The site as one file beside a wheelhouse, for machines without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path

import linkgauge

_OF_SPHINX = (".buildinfo", "objects.inv")


def pack(html: Path, folder: Path) -> Path:
    """The site as one file for machines without a network, in a folder of its own name."""
    name = f"linkgauge-docs-{linkgauge.__version__}"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in html.rglob("*") if path.is_file() and path.name not in _OF_SPHINX):
            archive.write(path, f"{name}/{path.relative_to(html)}")
    return folder / f"{name}.zip"
