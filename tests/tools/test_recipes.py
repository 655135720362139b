"""The recipes of docs/architecture.md, followed in a copy of the program: what each adds, and that it then works."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from linkgauge.run.parent.mpi_library import default_installation
from thorough import thorough

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("c++")
_core = pytest.importorskip("linkgauge._core", reason="the core is not built")

FINDING = '''
"""Whether a run has results."""

from collections.abc import Iterable

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Finding
from linkgauge.findings.rule import rule


@rule("that a run has results")
def shouted(facts: Facts) -> Iterable[Finding]:
    """A note for each run."""
    yield Finding("shouted", "note", "the run", f"{len(facts.measures)} results shout.", (), 0.9, "linkgauge doctor")
'''
LAUNCHER = '''
"""A launcher of a test."""

from linkgauge.run.launchers.base import Launcher, LaunchRequest


class Shout(Launcher):
    """`shout`, which starts ranks of any library."""

    kind = "shout"
    word = "shout"
    programs = ("shout",)

    def command(self, request: LaunchRequest) -> list[str]:
        """Return shout N."""
        assert self.mpi is not None
        return [str(self.mpi.launcher), str(request.ranks), *request.command]
'''
READER = '''
"""Lines 'SHOUT ranks size microseconds' of an allreduce."""

import re

from linkgauge.exchange.imported import ImportedCase, make_case
from linkgauge.exchange.readers.base import Reader


def read_text(lines, log, hints):
    """Take each line's case."""
    for line in lines:
        _, ranks, size, us = line.text.split()
        case = make_case("ccl", "allreduce", int(size), range(int(ranks)))
        log.table("shout").add(line.number, ImportedCase(case, ((float(us) * 1e3, 1),), evidence={}, operations=1))


Reader("shout", re.compile("SHOUT "), read_text).register()
'''
THRESHOLDS = '''
def _shout(text: str, path: Path) -> Iterator[Bar]:
    """Bus bandwidth of an allreduce in GB/s: SHOUT 460."""
    for rate in re.findall(r"SHOUT (\\d+)", text):
        yield Bar(f"SHOUT {rate}", float(rate) * GB, system="hgx-h100-8")


