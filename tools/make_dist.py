"""Makes the files of a release: the sdist, and from it a wheel for each Python and processor that linkgauge supports.

Called by './lg dist DIR' in the checkout's private environment. The sdist is built from a checkout without changes, and
each wheel from the sdist alone, so that neither needs what a release lacks. One wheel serves Python 3.12 and newer;
3.10 and 3.11 have their own, where such a Python is on the path or among pyenv's. Zig compiles for both processors. A
core is compiled once for all Pythons. auditwheel and twine check the outcome.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from make_wheelhouse import EXIT_BAD_INPUT, ROOT, audited, compiler_for, fail, run

ARCHITECTURES = ("x86_64", "aarch64")
PYTHONS = ((10, 10), (11, 11), (12, 99))
"""Minor versions of Python, from and to: a wheel for each of these."""
_ASK = "import os, sys, sysconfig; print(sys.version_info[1], sys.executable, sysconfig.get_config_var('SOABI'))"


def pythons() -> dict[int, tuple[Path, str]]:
    """Return the Pythons that are here by minor version: each with its executable and its tag of extension modules."""
    roots = [Path.home() / ".pyenv" / "versions"]
    names = [sys.executable, *(f"python3.{minor}" for minor in range(PYTHONS[0][0], 20))]
    names += [str(path) for root in roots for path in sorted(root.glob("3.*/bin/python"))]
    found: dict[int, tuple[Path, str]] = {}
    for name in names:
        if (path := shutil.which(name)) is None:
            continue
        asked = subprocess.run([path, "-c", _ASK], check=False, capture_output=True, text=True)
        answer = asked.stdout.split()
        if asked.returncode == 0 and len(answer) == 3:
            found.setdefault(int(answer[0]), (Path(answer[1]), answer[2]))
    return found


def chosen() -> Iterator[tuple[int, Path, str]]:
    """Yield a Python for each wheel, and say which is not here."""
    here = pythons()
    for first, last in PYTHONS:
        fitting = [minor for minor in sorted(here) if first <= minor <= last]
        if fitting:
            yield (fitting[0], *here[fitting[0]])
        else:
            words = f"3.{first}" if first == last else f"3.{first} or newer"
            print(f"lg: no wheel for Python {words}: install one, and name it on the path", file=sys.stderr)


def commit_of(root: Path) -> str:
    """Return the checkout's commit; ends the program where it has changes."""
    if changed := run("git", ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"]).strip():
        fail(f"{changed.split()[1]} differs from the last commit: commit first, then './lg dist' again", EXIT_BAD_INPUT)
    return run("git", ["git", "-C", str(root), "rev-parse", "HEAD"]).strip()


def build_sdist(folder: Path) -> Path:
    """Build the sdist into `folder`, and return its path."""
    code = f"from scikit_build_core.build import build_sdist; print(build_sdist({str(folder)!r}))"
    return folder / run("the sdist", [sys.executable, "-c", code], folder_of_work=ROOT).splitlines()[-1]


def environment_of(python: Path, folder: Path) -> Path:
    """Make an environment with the locked packages that build; return its Python.

    pip's own would have packages of the wheel's processor, whose programs do not run here.
    """
    run(f"an environment of {python}", [python, "-m", "venv", folder])
    words = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes"]
    run("the installation of what builds", [folder / "bin/python", *words, "-r", ROOT / "locks" / "build.txt"])
    return folder / "bin" / "python"


def build_wheel(source: Path, raw: Path, architecture: str, python: tuple[int, Path, str], commit: str) -> Path:
    """Build a wheel of an unpacked sdist into `raw`, and return its path."""
    minor, executable, tag = python
    build = ROOT / "build" / "dist-work" / architecture
    core = build / "core" / "liblinkgauge_core.a"
    settings = {
        "build-dir": f"{build}/{minor}",
        "cmake.define.LINKGAUGE_UNITY": "ON",
        "cmake.define.LINKGAUGE_COMMIT": commit,
        # FindPython asks the interpreter, which is of this machine's processor: the compiler says which is meant.
        "cmake.define.CMAKE_SYSTEM_NAME": "Linux",
        "cmake.define.CMAKE_SYSTEM_PROCESSOR": architecture,
    }
    if core.is_file():
        settings["cmake.define.LINKGAUGE_CORE"] = str(core)
    words = [f"--config-settings={name}={value}" for name, value in settings.items()]
    environment = {
        **compiler_for(architecture),
        "_PYTHON_HOST_PLATFORM": f"linux-{architecture}",  # what the wheel's tag is made of
        "SETUPTOOLS_EXT_SUFFIX": "." + re.sub("x86_64|aarch64", architecture, tag) + ".so",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    before = set(raw.glob("*.whl"))
    run(
        f"the wheel for Python 3.{minor} on {architecture}",
        [executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", raw, *words, str(source)],
        environment,
    )
    if not core.is_file():
        core.parent.mkdir(parents=True)
        shutil.copy(build / str(minor) / "liblinkgauge_core.a", core)
    (built,) = set(raw.glob("*.whl")) - before
    return built


def write_recipes(folder: Path, sdist: Path) -> None:
    """Write the recipes of conda and Spack into `folder`, with the hash of the sdist."""
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    for path in (ROOT / "packaging" / "conda" / "recipe.yaml", ROOT / "packaging" / "spack" / "package.py"):
        text, count = re.subn(r"(sha256: |sha256=\")unknown", rf"\g<1>{digest}", path.read_text(encoding="utf-8"))
        assert count == 1, path
        (folder / path.name).write_text(text, encoding="utf-8")


def main() -> None:
    """Make the release's files in the folder named by the last argument."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        fail("'./lg dist' takes one folder", EXIT_BAD_INPUT)
    folder = Path(sys.argv[1]).resolve()
    commit = commit_of(ROOT)
    folder.mkdir(parents=True, exist_ok=True)
    if left := next(folder.glob("linkgauge-*"), None):
        fail(f"{left}: is of another release: name an empty folder", EXIT_BAD_INPUT)
    shutil.rmtree(ROOT / "build" / "dist-work", ignore_errors=True)
    sdist = build_sdist(folder)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with tarfile.open(sdist) as packed:
            packed.extractall(place, filter="data") if sys.version_info >= (3, 12) else packed.extractall(place)
        source = place / sdist.name.removesuffix(".tar.gz")
        for minor, executable, tag in chosen():
            python = minor, environment_of(executable, place / f"builds-{minor}"), tag
            for architecture in ARCHITECTURES:
                raw = place / f"{minor}-{architecture}"
                raw.mkdir()
                print(audited(build_wheel(source, raw, architecture, python, commit), folder, architecture), flush=True)
    files = sorted(map(str, folder.glob("linkgauge-*")))
    run("twine's check", [sys.executable, "-m", "twine", "check", "--strict", *files])
    write_recipes(folder, sdist)
    print(f"{len(files)} files for an index in {folder}, which twine finds valid, and recipes for conda and Spack")


if __name__ == "__main__":
    main()
