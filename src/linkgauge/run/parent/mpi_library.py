"""Find the MPI libraries of this machine: a launcher and a library of one installation, with version and ABI.

What is known of each comes from the library itself, asked in a child process (a broken one may crash when it is
loaded). The parent never initializes MPI. See docs/architecture.md, MPI, for what each installation needs.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from linkgauge.children import NoAnswerError, output_of
from linkgauge.errors import EnvironmentLackingError, UsageError, nearest
from linkgauge.model.shape import flag, last_line, one_of, table, text
from linkgauge.plan.library_settings import dialect
from linkgauge.run.launchers import FAMILIES, in_allocation
from linkgauge.run.launchers.base import Launcher

_PROBE_TIMEOUT_S = 20
# Asked of the library before MPI_Init, which the standard allows for exactly these calls. ABI by marks of its own:
# Open MPI's handles are addresses of symbols; the standard ABI exports MPI_Abi_get_version and has no MPICH symbols.
_PROBE = """
import ctypes, json, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_LAZY | os.RTLD_LOCAL)
text, length = ctypes.create_string_buffer(16384), ctypes.c_int(0)
library.MPI_Get_library_version(text, ctypes.byref(length))
has = lambda name: hasattr(library, name)
if has("ompi_mpi_comm_world"):
    abi = "openmpi"
elif "libmpi_abi" in os.path.basename(sys.argv[1]):
    abi = "standard"
else:
    abi = "mpich"
print(json.dumps({"text": text.value.decode(errors="replace"), "abi": abi, "large_count": has("MPI_Send_c")}))
"""
_ANSWER = {"text": text, "abi": one_of(("openmpi", "standard", "mpich")), "large_count": flag}

# File names of libraries by vendor, the versioned first: a bare libmpi.so of a wheel is a text file.
_LIBRARY_NAMES = {
    "openmpi": ("libmpi.so.40", "libmpi.so.80", "libmpi.so"),
    "mpich": ("libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12", "libmpi_gnu.so.12", "libmpi.so"),
}
_WHEELS = {name: _LIBRARY_NAMES.get(name, _LIBRARY_NAMES["mpich"]) for name in ("mpich", "openmpi", "impi-rt")}
_VENDORS = {"mpich": "MPICH", "openmpi": "Open MPI", "intel": "Intel MPI", "cray": "Cray MPICH", "mvapich": "MVAPICH"}
_DEBIAN_FOLDERS = ("openmpi/lib", "mpich/lib", "")


@dataclasses.dataclass(frozen=True)
class MpiInstallation:
    """A launcher and a library that belong together.

    `problem` says in one sentence why it cannot be used; empty where it can.
    """

    name: str  # how --mpi and plan files name it: mpich-5.0.2, openmpi-4.1.4, ...
    vendor: str  # mpich | openmpi | intel | cray | mvapich | unknown
    version: str
    abi: str  # mpich | openmpi | standard
    library: Path
    launcher: Path | None
    launcher_kind: str  # of run/launchers/; empty where it is of none
    source: str  # where it was found: wheel, system, PATH, --mpi
    version_text: str = ""
    large_count: bool = False
    problem: str = ""
    passed_over: tuple[tuple[str, str], ...] = ()  # title and problem of those that would have been taken before it

    @property
    def title(self) -> str:
        """Its vendor's name, version and where it was found: `MPICH 5.0.2 (wheel)`."""
        known = _VENDORS.get(self.vendor, "")
        return f"{known} {self.version} ({self.source})" if known else f"{self.name} ({self.source})"

    @property
    def dialect(self) -> str:
        """Whose words its settings are in (plan/library_settings.py)."""
        return dialect(self.vendor, self.abi)

    @property
    def build(self) -> str:
        """What `launch_key` takes for the MPI build: the library's own words about itself, without its path."""
        return " ".join(self.version_text.split())[:200] or f"{self.vendor} {self.version}"


def launcher_kind(launcher: Path) -> str:
    """Which family a launcher is of, by its own --version; empty where it does not say.

    The name decides nothing: every family calls its launcher mpiexec.
    """
    for one in FAMILIES:
        if launcher.name in one.programs:
            return one.kind
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    try:
        done = output_of([str(launcher), "--version"], _PROBE_TIMEOUT_S, env=environment)
    except NoAnswerError:
        return ""
    said = (done.stdout + done.stderr).lower()
    return next((one.kind for one in FAMILIES if one.says and re.search(one.says, said)), "")


