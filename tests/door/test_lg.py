"""The checkout's door: what it installs and builds and when, and the one line it says where it cannot.

The script runs whole, in a checkout of a few files, on a path where Python, the compiler, `id` and the package managers
are stand-ins that write down how they were called.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

# Answers as a Python of version $FAKE_MINOR would; a venv made by it holds itself and a `linkgauge` that echoes.
FAKE_PYTHON = r"""#!/bin/sh
case "$*" in
  *version_info*) echo "3 ${FAKE_MINOR:-11} $0" ;;
  *"import ensurepip, venv"*) [ ! -e "$CALLS.no_venv" ] ;;
  *"-m venv"*)
    for last; do :; done
    mkdir -p "$last/bin" && cp "$0" "$last/bin/python"
    printf '#!/bin/sh\necho "linkgauge $*"\n' >"$last/bin/linkgauge" && chmod +x "$last/bin/linkgauge" ;;
  *"-m pip"*)
    echo "pip $*" >>"$CALLS"
    if [ -n "${PIP_SAYS:-}" ]; then echo "$PIP_SAYS"; exit 1; fi ;;
  *"-m _site"*) echo "site $*" >>"$CALLS" ;;
  "- "*) cat >/dev/null; echo scikit-build-core ;;
esac
"""
FAKE_COMPILER = '#!/bin/sh\ncat >/dev/null\n[ ! -e "$CALLS.no_compiler" ]\n'
FAKE_MANAGER = '#!/bin/sh\necho "$(basename "$0") $*" >>"$CALLS"\nrm -f "$CALLS.no_compiler" "$CALLS.no_venv"\n'
TOOLS = (
    "basename cat chmod cp cut date dirname env find flock grep head mkdir mktemp readlink rm sh sha256sum sort tail "
    "xargs"
)


class Door:
    """A checkout with `lg`, and the stand-ins on its path."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.path = folder / "bin"
        self.calls_file = folder / "calls"
        for made in (self.checkout / "core", self.checkout / "src" / "linkgauge", self.path):
            made.mkdir(parents=True)
        shutil.copy(ROOT / "lg", self.checkout / "lg")
        (self.checkout / "pyproject.toml").write_text("[build-system]\n")
        (self.checkout / "CMakeLists.txt").write_text("")
        (self.checkout / "locks").mkdir()
        for lock in ("build", "report", "test", "lint", "wheels", "docs"):
            (self.checkout / "locks" / f"{lock}.txt").write_text(f"{lock}==1 --hash=sha256:00\n")
        (self.checkout / "core" / "clock.cpp").write_text("int one() { return 1; }\n")
        (self.checkout / "src" / "linkgauge" / "__init__.py").write_text("")
        for tool in TOOLS.split():
            found = shutil.which(tool)
            if found is not None:
                (self.path / tool).symlink_to(found)
        self.stand_in("python3", FAKE_PYTHON)
        self.stand_in("c++", FAKE_COMPILER)
        self.be_user(0)

    def stand_in(self, name: str, script: str) -> None:
        """Puts a program on the path."""
        (self.path / name).write_text(script)
        (self.path / name).chmod(0o755)

    def be_user(self, number: int) -> None:
        """Makes `id -u` say `number`."""
        self.stand_in("id", f"#!/bin/sh\necho {number}\n")

    def lack(self, what: str) -> None:
        """Makes `compiler` or `venv` missing until a package manager is called."""
        Path(f"{self.calls_file}.no_{what}").touch()

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs './lg ARGUMENTS'."""
        environment = {"PATH": str(self.path), "CALLS": str(self.calls_file), "HOME": str(self.checkout), **variables}
        return subprocess.run(
            [self.checkout / "lg", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    def take_calls(self) -> list[str]:
        """The calls written down since the last time."""
        if not self.calls_file.exists():
            return []
        calls = self.calls_file.read_text().splitlines()
        self.calls_file.unlink()
        return calls


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


def test_the_first_call_sets_up_and_the_next_only_runs(door: Door) -> None:
    first = door.run("list", "devices", "a b")
    assert (first.returncode, first.stdout) == (0, "linkgauge list devices a b\n"), first.stderr
    dependencies, linkgauge = door.take_calls()
    assert dependencies.endswith("--require-hashes -r locks/build.txt -r locks/report.txt")
    assert "--no-index" in linkgauge
    assert linkgauge.endswith(f"-e {door.checkout}[report,report]")
    second = door.run("list")
    assert (second.returncode, second.stdout, second.stderr) == (0, "linkgauge list\n", "")
    assert door.take_calls() == []


def test_what_is_built_again_follows_what_changed(door: Door) -> None:
    door.run("list")
    door.take_calls()
    package = door.checkout / "src" / "linkgauge"
    (package / "__init__.py").write_text("VALUE = 1\n")
    door.run("list")
    assert door.take_calls() == [], "Python sources are used where they lie"
    (package / "added.py").write_text("")
    door.run("list")
    assert [("--no-deps" in call) for call in door.take_calls()] == [True], "a new module has to be made known"
    (door.checkout / "core" / "clock.cpp").write_text("int one() { return 2; }\n")
    door.run("list")
    assert [("--no-deps" in call) for call in door.take_calls()] == [True]
    (door.checkout / "pyproject.toml").write_text("[build-system]\n# another dependency\n")
    door.run("list")
    assert [("--no-deps" in call) for call in door.take_calls()] == [False, False]


def test_each_part_is_installed_as_locked_and_a_changed_lock_anew(door: Door) -> None:
    assert door.run("setup", "test,lint").returncode == 0
    dependencies, linkgauge = door.take_calls()
    locks = ("build", "report", "test", "lint")
    assert dependencies.endswith("--require-hashes" + "".join(f" -r locks/{lock}.txt" for lock in locks))
    assert linkgauge.endswith("[report,test,lint]")
    for again in (("list",), ("setup", "test"), ("setup", "lint")):
        assert door.run(*again).returncode == 0
    assert door.take_calls() == []
    (door.checkout / "locks" / "test.txt").write_text("test==2 --hash=sha256:00\n")
    assert door.run("list").returncode == 0
    assert len(door.take_calls()) == 2


def test_the_site_is_made_by_a_python_that_its_tools_have(door: Door) -> None:
    done = door.run("docs", FAKE_MINOR="10")
    assert done.returncode == 5
    assert "the site needs Python 3.11" in done.stderr
    assert door.take_calls() == []
    assert door.run("docs", "--approve").returncode == 0
    *installed, made = door.take_calls()
    assert "-r locks/docs.txt" in installed[0]
    assert made.endswith("-m _site --approve")


def test_the_newest_of_everything_stays_until_the_next_setup(door: Door) -> None:
    door.run("list")
    door.take_calls()
    assert door.run("setup", "--newest", "test").returncode == 0
    calls = door.take_calls()
    assert len(calls) == 2
    assert not [call for call in calls if "--require-hashes" in call or "--no-index" in call or "--upgrade" not in call]
    assert door.run("list").returncode == 0
    assert door.take_calls() == []
    assert door.run("setup").returncode == 0
    assert ["--require-hashes" in call for call in door.take_calls()] == [True, False]


def test_a_checkout_that_was_moved_is_set_up_anew(door: Door) -> None:
    door.run("list")
    door.take_calls()
    moved = door.checkout.with_name("moved")
    door.checkout.rename(moved)
    door.checkout = moved
    assert door.run("list").returncode == 0
    assert len(door.take_calls()) == 2


def test_it_runs_by_a_link_from_another_folder(door: Door, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(door.checkout / "lg")
    environment = {"PATH": str(door.path), "CALLS": str(door.calls_file)}
    done = subprocess.run(
        [tmp_path / "link", "x"], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "linkgauge x\n"), done.stderr
    assert (door.checkout / ".venv").is_dir()


def test_a_build_that_failed_is_tried_again(door: Door) -> None:
    failed = door.run("list", PIP_SAYS="error: ninja: build stopped")
    assert failed.returncode == 5
    assert "ninja: build stopped" in failed.stderr.splitlines()[-1]
    door.take_calls()
    assert door.run("list").returncode == 0
    assert len(door.take_calls()) == 2


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("apt-get", "apt-get update && apt-get install -y python3.11-venv g++"),
        ("dnf", "dnf install -y python3.11-devel gcc-c++"),
        ("zypper", "zypper --non-interactive install python311-devel gcc13-c++"),
    ],
)
def test_what_is_missing_is_one_command(door: Door, manager: str, command: str) -> None:
    door.stand_in(manager, FAKE_MANAGER)
    door.lack("compiler")
    door.lack("venv")
    door.be_user(1000)
    refused = door.run("run")
    assert refused.returncode == 5
    assert refused.stderr.splitlines() == [
        f"lg: missing: the venv module of {door.path}/python3, a C++20 compiler; install with: sudo sh -c '{command}'"
    ]
    assert door.take_calls() == [], "it may not install, and does not try"
    door.be_user(0)
    assert door.run("run").returncode == 0
    assert [call for call in door.take_calls() if not call.startswith("pip")] == command.split(" && ")


def test_without_a_package_manager_it_says_what_is_missing(door: Door) -> None:
    door.lack("compiler")
    done = door.run("run")
    assert done.returncode == 5
    assert done.stderr.splitlines() == [
        "lg: missing: a C++20 compiler; neither apt, dnf nor zypper is here to name the package"
    ]


def test_an_old_python_is_none(door: Door) -> None:
    door.stand_in("apt-get", FAKE_MANAGER)
    door.be_user(1000)
    done = door.run("run", FAKE_MINOR="9")
    assert done.returncode == 5
    assert "Python 3.10 or newer" in done.stderr
    assert "python3 python3-venv python3-dev" in done.stderr
    named = door.run("run", FAKE_MINOR="9", PYTHON="python3")
    assert (named.returncode, named.stderr) == (5, "lg: PYTHON=python3 is Python 3.9; 3.10 or newer is needed\n")


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            "NewConnectionError: Failed to establish: [Errno -3] Temporary failure in name resolution",
            "cannot be reached",
        ),
        ("SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed')", "PIP_CERT"),
        ("ERROR: Could not find a version that satisfies the requirement numpy", "requirement numpy"),
    ],
)
def test_pips_failure_is_one_line_with_its_cause(door: Door, said: str, cause: str) -> None:
    done = door.run("run", PIP_SAYS=said)
    assert done.returncode == 5
    errors = [line for line in done.stderr.splitlines() if "cannot install" in line]
    assert len(errors) == 1
    assert cause in errors[0]


def test_its_own_help_needs_no_set_up(door: Door) -> None:
    done = door.run()
    assert done.returncode == 0
    assert "./lg test" in done.stdout
    assert not (door.checkout / ".venv").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("wheels",),
        ("wheels", "a", "b"),
        ("setup", "everything"),
        ("setup", "test,everything"),
        ("setup", "--newest", "all"),
    ],
)
def test_bad_arguments_are_named_before_any_work(door: Door, arguments: tuple[str, ...]) -> None:
    done = door.run(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert door.take_calls() == []


def test_a_read_only_checkout_is_named(door: Door) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes to read-only folders")
    door.checkout.chmod(0o555)
    done = door.run("run")
    door.checkout.chmod(0o755)
    assert done.returncode == 5
    assert "not writable" in done.stderr
