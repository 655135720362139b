"""The recipe of docs/architecture.md: a transport is a folder of the core and a line in its registry."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from thorough import thorough

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("c++")
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
MAIN = r"""
#include <cstdio>

#include "transport/registry.h"

#define LINKGAUGE_PRINTED(name) std::puts(#name);
int main() { LINKGAUGE_TRANSPORTS(LINKGAUGE_PRINTED) }
"""


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
    (tmp_path / "main.cpp").write_text(MAIN)
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
