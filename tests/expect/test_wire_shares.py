"""Payload over wire by the byte counters that four H200 showed in two runs (docs/results/h200.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import linkgauge.system as systems
from linkgauge.expect import limits
from linkgauge.expect.wire_shares import BOTH_WAYS, INTO, ONE_WAY, OUT, WireShare, counted_share, shares_of
from results import observation_of, result_of, results_of

_COLUMNS = ("case_key", "launch", "repeat", "attempt", "rank", "subject", "moment", "name", "value")


@pytest.fixture(scope="module")
def recorded() -> list[WireShare]:
    data = json.loads(Path(__file__).with_name("h200_counters.json").read_text(encoding="utf-8"))
    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in data["observations"]]
    order = list(dict.fromkeys(row["case_key"] for row in rows))  # the extract has no times
    for row in rows:
        row["when_ns"] = 2 * order.index(row["case_key"]) + (row["moment"] == "after")
    return shares_of(results_of(data["cases"]), map(observation_of, rows))


def share(found: list[WireShare], transport: str, pattern: str, direction: str) -> float:
    (one,) = {s.share for s in found if (s.transport, s.pattern, s.direction) == (transport, pattern, direction)}
    return one


def test_nvlink_by_data_and_raw_bytes(recorded: list[WireShare]) -> None:
    """One way 1.064 and 1.13 raw bytes a byte of data; both ways at once more. Copies of tuning change nothing."""
    assert share(recorded, "copy_engine", "unidirectional", ONE_WAY) == pytest.approx(0.939, abs=0.001)
    assert share(recorded, "kernel", "unidirectional", ONE_WAY) == pytest.approx(0.887, abs=0.001)
    assert share(recorded, "copy_engine", "alltoall", BOTH_WAYS) == pytest.approx(0.925, abs=0.001)
    assert share(recorded, "ccl", "allreduce", BOTH_WAYS) == pytest.approx(0.851, abs=0.001)


def test_pcie_is_as_its_packets_say(recorded: list[WireShare]) -> None:
    """Out of a device 128 bytes in packets with 24 of headers; into it 256 in completions with 20. Counters wrapped."""
    out = [s.share for s in recorded if s.direction == OUT]
    into = [s.share for s in recorded if s.direction == INTO]
    assert len(out) == len(into) == 3
    assert out == pytest.approx([128 / 152] * 3, abs=0.003)
    assert into == pytest.approx([256 / 276] * 3, abs=0.003)


def test_steps_that_follow_each_other_say_nothing(recorded: list[WireShare]) -> None:
    """A ping-pong's directions take turns, and so do a kernel's reduce and broadcast."""
    told = {(s.link_kind, s.transport, s.pattern) for s in recorded}
    assert ("nvlink", "copy_engine", "pingpong") not in told
    assert ("nvlink", "kernel", "allreduce") not in told


def test_a_case_gets_the_share_of_its_transport_and_direction(recorded: list[WireShare]) -> None:
    system = systems.load("hgx-h200-4")

    def typical(**case: Any) -> tuple[float | None, str] | None:
        found = counted_share(system, case, recorded)
        assert all((c.rule, c.kind) == ("payload_counted", "typical") for c in found)
        return (found[0].value_bytes_per_s, found[0].basis) if found else None

    pair = typical(pattern="pingpong", transport="copy_engine", devices=(0, 1), size=1 << 20)
    assert pair is not None
    assert pair[0] == pytest.approx(450e9 * 0.9394, rel=1e-3)
    assert "unidirectional by copy_engine on GPU 0 - GPU 1 at 512 MiB" in pair[1]
    alltoall = typical(pattern="alltoall", transport="copy_engine", size=1 << 30)
    assert alltoall is not None
    assert alltoall[0] == pytest.approx(450e9 * 0.9246, rel=1e-3)
    staged = typical(pattern="pingpong", transport="staging", devices=(0, 1), size=1 << 24)
    assert staged is not None
    assert staged[0] == pytest.approx(63.015e9 * 128 / 152, rel=4e-3)
    upload = typical(pattern="host_to_device", transport="kernel", devices=(0,), source_memory="pinned")
    assert upload is not None
    assert upload[0] == pytest.approx(63.015e9 * 256 / 276, rel=4e-3)
    # No case of this transport was counted, nothing crosses, or only latency is measured.
    assert typical(pattern="pingpong", transport="ccl", devices=(0, 1)) is None
    assert typical(pattern="local_copy", transport="kernel", devices=(0,)) is None
    assert typical(pattern="pointer_chase", transport="kernel", devices=(0, 1)) is None


def test_it_is_never_above_the_bound_that_it_is_a_share_of(recorded: list[WireShare]) -> None:
    system = systems.load("hgx-h200-8")
    for pattern in ("unidirectional", "alltoall", "allreduce", "broadcast"):
        for transport in ("copy_engine", "kernel", "ccl"):
            case = {"pattern": pattern, "transport": transport}
            if pattern == "unidirectional":
                case["devices"] = (0, 1)
            bounds = [c.value_bytes_per_s or 0 for c in limits(system, case) if c.kind == "upper bound"]
            for c in counted_share(system, case, recorded):
                assert 0 < (c.value_bytes_per_s or 0) < min(bounds)


def case_row(**more: Any) -> dict[str, Any]:
    row = {"case_key": "k", "launch": 0, "repeat": 0, "attempt": 0, "transport": "copy_engine", "size": 1 << 20}
    row |= {"pattern": "unidirectional", "devices": [0, 1], "operations_total": 1000, "status": "ok"}
    return {**row, **more}


def counters(**ends: tuple[float, float]) -> list[dict[str, Any]]:
    """Counters of device 0: name -> value before and after."""
    return [
        {**dict(zip(_COLUMNS, ("k", 0, 0, 0, 0, "cuda:0", moment, name, value), strict=True)),
         "when_ns": int(moment == "after")}
        for name, pair in ends.items()
        for moment, value in zip(("before", "after"), pair, strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "seen"),
    [
        (case_row(status="corrupt"), counters(nvlink_data_tx_bytes=(0, 1e9), nvlink_raw_tx_bytes=(0, 1.1e9))),
        (case_row(), counters(nvlink_data_tx_bytes=(0, 1e6), nvlink_raw_tx_bytes=(0, 1.1e6))),  # too little to tell
        (case_row(), counters(nvlink_data_tx_bytes=(0, 1e9))),  # the driver refuses raw bytes
        (case_row(), counters(nvlink_data_tx_bytes=(0, 1e9), nvlink_raw_tx_bytes=(0, 3e9))),  # others' traffic
        (case_row(pattern="device_to_host", devices=[0], size=1 << 24), counters(pcie_tx_bytes=(0, 1e9))),  # wrapped
        (case_row(), counters(nvlink_data_tx_bytes=(0, 1e9), nvlink_raw_tx_bytes=(0, 1.1e9))[::2]),  # nothing after
    ],
)  # fmt: skip
def test_what_counters_do_not_show_is_not_said(row: dict[str, Any], seen: list[dict[str, Any]]) -> None:
    assert shares_of([result_of(row)], map(observation_of, seen)) == []


def test_a_counter_of_32_bits_that_wrapped_once() -> None:
    row = case_row(pattern="device_to_host", devices=[0])
    raw = (1 << 20) * 1000 * 152 / 128
    (found,) = shares_of([result_of(row)], map(observation_of, counters(pcie_tx_bytes=(4e9, (4e9 + raw) % 2**32))))
    assert (found.link_kind, found.direction) == ("pcie", OUT)
    assert found.share == pytest.approx(128 / 152)


def test_a_run_s_counters_reach_expect(tmp_path: Path) -> None:
    """From the run folder to the limits that `expect RUN`, show and report read."""
    pytest.importorskip("linkgauge._core", reason="medians are the core's")
    from linkgauge.expect.achieved import achieved_limits
    from linkgauge.store import run as store
    from synthetic import make_case, make_run

    rows = [
        {"rank": 0, "subject": "cuda:0", "moment": moment, "when_ns": i, "name": name, "value": value, "unit": "B"}
        for i, moment in enumerate(("before", "after"))
        for name, value in (("nvlink_data_tx_bytes", 8e9 * i), ("nvlink_raw_tx_bytes", 1e10 * i))
    ]
    case = make_case("copy_engine", "unidirectional", 1 << 26, (0, 1))
    run = store.load(make_run(tmp_path / "run", cases=[case], observations=rows))
    system = systems.load("hgx-h200-4")
    found = {c.rule: c.value_bytes_per_s for c in achieved_limits(run, system)(case.dimensions())}
    assert found["payload_counted"] == pytest.approx(0.8 * 450e9)
