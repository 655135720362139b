"""The locks: complete for every Python they are for, hashed, in one version each, and without a word of where from."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("build", "report", "test", "lint", "wheels", "docs")
PYTHONS = ("3.10.0", "3.11.7", "3.12.1", "3.13.0", "3.14.0")


def environment(python: str, machine: str) -> dict[str, str]:
    return {
        "python_version": ".".join(python.split(".")[:2]),
        "python_full_version": python,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": machine,
        "extra": "",
    }


def entries(name: str) -> list[tuple[Requirement, list[str]]]:
    """Each entry of a lock, with its hashes."""
    text = (ROOT / "locks" / f"{name}.txt").read_text().replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            requirement, *hashes = line.split(" --hash=")
            found.append((Requirement(requirement), [one.strip() for one in hashes]))
    return found


def versions(name: str, of: dict[str, str]) -> dict[str, str]:
    """What the lock `name` installs on one Python and machine."""
    found: dict[str, str] = {}
    for requirement, _ in entries(name):
        if requirement.marker is None or requirement.marker.evaluate(of):
            (exact,) = requirement.specifier
            assert exact.operator == "=="
            assert canonicalize_name(requirement.name) not in found, "one version for one Python"
            found[canonicalize_name(requirement.name)] = exact.version
    return found


@pytest.fixture(scope="module")
def lock() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lock", ROOT / "tools" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("python", PYTHONS)
def test_each_requirement_is_locked_within_its_bounds(lock: ModuleType, python: str, machine: str) -> None:
    of = environment(python, machine)
    together: dict[str, str] = {}
    wanted = lock.inputs()
    assert tuple(wanted) == NAMES
    for name, requirements in wanted.items():
        locked = versions(name, of)
        for text in requirements:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate(of):
                version = locked.get(canonicalize_name(requirement.name), "none")
                assert version in requirement.specifier, f"{text}: './lg lock' renews {name}.txt, which has {version}"
        for package, version in locked.items():
            assert together.setdefault(package, version) == version, f"{package} has two versions"


def test_each_entry_has_hashes_and_no_file_says_where_it_came_from() -> None:
    for name in NAMES:
        for requirement, hashes in entries(name):
            assert hashes, requirement
            assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes), requirement
        text = (ROOT / "locks" / f"{name}.txt").read_text()
        assert not re.search(r"//|@|--index|--find-links|[a-z]\.(org|com|io)\b", text)


def test_what_differs_from_the_locks_is_named(
    lock: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.txt").write_text("pytest==0.0.1 ; sys_platform == 'linux' \\\n    --hash=sha256:00\n")
    monkeypatch.setattr(lock, "LOCKS", tmp_path)
    found = lock.differences()
    assert [line for line in found if line.startswith(f"pytest {pytest.__version__} (locked: 0.0.1)")]
    assert [line for line in found if line.startswith("numpy ") and line.endswith("(locked: not)")]
    assert not [line for line in found if line.startswith(("linkgauge ", "pip "))]
