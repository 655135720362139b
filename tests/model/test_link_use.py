"""Which links a case leaves idle: only where no library could have taken others."""

from __future__ import annotations

import pytest

from linkgauge.model.link_use import leaves_fabric_idle
from synthetic import make_case


@pytest.mark.parametrize(
    ("transport", "path", "idle"),
    [
        ("staging", "", True),
        ("copy_engine", "host", True),
        ("kernel", "pcie", True),
        ("kernel", "direct", False),
        ("copy_engine", "", False),
        ("ccl", "host", False),  # its kernels of symmetric memory know no such request
        ("mpi", "host", False),
    ],
)
def test_a_path_that_a_library_was_to_take_leaves_no_link_idle_for_sure(transport: str, path: str, idle: bool) -> None:
    assert leaves_fabric_idle(make_case(transport, "unidirectional", 1 << 20, path=path)) is idle
