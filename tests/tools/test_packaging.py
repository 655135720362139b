"""Packaging says what pyproject.toml says: the sdist's files, and the recipes of other package managers."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from thorough import thorough

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
CONDA_NAMES = {"duckdb": "python-duckdb"}
# Spack's MPI is one that the user has; its DuckDB has no Python package.
SPACK_LACKS = {"mpich", "duckdb"}
Least = dict[str, str]


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def least(requirements: list[str]) -> Least:
    """Requirements such as "numpy>=1.26" by name."""
    found = dict(re.fullmatch(r"([\w-]+)>=([\d.]+)", line).groups() for line in requirements)  # type: ignore[union-attr]
    assert len(found) == len(requirements)
    return found


def conda(section: str, until: str) -> Least:
    text = (PACKAGING / "conda" / "recipe.yaml").read_text()
    lines = text.partition(f"  {section}:")[2].partition(f"\n{until}")[0]
    return dict(re.findall(r"^    - ([\w-]+) >=([\d.]+)$", lines, re.MULTILINE))


def spack(kind: str) -> Least:
    text = (PACKAGING / "spack" / "package.py").read_text()
    found = re.findall(r'depends_on\("(?:py-)?([\w-]+)@([\d.]+):", type=(.*?)\)\n', text)
    return {name: version for name, version, of in found if kind in of}


def test_condas_recipe_requires_what_pip_does(pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    python = {"python": project["requires-python"].removeprefix(">=")}
    assert conda("run", "  run_constraints") == least(project["dependencies"]) | python
    report = least(project["optional-dependencies"]["report"])
    assert conda("run_constraints", "\ntests") == {CONDA_NAMES.get(name, name): at for name, at in report.items()}
    # A version would make one package, for the channel's newest Python alone.
    assert conda("host", "  run") == least(pyproject["build-system"]["requires"])
    text = (PACKAGING / "conda" / "recipe.yaml").read_text()
    assert f"- cmake {pyproject['tool']['scikit-build']['cmake']['version']}" in text
    assert f'match(python, "<{python["python"]}")' in text
    assert re.search("^  host:\n    - python(  #.*)?$", text, re.MULTILINE)
    for line in (f"  version: {project['version']}", f"  summary: {project['description']}",
                 f"  license: {project['license']}", f"  name: {project['name']}"):  # fmt: skip
        assert line in text.splitlines()


def test_spacks_package_requires_what_pip_does(pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    every = project["dependencies"] + project["optional-dependencies"]["report"]
    wanted = {name: at for name, at in least(every).items() if name not in SPACK_LACKS}
    python = {"python": project["requires-python"].removeprefix(">=")}
    assert spack("run") == wanted | python
    cmake = {"cmake": pyproject["tool"]["scikit-build"]["cmake"]["version"].removeprefix(">=")}
    assert spack("build") == least(pyproject["build-system"]["requires"]) | python | cmake
    text = (PACKAGING / "spack" / "package.py").read_text()
    assert f'version("{project["version"]}"' in text
    assert f'pypi = "linkgauge/linkgauge-{project["version"]}.tar.gz"' in text
    assert project["description"] in " ".join(text.split())


@pytest.mark.parametrize("name", ["Dockerfile", "linkgauge.def"])
def test_images_install_the_wheels_alone_and_name_libraries_by_what_brings_them(name: str) -> None:
    text = (PACKAGING / name).read_text()
    assert "pip install --no-cache-dir --no-index --find-links /wheels 'linkgauge[report]'" in text
    hints = "".join(path.read_text() for path in (ROOT / "src" / "linkgauge" / "model").glob("*.py"))
    named = re.search(r'LIBRARIES="([^"]+)"', text)
    assert named is not None
    assert named[1].split()[0] in hints


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this checkout, unpacked."""
    pytest.importorskip("scikit_build_core")
    folder = tmp_path_factory.mktemp("sdist")
    code = f"from scikit_build_core.build import build_sdist; build_sdist({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as file:
        file.extractall(folder)
    return folder / packed.name.removesuffix(".tar.gz")


@thorough("./lg dist checks what it makes")
def test_the_sdist_holds_what_is_built_and_no_more(sdist: Path) -> None:
    files = {str(path.relative_to(sdist)) for path in sdist.rglob("*") if path.is_file()}
    tops = {name.partition("/")[0] for name in files}
    assert tops == {"CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "core", "docs", "pyproject.toml", "src"}
    assert {name.rpartition("/")[0] for name in files if name.startswith("docs/")} == {"docs/man"}
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "core", "src",
                             "docs/man"], check=True,
                            capture_output=True, text=True)  # fmt: skip
    assert {name for name in files if "/" in name} == set(listed.stdout.split())


@thorough("releases are built from it")
def test_the_sdist_configures_without_benchmarks_tests_and_pages(sdist: Path, tmp_path: Path) -> None:
    cmake = Path(sys.executable).with_name("cmake")
    command = [cmake if cmake.exists() else "cmake", "-S", str(sdist), "-B", str(tmp_path), "-G", "Ninja",
               f"-DPython_EXECUTABLE={sys.executable}", "-DLINKGAUGE_COMMIT=abcdef"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"commit": "abcdef"' in (tmp_path / "_built.json").read_text()
