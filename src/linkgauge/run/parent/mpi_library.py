"""Find the MPI libraries of this machine, each with the launcher of its installation (docs/reference/support.md)."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sysconfig
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from linkgauge.errors import EnvironmentLackingError, UsageError, nearest
from linkgauge.run.launchers import in_allocation
from linkgauge.run.launchers.base import Launcher
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent.mpi_installation import installation, launcher_kind

# File names of libraries by vendor, the versioned first: a bare libmpi.so of a wheel is a text file.
_LIBRARY_NAMES = {
    "openmpi": ("libmpi.so.40", "libmpi.so.80", "libmpi.so"),
    "mpich": ("libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12", "libmpi_gnu.so.12", "libmpi.so"),
}
_WHEELS = {name: _LIBRARY_NAMES.get(name, _LIBRARY_NAMES["mpich"]) for name in ("mpich", "openmpi", "impi-rt")}
_DEBIAN_FOLDERS = ("openmpi/lib", "mpich/lib", "")


def _multiarch() -> str:
    return sysconfig.get_config_var("MULTIARCH") or f"{os.uname().machine}-linux-gnu"


def _names_under(kind: str) -> Sequence[str]:
    """File names of the libraries that a kind of launcher comes with."""
    return _LIBRARY_NAMES.get(kind, _LIBRARY_NAMES["mpich"])


def library_beside(launcher: Path, kind: str) -> Path | None:
    """The library of the installation that a launcher belongs to: its prefix's lib folders, then Debian's.

    Both the path as written and the one behind links are tried: a PATH entry may link into the prefix.
    """
    prefixes = (real.parent.parent for real in dict.fromkeys((launcher, launcher.resolve())))
    return next(filter(None, (library_in(prefix, _names_under(kind)) for prefix in prefixes)), None)


def library_in(prefix: Path, names: Sequence[str]) -> Path | None:
    """The first of `names` in a prefix's folders for libraries."""
    folders = [prefix / "lib", prefix / "lib64", prefix / "lib" / _multiarch()]
    folders += [folder / name for folder in list(folders) for name in _DEBIAN_FOLDERS if name]
    for name in names:
        for folder in folders:
            path = folder / name
            if path.is_file() and _is_elf(path):
                return path
    return None


def _is_elf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def launcher_beside(library: Path) -> Path | None:
    """The launcher of the installation that a library belongs to."""
    name = library.resolve().name
    suffixes = (".mpich", "") if "mpich" in name else (".openmpi", "") if name.startswith("libmpi.so.40") else ("",)
    prefixes = (prefix for real in dict.fromkeys((library, library.resolve())) for prefix in list(real.parents)[1:5])
    return next(filter(None, (_launcher_in(prefix, suffixes) for prefix in prefixes)), None)


def _launcher_in(prefix: Path, suffixes: Sequence[str] = ("",)) -> Path | None:
    """The first launcher in a prefix's folder for programs."""
    paths = (prefix / "bin" / f"{word}{suffix}" for suffix in suffixes for word in ("mpiexec", "mpirun"))
    return next((path for path in paths if os.access(path, os.X_OK) and path.is_file()), None)


def _wheel_files() -> Iterator[tuple[Path, Path, str]]:
    """(launcher, library, distribution) of the MPI wheels of this Python."""
    from importlib import metadata

    for distribution, names in _WHEELS.items():
        try:
            files = metadata.distribution(distribution).files or []
        except metadata.PackageNotFoundError:
            continue
        paths = [Path(str(file.locate())).resolve() for file in files if file.name in (*names, "mpiexec")]
        launcher = next((path for path in paths if path.name == "mpiexec" and path.parent.name == "bin"), None)
        library = next((path for name in names for path in paths if path.name == name and _is_elf(path)), None)
        if launcher is not None and library is not None:
            yield launcher, library, distribution


