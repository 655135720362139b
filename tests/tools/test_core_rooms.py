"""What says that the core's includes go down only: true of core/, and false of a core with one that does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "core_rooms.py"


def found_in(root: Path) -> tuple[int, list[str]]:
    (root / "tools").mkdir(exist_ok=True)
    (root / "tools" / "core_rooms.py").write_text(TOOL.read_text())
    done = subprocess.run([sys.executable, str(root / "tools" / "core_rooms.py")], capture_output=True, text=True,
                          check=False)  # fmt: skip
    return done.returncode, done.stdout.splitlines()


def test_the_cores_own_includes_go_down() -> None:
    done = subprocess.run([sys.executable, str(TOOL)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_goes_up_is_named(tmp_path: Path) -> None:
    core = tmp_path / "core"
    texts = {"errors.h": "", "device/one.h": '#include "errors.h"\n', "device/two.cpp": '#include "one.h"\n',
             "transport/three.h": '#include <vector>\n#include "device/one.h"\n', "run/four.h": ""}  # fmt: skip
    for name, text in texts.items():
        (core / name).parent.mkdir(parents=True, exist_ok=True)
        (core / name).write_text(text)
    assert found_in(tmp_path) == (0, [])
    (core / "device/two.cpp").write_text('  #include "transport/three.h"\n')
    (core / "errors.h").write_text('#include "run/four.h"\n')
    (core / "cellar").mkdir()
    (core / "cellar/five.h").write_text("")
    status, lines = found_in(tmp_path)
    assert status == 1
    assert [line.split()[0] for line in lines] == ["core/cellar/five.h", "core/device/two.cpp", "core/errors.h"]
    assert "device is below transport" in lines[1]
    assert "base is below run" in lines[2]


def test_no_transport_includes_another(tmp_path: Path) -> None:
    core = tmp_path / "core"
    texts = {"transport/shared.h": "", "transport/net/worker.h": "", "transport/memory/kernel.h": "",
             "transport/net/ucx/ucx.cpp": '#include "transport/net/worker.h"\n#include "transport/shared.h"\n',
             "transport/nccl/ccl.cpp": '#include "transport/memory/kernel.h"\n',
             "operation/above.cpp": '#include "transport/memory/kernel.h"\n'}  # fmt: skip
    for name, text in texts.items():
        (core / name).parent.mkdir(parents=True, exist_ok=True)
        (core / name).write_text(text)
    assert found_in(tmp_path) == (0, [])
    (core / "transport/memory/copy.cpp").write_text('#include "transport/net/worker.h"\n')
    (core / "transport/shared.h").write_text('#include "transport/memory/kernel.h"\n')
    status, lines = found_in(tmp_path)
    assert status == 1
    assert lines == [
        'core/transport/memory/copy.cpp includes "transport/net/worker.h": transport/memory includes nothing of '
        "transport/net",
        'core/transport/shared.h includes "transport/memory/kernel.h": transport includes nothing of transport/memory',
    ]


def test_what_is_long_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "core/device").mkdir(parents=True)
    long = tmp_path / "core/device/long.cpp"
    long.write_text("\n" * 400)
    assert found_in(tmp_path) == (0, [])
    long.write_text("\n" * 401)
    assert found_in(tmp_path) == (
        1,
        ["core/device/long.cpp has 401 lines: expected up to 400, or a first line '// Long: ...'"],
    )
    long.write_text("// Long: it is.\n" + "\n" * 401)
    assert found_in(tmp_path) == (0, [])
