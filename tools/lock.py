"""Writes locks/: the exact versions, with hashes, of everything that './lg' installs, for Python 3.10 to 3.14.

Called by './lg lock'. A file for each thing that is set up, each complete in itself, all of one resolution: what
several hold, they hold in the same version. `pyproject.toml` keeps the minimum versions, and is what is resolved here.
'tools/lock.py --differences' tells which installed packages are of another version than locked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "locks"
EXIT_ENVIRONMENT = 5
_HEADER = "# Exact versions for Python 3.10 to 3.14 on Linux; written by './lg lock' from pyproject.toml.\n"
# What builds the package besides the requirements of pyproject.toml: pip fetches these where it isolates the build.
_BUILDERS = ("cmake", "ninja")


def inputs() -> dict[str, list[str]]:
    """The requirements of each lock: to build, to run with reports, and what './lg setup test|lint|wheels' adds."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    extras = project["project"]["optional-dependencies"]
    return {
        "build": [*project["build-system"]["requires"], *_BUILDERS],
        "report": [*project["project"]["dependencies"], *extras["report"]],
        **{name: extras[name] for name in extras if name != "report"},
    }


def locked(path: Path) -> Iterator[tuple[str, str]]:
    """(name, version) of each entry of a lock; a name occurs again where Pythons need different versions."""
    yield from re.findall(r"^([a-z0-9.-]+)==(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)


def resolve(requirements: Sequence[str], constraints: Path | None = None) -> str:
    """The locked lines of `requirements`, of the newest versions that `constraints`, another lock, allows."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.10",
               "--generate-hashes", "--no-header", "--no-annotate",
               "--cache-dir", str(ROOT / "build" / "uv")]  # fmt: skip
    if constraints is not None:
        command += ["--constraint", str(constraints)]
    done = subprocess.run(
        [*command, "-"], input="\n".join(requirements), cwd=ROOT, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        print(f"lg: cannot lock: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(EXIT_ENVIRONMENT)
    return done.stdout


def write_locks() -> None:
    """Resolves everything together, then writes each file from that resolution."""
    wanted = inputs()
    LOCKS.mkdir(exist_ok=True)
    together = LOCKS / "together.tmp"
    try:
        together.write_text(resolve([line for lines in wanted.values() for line in lines]), encoding="utf-8")
        for name, requirements in wanted.items():
            (LOCKS / f"{name}.txt").write_text(_HEADER + resolve(requirements, together), encoding="utf-8")
        print(f"{len(set(locked(together)))} packages locked in {LOCKS}")
    finally:
        together.unlink(missing_ok=True)


def differences() -> list[str]:
    """`name INSTALLED (locked: ...)` for each package installed here in no version of its lock; sorted."""
    versions: dict[str, set[str]] = {}
    for path in LOCKS.glob("*.txt"):
        for name, version in locked(path):
            versions.setdefault(name, set()).add(version)
    found = []
    for package in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()
        if name not in ("linkgauge", "pip", "setuptools") and package.version not in versions.get(name, set()):
            found.append(f"{name} {package.version} (locked: {', '.join(sorted(versions.get(name, ()))) or 'not'})")
    return sorted(found)


if __name__ == "__main__":
    if sys.argv[1:] == ["--differences"]:
        print("\n".join(differences()))
    else:
        write_locks()