def _path_launchers() -> Iterator[Path]:
    seen = set()
    words = ("mpiexec", "mpirun", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra")
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for word in words:
            path = Path(folder) / word
            # Named once however many links lead to it; a multi-call binary keeps the name it is called by.
            real = path.resolve()
            if path.is_file() and os.access(path, os.X_OK) and real not in seen:
                seen.add(real)
                yield path


def _from_launcher(launcher: Path, source: str) -> MpiInstallation | None:
    kind = launcher_kind(launcher)
    # Of a launcher that does not say what it is, either family's: its problem is then told.
    library = next(filter(None, (library_beside(launcher, one) for one in ([kind] if kind else _LIBRARY_NAMES))), None)
    if library is None:
        return None
    return installation(library, launcher, kind, source)


def default_installation() -> MpiInstallation:
    """The one that a run uses unless told otherwise: the wheel of MPICH, else the first usable one found.

    EnvironmentLackingError where there is none, with the fix.
    """
    first = next(_wheel_files(), None)
    if first is not None:
        launcher, library, _ = first
        wheel = installation(library, launcher, launcher_kind(launcher), "wheel")
        if not wheel.problem:
            return wheel
    everything = find_all()
    for place, found in enumerate(everything):
        if not found.problem:
            return dataclasses.replace(found, passed_over=tuple((one.title, one.problem) for one in everything[:place]))
    why = f" ({everything[0].problem})" if everything else ""
    raise EnvironmentLackingError(
        f"no usable MPI library{why}: fix: pip install mpich, or --mpi PREFIX, or measure without one by --threads"
    )


def find_all() -> list[MpiInstallation]:
    """Every MPI installation of this machine, those that cannot be used with their problem. Names are unique.

    In the order in which a run tries them: those of wheels, of PATH, of environment modules.
    """
    jobs: list[tuple[Path, Path | None, str]] = [
        (launcher, library, "wheel") for launcher, library, _ in _wheel_files()
    ]
    known = {launcher.resolve() for launcher, _, _ in jobs}
    for launcher in _path_launchers():
        if launcher.resolve() not in known:
            jobs.append((launcher, None, "PATH"))
    for prefix in _module_prefixes():
        candidates = [prefix / "bin" / word for word in ("mpiexec", "mpirun")]
        jobs += [(path, None, "environment") for path in candidates if path.is_file() and path.resolve() not in known]

    def look(job: tuple[Path, Path | None, str]) -> MpiInstallation | None:
        launcher, library, source = job
        if library is None:
            return _from_launcher(launcher, source)
        return installation(library, launcher, launcher_kind(launcher), source)

    with ThreadPoolExecutor(max_workers=4) as pool:
        found = [one for one in pool.map(look, jobs) if one is not None]
    unique: dict[Path, MpiInstallation] = {}
    for one in found:
        known_one = unique.get(one.library.resolve())
        if known_one is None or (known_one.problem and not one.problem):  # of two launchers the one that works
            unique[one.library.resolve()] = one
    return _uniquely_named(list(unique.values()))


def _module_prefixes() -> Iterator[Path]:
    """Prefixes that environment modules of common sites set."""
    for name in ("MPI_HOME", "MPICH_DIR", "OMPI_DIR", "OPENMPI_ROOT", "I_MPI_ROOT", "CRAY_MPICH_DIR", "EBROOTOPENMPI"):
        value = os.environ.get(name)
        if value and Path(value).is_dir():
            yield Path(value)


def _uniquely_named(found: list[MpiInstallation]) -> list[MpiInstallation]:
    counts: dict[str, int] = {}
    named = []
    for one in found:
        counts[one.name] = counts.get(one.name, 0) + 1
        suffix = f"-{counts[one.name]}" if counts[one.name] > 1 else ""
        named.append(dataclasses.replace(one, name=one.name + suffix))
    return named


def resolve(asked: str) -> MpiInstallation:
    """The installation that `--mpi` names: a name of `linkgauge list mpi`, a prefix, a libmpi file or an mpiexec.

    UsageError, naming the path and what is wrong with it, where it is missing or broken.
    """
    path = Path(asked).expanduser().absolute()  # a launcher is started in another folder
    if "/" not in asked and not path.exists():
        which = shutil.which(asked)
        if which is not None:
            return _usable(asked, _of_launcher(Path(which)))
        return by_name(asked)
    if path.is_dir():
        return _usable(asked, _of_prefix(path))
    if not path.exists():
        raise UsageError(f"--mpi '{asked}': no such file or folder: expected a prefix, a libmpi file or an mpiexec")
    if os.access(path, os.X_OK) and ".so" not in path.name:
        return _usable(asked, _of_launcher(path))
    if not _is_elf(path):
        raise UsageError(f"--mpi '{asked}' is neither a library nor a launcher: expected a libmpi file or an mpiexec")
    launcher = launcher_beside(path)
    kind = launcher_kind(launcher) if launcher is not None else ""
    if launcher is None:
        launcher, kind = in_allocation() or (None, "")
    return _usable(asked, installation(path.absolute(), launcher, kind, "--mpi"))


def by_name(name: str) -> MpiInstallation:
    """The installation of a name of `linkgauge list mpi`, a vendor or a source. UsageError where there is none."""
    found = find_all()
    for one in found:
        if name in (one.name, one.vendor, one.source):
            return _usable(name, one)
    names = [one.name for one in found]
    here = ", ".join(names) or "none"
    raise UsageError(f"--mpi '{name}': no such MPI library{nearest(name, names)}: expected a path or one of {here}")


def _of_launcher(launcher: Path) -> MpiInstallation:
    kind = launcher_kind(launcher)
    if kind and not Launcher.registry[kind].starts:  # it starts any library
        default = default_installation()
        return dataclasses.replace(default, launcher=launcher, launcher_kind=kind, source="--mpi", problem="")
    if not kind:
        raise UsageError(
            f"--mpi '{launcher}' is not a launcher that is known: expected mpiexec of MPICH or Open MPI, or srun"
        )
    library = library_beside(launcher, kind)
    if library is None:
        raise UsageError(
            f"--mpi '{launcher}': no MPI library found in its installation: give the libmpi file or its prefix"
        )
    return installation(library, launcher, kind, "--mpi")


def _of_prefix(prefix: Path) -> MpiInstallation:
    if (launcher := _launcher_in(prefix)) is not None:
        kind = launcher_kind(launcher)
        if not kind:
            raise UsageError(f"--mpi '{prefix}': its {launcher.name} does not run or is of no known kind")
        library = library_in(prefix, _names_under(kind))
        if library is None:
            raise UsageError(f"--mpi '{prefix}': no libmpi in its lib folders: expected {prefix}/lib/libmpi.so.*")
        return installation(library, launcher, kind, "--mpi")
    library = library_in(prefix, (*_LIBRARY_NAMES["mpich"], *_LIBRARY_NAMES["openmpi"]))
    allocation = in_allocation()
    if library is not None and allocation is not None:
        return installation(library, *allocation, "--mpi")
    raise UsageError(f"--mpi '{prefix}' has no bin/mpiexec: expected the prefix of an MPI installation")


def _usable(asked: str, found: MpiInstallation) -> MpiInstallation:
    if found.problem:
        raise UsageError(f"--mpi '{asked}': {found.problem}")
    return found