def _vendor_and_version(words: str) -> tuple[str, str]:
    patterns = (
        ("openmpi", r"Open MPI v?(\d[\w.]*)"),
        ("mvapich", r"MVAPICH\S*\s*Version\s*:\s*(\S+)"),
        ("cray", r"CRAY MPICH version\s*(\S+)"),
        ("intel", r"Intel\(R\) MPI Library (\S+)"),
        ("mpich", r"MPICH Version:\s*(\S+)"),
    )
    for vendor, pattern in patterns:
        match = re.search(pattern, words, re.IGNORECASE)
        if match:
            return vendor, match[1]
    return "unknown", ""


def ask_library(library: Path) -> tuple[dict[str, object], str]:
    """What a library says of itself, asked in a child process; and the problem, in one sentence, where it cannot."""
    try:
        done = output_of([sys.executable, "-I", "-c", _PROBE, str(library)], _PROBE_TIMEOUT_S)
    except NoAnswerError as why:
        return {}, f"the process that loads {library} {why}"
    if done.returncode < 0:
        return {}, f"{library} ended its process with signal {-done.returncode} when it was loaded"
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        return {}, f"{library} is not a usable MPI library: {said[-1] if said else 'no reason given'}"
    try:
        return last_line(done.stdout, table(_ANSWER, needed=_ANSWER), "what it says of itself"), ""
    except UsageError as wrong:
        return {}, f"{library} is not a usable MPI library: {wrong}"


def installation(library: Path, launcher: Path | None, kind: str, source: str) -> MpiInstallation:
    """The installation of a library and a launcher, with what the library says of itself."""
    said, problem = ask_library(library)
    words = str(said.get("text", ""))
    vendor, version = _vendor_and_version(words)
    abi = str(said.get("abi", ""))
    if not problem and abi == "standard":
        problem = "the standard MPI ABI needs an mpi4py that was built for it; the wheel of mpi4py was not"
    if not problem and launcher is None:
        problem = f"no launcher (mpiexec) of the same installation was found beside {library}"
    if not problem and kind and Launcher.registry[kind].starts and vendor not in Launcher.registry[kind].starts:
        problem = f"launcher {launcher} and library {library} are of different installations ({kind} and {vendor})"
    if not problem and not kind:
        problem = f"launcher {launcher} does not run, or is of no known kind: its --version names none"
    name = f"{vendor}-{version}" if version else library.name
    return MpiInstallation(
        name, vendor, version, abi, library, launcher, kind, source, words, bool(said.get("large_count")), problem
    )


def _multiarch() -> str:
    return sysconfig.get_config_var("MULTIARCH") or f"{os.uname().machine}-linux-gnu"


def _names_under(kind: str) -> Sequence[str]:
    """File names of the libraries that a kind of launcher comes with."""
    return _LIBRARY_NAMES.get(kind, _LIBRARY_NAMES["mpich"])


def library_beside(launcher: Path, kind: str) -> Path | None:
    """The library of the installation that a launcher belongs to: its prefix's lib folders, then Debian's.

    Both the path as written and the one behind links are tried: a PATH entry may link into the prefix.
    """
    for real in dict.fromkeys((launcher, launcher.resolve())):
        prefix = real.parent.parent
        found = library_in(prefix, _names_under(kind))
        if found is not None:
            return found
    return None


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
    for real in dict.fromkeys((library, library.resolve())):
        for prefix in list(real.parents)[1:5]:
            for suffix in suffixes:
                for word in ("mpiexec", "mpirun"):
                    path = prefix / "bin" / f"{word}{suffix}"
                    if os.access(path, os.X_OK) and path.is_file():
                        return path
    return None


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
    for word in ("mpiexec", "mpirun"):
        launcher = prefix / "bin" / word
        if launcher.is_file() and os.access(launcher, os.X_OK):
            kind = launcher_kind(launcher)
            if not kind:
                raise UsageError(f"--mpi '{prefix}': its {word} does not run or is of no known kind")
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