'''
DIMENSION = """    mood: str = field(default="calm", metadata=row(
        Part.TIMING, Says.HOW, "Mood of the ranks.", one_of(("calm", "loud")), later=True, core=""))
"""
PATTERN = """    PatternTraits(
        "ring_shout", "from each to the next, loudly", "message", "slowest",
        _whole, _one, _whole, _each,
        collective=True, algorithm_factor=_one, routed=True, link_ways="both", legs=_all_ranks),
"""
SCHEDULES = r"""
#include <cstdio>

#include "base/patterns.h"
#include "traffic/schedule.h"

int main() {
  using namespace linkgauge;
  Traffic traffic;
  traffic.pattern = Pattern::kRingShout;
  traffic.size_bytes = 8;
  for (int rank = 0; rank < 3; ++rank) {
    const Schedule schedule = schedule_of(traffic, 3, rank);
    for (const Step& step : schedule.steps)
      if (step.source == rank) std::printf("%d %d %zu\n", step.source, step.target, step.bytes);
  }
}
"""

ECHO = r"""
#include "transport/options.h"
#include "transport/registry.h"

namespace linkgauge {
namespace {

enum class Loudness { kPlain, kLoud };
constexpr VariantWord<Loudness> kWords[] = {{"plain", Loudness::kPlain}, {"loud", Loudness::kLoud}};
constexpr Variants<Loudness> kVariants{"echo", kWords};

class EchoTransport final : public Transport {
 public:
  std::string_view name() const override { return "echo"; }
  std::vector<std::string_view> variants() const override { return kVariants.names(); }
  std::string supports(const RankContext&, const CaseSpec& spec) const override {
    if (!kVariants.read(spec.mechanism.variant)) return kVariants.why_not(spec.mechanism.variant);
    return why_no_algorithm(name(), spec.mechanism);
  }
};

}  // namespace

std::unique_ptr<Transport> make_echo_transport() { return std::make_unique<EchoTransport>(); }

}  // namespace linkgauge
"""
TRANSPORTS = r"""
#include <cstdio>

#include "transport/registry.h"

#define LINKGAUGE_PRINTED(name) std::puts(#name);
int main() { LINKGAUGE_TRANSPORTS(LINKGAUGE_PRINTED) }
"""


class Copy:
    """The program's Python in a folder of a test, over the core that is built."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "linkgauge"
        shutil.copytree(ROOT / "src/linkgauge", self.package, ignore=shutil.ignore_patterns("__pycache__"))
        core = Path(_core.__file__)
        (self.package / core.name).symlink_to(core)
        # A checkout's installation is a finder of modules, which would come before PYTHONPATH.
        (folder / "sitecustomize.py").write_text(
            "import sys\nsys.meta_path[:] = [one for one in sys.meta_path if not hasattr(one, 'known_source_files')]\n"
        )

    def changed(self) -> list[str]:
        """Files that differ from the program's, or that it does not have."""
        mine = list(self.package.rglob("*.py"))
        theirs = [ROOT / "src/linkgauge" / path.relative_to(self.package) for path in mine]
        return [
            str(path.relative_to(self.package))
            for path, other in zip(mine, theirs, strict=True)
            if not other.exists() or not filecmp.cmp(path, other, shallow=False)
        ]

    def run(self, cwd: Path, *words: str, **environment: str) -> str:
        """The standard output of `linkgauge` with these words; it must end with status 0."""
        done = subprocess.run(
            [sys.executable, "-m", "linkgauge", *words], cwd=cwd, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(self.package.parent), **environment},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def replace(self, file: str, old: str, new: str) -> None:
        text = (self.package / file).read_text()
        assert text.count(old) == 1
        (self.package / file).write_text(text.replace(old, new))


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path / "copy")


HERE = ("run", "--devices", "host:2", "--stop-samples", "5", "--out", "run", "--no-report")


@thorough("the rules that there are are found in the same way")
def test_a_finding_is_one_file(copy: Copy, tmp_path: Path) -> None:
    (copy.package / "findings/shouting.py").write_text(FINDING)
    said = copy.run(tmp_path, "findings", "--notes", str(ROOT / "src/linkgauge/demo"))
    assert "results shout" in said
    assert copy.changed() == ["findings/shouting.py"]


@thorough("the launchers that there are are found in the same way")
def test_a_launcher_is_one_file(copy: Copy, tmp_path: Path) -> None:
    (copy.package / "run/launchers/shout.py").write_text(LAUNCHER)
    program = tmp_path / "shout"
    mpiexec = default_installation().launcher
    program.write_text(f'#!/bin/sh\nranks=$1; shift\ntouch {tmp_path}/shouted\nexec {mpiexec} -n "$ranks" "$@"\n')
    program.chmod(0o755)
    small = ("--transport", "staging", "--pattern", "pingpong", "--size", "8", "--ranks", "2")
    copy.run(tmp_path, *HERE, *small, "--mpi", str(program))
    assert (tmp_path / "shouted").exists()
    assert copy.changed() == ["run/launchers/shout.py"]


@thorough("the dimensions that there are are declared in the same way")
def test_a_dimension_is_a_field(copy: Copy, tmp_path: Path) -> None:
    before = "    window: int = field("
    copy.replace("model/case.py", before, DIMENSION + before)
    (tmp_path / "plan.toml").write_text(
        '[[case]]\ntransport = "staging"\npattern = "pingpong"\nsize = "8"\nranks = 2\nmood = ["calm", "loud"]\n'
    )
    copy.run(
        tmp_path,
        "run",
        "--plan",
        "plan.toml",
        "--devices",
        "host:2",
        "--stop-samples",
        "5",
        "--out",
        "run",
        "--no-report",
    )
    stored = json.loads(copy.run(tmp_path, "show", "run", "--json"))
    assert {row["mood"] for row in stored} == {"calm", "loud"}
    assert "--mood" in copy.run(tmp_path, "run", "--help-all")
    assert copy.changed() == ["model/case.py"]


@thorough("the readers that there are are found in the same way")
def test_a_reader_is_one_file(copy: Copy, tmp_path: Path) -> None:
    (copy.package / "exchange/readers/shout.py").write_text(READER)
    (tmp_path / "shout.log").write_text("SHOUT 4 1048576 25.0\nSHOUT 4 2097152 50.0\n")
    copy.run(tmp_path, "import", "shout.log", "--out", "run")
    stored = json.loads(copy.run(tmp_path, "show", "run", "--json"))
    assert [row["size"] for row in stored] == [1 << 20, 1 << 21]
    assert copy.changed() == ["exchange/readers/shout.py"]


@thorough("the forms that there are are rows of the same table")
def test_a_form_of_thresholds_is_a_reader_in_the_table(copy: Copy, tmp_path: Path) -> None:
    copy.replace("exchange/bar_files.py", "\n_FORMS: ", THRESHOLDS + "_FORMS: ")
    last = "    (lambda text, path: _DCGM.search(text) is not None, _dcgm),\n"
    copy.replace("exchange/bar_files.py", last, last + '    (lambda text, path: text.startswith("SHOUT"), _shout),\n')
    (tmp_path / "loud.txt").write_text("SHOUT 460\n")
    (judged,) = json.loads(copy.run(tmp_path, "bars", "loud.txt", "--json"))
    assert (judged["bar"]["text"], judged["bar"]["value"]) == ("SHOUT 460", 460e9)
    assert copy.changed() == ["exchange/bar_files.py"]


@thorough("the patterns that there are are rows of the same tables")
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_a_pattern_is_a_row_of_each_table(copy: Copy, tmp_path: Path) -> None:
    before = """    PatternTraits(
        "one_to_all","""
    copy.replace("model/patterns.py", before, PATTERN + before)
    assert "ring_shout" in copy.run(tmp_path, "list", "patterns")
    assert copy.changed() == ["model/patterns.py"]

    core = tmp_path / "core"
    for room in ("base", "traffic", "kernels"):
        shutil.copytree(ROOT / "core" / room, core / room)
    rows = core / "base/patterns.h"
    text = rows.read_text().replace("  kGemm,\n", "  kGemm,\n  kRingShout,\n")
    last = 'row(Pattern::kGemm, "gemm", kDevice, kLanes),\n'
    assert last in text
    row = 'row(Pattern::kRingShout, "ring_shout", kMessages, kSlowest, {.as = Pattern::kRingShift}),\n'
    rows.write_text(text.replace(last, last + row))
    (tmp_path / "main.cpp").write_text(SCHEDULES)
    sources = [*core.glob("base/*.cpp"), *core.glob("traffic/*.cpp"), tmp_path / "main.cpp"]
    program = tmp_path / "steps"
    subprocess.run(
        [str(COMPILER), "-std=c++20", f"-I{core}", *map(str, sources), "-o", str(program), "-ldl", "-pthread"],
        check=True,
    )
    steps = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.splitlines()
    assert steps == ["0 1 8", "1 2 8", "2 0 8"]


@thorough("the transports that there are are added in the same way")
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_a_transport_is_a_folder_and_a_line(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "core", tmp_path / "core")
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    registry = tmp_path / "core/transport/registry.h"
    listed = registry.read_text().replace("TRANSPORT(mpi)", "TRANSPORT(mpi) TRANSPORT(echo)")
    registry.write_text(listed)
    echo = tmp_path / "core/transport/echo/echo.cpp"
    echo.parent.mkdir()
    echo.write_text(ECHO)
    (tmp_path / "main.cpp").write_text(TRANSPORTS)
    compile_one = [str(COMPILER), "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path / 'core'}"]
    for source in (echo, tmp_path / "core/transport/transport.cpp"):  # the table's own file has it too
        subprocess.run([*compile_one, "-fsyntax-only", str(source)], check=True)
    program = tmp_path / "main"
    subprocess.run([*compile_one, str(tmp_path / "main.cpp"), "-o", str(program)], check=True)
    names = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
    assert names[-2:] == ["mpi", "echo"]
    rooms = subprocess.run([sys.executable, str(tmp_path / "tools/core_rooms.py")], capture_output=True, text=True,
                           check=False)  # fmt: skip
    assert (rooms.returncode, rooms.stdout) == (0, "")
