"""Other users of the machine: they are named, what they disturbed accuses nobody, and free machines stay as they are.

Two runs were measured while another program copied between the GPUs, or computed on one of them.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path

import causes
import pytest
from planting import MIB, OtherUser, observe
from run_extracts import rebuild

from linkgauge.app.cli import run_command
from linkgauge.errors import Exit, UsageError
from linkgauge.findings import rules
from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Finding
from linkgauge.findings.read import facts_of
from linkgauge.judge.advise import advise
from linkgauge.judge.baseline import make_baseline
from linkgauge.judge.check import _beside_others, check
from linkgauge.judge.compare_runs import compare_runs
from linkgauge.judge.small_shifts import between_runs
from linkgauge.judge.subjects import Subject
from linkgauge.model.result import Observation, Result
from linkgauge.stats.other_users import OtherUsers, Use, other_users
from linkgauge.stats.witnesses import HOST, Look
from linkgauge.store.run import Run, load
from linkgauge.system.model import System
from linkgauge.view.unseen import looked_at
from results import result_of
from thorough import most, thorough

STORED = Path(__file__).with_name("disturbed")
NVLINKS = ("hgx-h100-8", "hgx-h200-8", "hgx-a100-8")
NVLINK_RATE = 400e9


Disturbed = tuple[Subject, tuple[int, ...], str]
"""A run, the devices that were used, and a word of the evidence."""


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return rebuild(STORED / "h100x2-another-copies.xz", tmp_path_factory.mktemp("disturbed") / "copies")


@pytest.fixture(scope="module")
def computes(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return rebuild(STORED / "h100x2-another-computes.xz", tmp_path_factory.mktemp("disturbed") / "computes")


@pytest.fixture(
    scope="module",
    params=most([("copies", (0, 1), "NVLink"), ("computes", (1,), "power")], [("copies", (0, 1), "NVLink")]),
)
def disturbed(request: pytest.FixtureRequest) -> Disturbed:
    name, devices, word = request.param
    return Subject(name, facts_of(request.getfixturevalue(name))), devices, word


def test_a_disturbed_run_names_the_other_user_and_accuses_nothing(disturbed: Disturbed) -> None:
    subject, devices, word = disturbed
    found = rules.apply(subject.facts)
    first = found[0]
    assert (first.rule, first.severity, first.devices) == ("other_processes", "disturbed", devices)
    assert "another process (not visible from this container)" in first.sentence
    assert "links are not judged" in first.sentence
    assert word in first.evidence[0].text
    assert [one.sentence for one in found if one.is_alarm] == []


def test_the_check_of_a_disturbed_run_is_unknown_for_that_reason(disturbed: Disturbed) -> None:
    subject, devices, _ = disturbed
    result = check([subject], "")
    assert result.checked.exit_status == Exit.UNKNOWN
    (why,) = [one for one in result.checked.verdicts if one.outcome == "unknown"]
    assert why.devices == devices
    assert "used by another process" in why.reason


def test_a_comparison_leaves_out_what_another_user_disturbed(computes: Run, tmp_path: Path) -> None:
    runs = [computes, load(shutil.copytree(computes.path, tmp_path / "again"))]
    disturbed = facts_of(runs[1]).used.disturbed & {row.identity for row in runs[1].rows() if row.status == "ok"}
    found = compare_runs(runs[0], runs[1])
    assert 0 < len(disturbed) < len(found.cases) + len(disturbed)
    assert found.disturbed == 2 * len(disturbed)
    assert not disturbed & {case.row.identity for case in found.cases}
    said = f"{len(disturbed)} measurements of {runs[1].path} are left out: others used the machine meanwhile"
    assert any(note.startswith(said) for note in found.notes)
    by_turns = between_runs(runs[:1], runs[1:], 0.01)
    assert any(line.startswith(said) for line in by_turns.power)
    assert by_turns.named[0].cases == len(found.cases)


def test_advice_leaves_out_sizes_at_which_a_mechanism_was_disturbed(
    computes: Run, copies: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = facts_of(computes)
    kept = {id(one) for one in facts.undisturbed.measures}
    spoilt = {one.case_key for one in facts.measures if id(one) not in kept}
    found = advise(facts)
    assert found
    assert not spoilt & {key for one in found for key in one.case_keys}
    assert run_command(["advise", str(copies.path)]) == Exit.UNKNOWN
    assert "by two mechanisms or more, none of them disturbed." in capsys.readouterr().out
    run_command(["predict", "cnn", "--from", str(copies.path)])
    assert "assumed: others use the machine as in 477 of 477 measurements of" in capsys.readouterr().out


@thorough("what a run is judged by beside another user is in the tests beside")
def test_what_ran_after_the_other_user_had_gone_is_judged(tmp_path: Path) -> None:
    facts = facts_of(rebuild(STORED / "h100x2-another-computes.xz", tmp_path / "run"))
    (use,) = facts.used.uses
    assert math.isfinite(use.to_ns)
    after = [one.start_ns for one in map(facts.samples.of, _identities(facts.undisturbed.measures)) if one is not None]
    assert max(float(at.max()) for at in after) > use.to_ns
    assert any(1 in measure.devices for measure in facts.undisturbed.measures)


def _identities(measures: object) -> list[tuple[str, int, int, int]]:
    return [identity for measure in measures for identity in measure.identities]  # type: ignore[attr-defined]


# --- planted ---------------------------------------------------------------------------------------------------------


def _told(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.rule == "other_processes"]


@thorough("another user and a slow link are each named in the tests beside")
def test_a_slow_link_beside_a_light_user_is_still_named() -> None:
    """Copies of 5 % of a port, which slow all else there by as much."""
    named = 0
    for seed in range(754100, 754110):
        planted = causes.slow_link(seed, names=NVLINKS, sweeps=False)
        devices = sorted(planted.world.names)[-2:]
        user = OtherUser((devices[0], devices[1]), 0.05 * planted.world.port_rate(devices[0]))
        observe(planted.world, user)
        found = rules.apply(causes.facts_of(planted.world))
        (note,) = _told(found)
        assert (note.severity, note.devices) == ("note", user.devices)
        assert "links are judged all the same" in note.sentence
        named += planted.right(next(one for one in found if one.is_alarm or one is found[-1]))
    assert named >= 8


@pytest.mark.parametrize("seed", range(754100, most(754103, 754101)))
def test_bursts_are_told_with_their_period_and_accuse_nothing(seed: int) -> None:
    """0.3 s of copies each 2 s, while which all on these devices takes three times as long."""
    world = causes._new(seed, NVLINKS)
    user = OtherUser((0, 1), 0.9 * world.port_rate(0), 0.3, 2.0)
    world.ticks.append(lambda case, at, lasts: 2 * lasts if {0, 1} & set(case.devices) and user.goes_on(at) else 0.0)
    world.measure_all()
    for step in range(60):  # a plan measures host copies and copies within a device of many sizes
        for device in (0, 1):
            world.add("copy_engine", "host_to_device", 64 * MIB + 4096 * step, (device,), source_memory="pinned")
    observe(world, user)
    facts = causes.facts_of(world)
    (use,) = facts.used.uses
    assert use.period_s == pytest.approx(2.0, rel=0.02)
    found = rules.apply(facts)
    assert "in bursts about every 2" in found[0].sentence
    assert (found[0].severity, found[0].devices) == ("disturbed", (0, 1))
    assert [one.sentence for one in found if one.is_alarm] == []


@pytest.mark.parametrize("seed", range(754100, 754103))
def test_counters_of_a_free_machine_say_nothing(seed: int) -> None:
    planted = causes.slow_link(seed, names=NVLINKS, sweeps=False)
    observe(planted.world, None)
    facts = causes.facts_of(planted.world)
    assert facts.used.uses == ()
    assert planted.right(rules.apply(facts)[0])


def test_noise_is_no_loss() -> None:
    found = rules.apply(causes.facts_of(causes.clean(754100, loudness=12.0).world))
    noise = [one for one in found if one.rule == "noisy"]
    assert [one.severity for one in noise] == ["note"]


def test_what_a_hypervisor_took_is_said_with_the_noise_and_is_no_loss() -> None:
    facts = causes.facts_of(causes.clean(754100, loudness=12.0).world)
    found = rules.apply(dataclasses.replace(facts, info={**facts.info, "stolen_share": 0.12}))
    (noise,) = [one for one in found if one.rule == "noisy"]
    assert noise.severity == "note"
    assert "During the run a hypervisor took 12 % of the cores' time." in noise.sentence
    assert [one.sentence for one in found if one.is_alarm] == []


# --- the function itself ----------------------------------------------------------------------------------------------

SECOND = 1_000_000_000
GPUS: System = causes.system("hgx-h100-8")


@dataclasses.dataclass
class Beside:
    """Cases one after the other, each ten seconds, and what their device's counters say."""

    lasts_s: float = 1.0
    rows: list[Result] = dataclasses.field(default_factory=list)
    observations: list[Observation] = dataclasses.field(default_factory=list)

    def add(self, grown: dict[str, float], power: float | None = None, **columns: object) -> None:
        at = len(self.rows)
        case = {"transport": "copy_engine", "pattern": "local_copy", "devices": (0,), "size": 1024 + 8 * at}
        row = result_of({**case, **columns, "median_ns": 1e3, "bytes_total": 0, "operations_total": 1})
        self.rows.append(row)
        for rank, device in enumerate(row.devices):
            values = [(name, 0.0, value) for name, value in grown.items()]
            values += [("power", power, power)] if power is not None else []
            for name, before, after in values:
                self.observations += [
                    Observation(row.identity, rank, f"cuda:{device}", name, "", value, moment, when)
                    for value, moment, when in (
                        (before, "before", 10 * at * SECOND), (after, "after", int((10 * at + self.lasts_s) * SECOND))
                    )
                ]  # fmt: skip

    def found(self, *looks: Look) -> OtherUsers:
        return other_users(self.rows, self.observations, GPUS, looks)


def test_between_two_bursts_of_a_program_that_stays_nothing_is_judged() -> None:
    """Hits ten cases apart are two uses; of a program that was there before and after the run they are one."""
    beside = Beside()
    for at in range(20):
        moved = NVLINK_RATE if at in (2, 15) else 0.0
        beside.add({"nvlink_data_tx_bytes": moved, "nvlink_data_rx_bytes": moved})
    assert len(beside.found().uses) == 2
    before, after = (Look(0, when, processes=("pid 7 (python3)",)) for when in (-SECOND, 1000 * SECOND))
    of_host = (Look(HOST, when, processes=("pid 8 (cc)",)) for when in (-SECOND, 1000 * SECOND))
    at_peer = (Look(1, when, processes=("pid 7 (python3)",)) for when in (-SECOND, 1000 * SECOND))
    found = beside.found(before, after, *of_host, *at_peer)
    (use,) = found.uses
    assert (len(use.cases), use.by, found.stayed) == (20, ("pid 7 (python3)",), {})
    assert len(beside.found(before, Look(0, 1000 * SECOND)).uses) == 2


def test_a_program_that_rests_on_a_device_is_named_and_disturbs_nothing() -> None:
    beside = Beside()
    for _ in range(20):
        beside.add({"nvlink_data_tx_bytes": 0.0, "nvlink_data_rx_bytes": 0.0})
    rests, other = ("pid 7 (python3)",), ("pid 8 (python3)",)
    before, after = Look(0, -SECOND, processes=rests + other), Look(0, 1000 * SECOND, processes=rests)
    found = beside.found(before, after, Look(1, -SECOND, processes=other), Look(1, 1000 * SECOND))
    assert (found.uses, found.disturbed, found.stayed) == ((), frozenset(), {0: rests})
    facts = Facts([], used=found)
    (note,) = rules.apply(facts, ["other_processes"])
    assert (note.severity, note.devices) == ("note", (0,))
    assert note.sentence == "pid 7 (python3) had device 0 open before the run and after it; no use was seen meanwhile."


def test_pcie_counters_that_wrap_are_read_as_they_count() -> None:
    beside = Beside(lasts_s=0.05)
    beside.add({"pcie_tx_bytes": 0.15e9 - 2**32, "pcie_rx_bytes": 0.0})
    (use,) = beside.found().uses
    assert (use.media, use.rate) == (("PCIe",), pytest.approx(3e9))
    assert beside.found().disturbed  # 5 % of that link, but a burst may have met the case in part
    for _ in range(2):
        beside.add({"pcie_tx_bytes": 0.15e9, "pcie_rx_bytes": 0.0})
    assert not beside.found().disturbed
    beside.add({"pcie_tx_bytes": 0.0, "pcie_rx_bytes": 4e9}, pattern="host_to_device")
    assert beside.found().uses[0].hits == 3  # its own bytes
    quiet = Beside(lasts_s=0.05)
    quiet.add({"pcie_tx_bytes": 2e7, "pcie_rx_bytes": 2e7})
    assert quiet.found().uses == ()


def test_what_an_application_moves_over_pcie_is_its_own() -> None:
    """Steps of an application copy to and from the host, whatever transport carries its messages."""
    beside = Beside(lasts_s=0.05)
    for devices in ((0, 1), (0,)):
        beside.add(
            {"pcie_tx_bytes": 1e9, "pcie_rx_bytes": 0.0, "nvlink_data_tx_bytes": 1e9, "nvlink_data_rx_bytes": 0.0},
            pattern="application",
            devices=devices,
            app="dff",
        )
    assert [use for use in beside.found().uses if "PCIe" in use.media] == []


def test_a_case_in_which_pcie_counters_may_have_wrapped_tells_use_but_no_rate() -> None:
    beside = Beside()
    beside.add({"pcie_tx_bytes": 3e9, "pcie_rx_bytes": 0.0})
    beside.add({"pcie_tx_bytes": 1e8, "pcie_rx_bytes": 0.0})  # may be 1e8 + 2^32
    (use,) = beside.found().uses
    assert (use.hits, use.witnesses, use.rate) == (1, 1, None)
    assert beside.found().disturbed == {row.identity for row in beside.rows}


@pytest.mark.parametrize(
    ("columns", "sent", "received", "hit"),
    [
        ({}, NVLINK_RATE, 0.0, True),
        ({}, 0.0, NVLINK_RATE, True),
        ({}, 0.9e9, 0.0, False),
        ({"pattern": "host_to_device"}, NVLINK_RATE, 0.0, True),
        ({"transport": "staging", "pattern": "pingpong", "devices": (0, 1)}, NVLINK_RATE, 0.0, True),
        ({"pattern": "pingpong", "devices": (0, 1)}, NVLINK_RATE, NVLINK_RATE, False),
        ({"pattern": "unidirectional", "devices": (0, 1)}, NVLINK_RATE, 1e-4 * NVLINK_RATE, False),
        ({"pattern": "stream_copy", "source_device": 1}, 0.0, NVLINK_RATE, False),
        ({"managed": "prefetched"}, 0.0, NVLINK_RATE, False),
        ({"status": "failed"}, NVLINK_RATE, 0.0, False),
    ],
)
def test_only_a_case_that_moves_nothing_over_a_link_is_its_witness(
    columns: dict[str, object], sent: float, received: float, hit: bool
) -> None:
    beside = Beside()
    if columns.get("pattern") == "unidirectional":  # counted at the sender
        beside.add({"nvlink_data_tx_bytes": sent, "nvlink_data_rx_bytes": received}, **columns)
        beside.observations = [one for one in beside.observations if one.rank == 0]
    else:
        beside.add({"nvlink_data_tx_bytes": sent, "nvlink_data_rx_bytes": received}, **columns)
    assert bool(beside.found().uses) == hit


def test_what_runs_between_two_witnesses_of_use_is_disturbed_and_what_is_far_from_them_is_not() -> None:
    beside = Beside()
    used = [0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    for busy in used:
        beside.add({"nvlink_data_tx_bytes": busy * NVLINK_RATE, "nvlink_data_rx_bytes": 0.0})
    disturbed = beside.found().disturbed
    assert [row.identity in disturbed for row in beside.rows] == [3 <= at <= 6 for at in range(len(used))]


def test_an_idle_device_that_takes_the_power_of_a_busy_one_is_used() -> None:
    beside = Beside()
    for at in range(20):
        beside.add({}, 650.0 if at < 8 else 120.0)
    (use,) = beside.found().uses
    assert use.media == ("processors",)
    assert len(use.cases) == 8
    warm = Beside()
    for at in range(20):
        warm.add({}, 160.0 if at < 8 else 120.0)
    assert warm.found().uses == ()


def test_processes_are_named_by_a_look_before_the_run() -> None:
    beside = Beside()
    beside.add({"nvlink_data_tx_bytes": NVLINK_RATE, "nvlink_data_rx_bytes": 0.0})
    (use,) = beside.found(Look(0, 0, {"NVLink": NVLINK_RATE}, 1.0, ("pid 1785 (python3, user ann)",))).uses
    assert use.by == ("pid 1785 (python3, user ann)",)


def test_a_program_on_the_hosts_cores_is_not_named_as_the_only_user_of_gpus_that_show_none() -> None:
    beside = Beside()
    beside.add({"nvlink_data_tx_bytes": NVLINK_RATE, "nvlink_data_rx_bytes": 0.0})
    beside.add({"power_violation": 0.0}, pattern="host_to_device")
    hog = Look(HOST, -SECOND, {}, 16.0, ("pid 9 (hog)",), 32.0)
    for processes in ((), ("pid 7 (python3)",)):
        (use,) = beside.found(hog, Look(0, -SECOND, {"NVLink": NVLINK_RATE}, 1.0, processes)).uses
        assert {HOST, 0} <= {*use.devices}
        assert (use.by, use.unknown) == (("pid 9 (hog)", *processes), not processes)


def test_a_device_that_was_busy_before_the_run_is_used_where_nothing_says_otherwise() -> None:
    beside = Beside()
    beside.add({"power_violation": 0.0})
    assert beside.found(Look(0, -SECOND, {}, 0.97)).disturbed == {beside.rows[0].identity}
    assert beside.found(Look(0, -SECOND, {}, 0.0)).uses == ()


def test_a_process_that_was_seen_idle_disturbs_nothing() -> None:
    beside = Beside()
    beside.add({"other_processes": 1.0})
    assert beside.found().disturbed
    assert beside.found(Look(0, -SECOND, {"NVLink": 0.0}, 0.0, ("pid 7",))).uses == ()


@pytest.mark.parametrize(("busy", "disturbed"), [(16.0, True), (1.5, False)])
def test_load_of_the_host_disturbs_what_goes_through_it_alone(busy: float, disturbed: bool) -> None:
    beside = Beside()
    beside.add({"power_violation": 0.0}, pattern="host_to_device")
    beside.add({"power_violation": 0.0}, pattern="unidirectional", devices=(0, 1))
    found = beside.found(Look(HOST, -SECOND, {}, busy, ("pid 9 (hog)",), 32.0))
    assert found.disturbed == ({beside.rows[0].identity} if disturbed else frozenset())


def test_no_baseline_is_made_of_cases_that_others_disturbed(disturbed: Disturbed) -> None:
    subject, devices, _ = disturbed
    runs = [dataclasses.replace(subject, name=f"{subject.name}-{number}") for number in range(5)]
    if len(devices) == 2:
        with pytest.raises(UsageError, match="2385 cases were disturbed by others"):
            make_baseline(runs)
        return
    kept = {key.split(" ")[0] for key in make_baseline(runs)["cases"]}
    assert kept
    assert not kept & {key for key, *_ in subject.facts.used.disturbed}


@pytest.mark.parametrize("seed", range(754100, most(754103, 754101)))
def test_bursts_that_no_counter_shows_are_told_by_what_they_slow(seed: int) -> None:
    """0.3 s each 2 s, in which all on two devices takes twice as long."""
    world = causes._new(seed, NVLINKS)
    user = OtherUser((0, 1), 1.0, 0.3, 2.0)
    world.from_moment.append(lambda case, begins: 2.0 if {0, 1} & set(case.devices) and user.goes_on(begins) else 1.0)
    world.measure_all()
    for step in range(3):
        causes._matrices(world, (16 << 20) + (step << 12))
    found = rules.apply(causes.facts_of(world))
    first = found[0]
    assert (first.rule, first.severity) == ("slow_at_times", "loss")
    assert "about every 2" in first.sentence
    assert [one.sentence for one in found[1:] if one.is_alarm] == []


@pytest.mark.parametrize(
    "used",
    [
        OtherUsers((Use((1,), ("NVLink",), frozenset(), 1, 3, 3, 0.0, math.inf, 5e9, 0.05),), 1),
        OtherUsers(stayed={1: ("pid 7 (python3)",)}),
    ],
)
def test_a_rate_that_is_too_low_beside_a_user_of_whom_little_was_seen_is_unknown(used: OtherUsers) -> None:
    subject = Subject("run", Facts([], used=used))
    low = [subject.verdict("fail", "case", "too low", "source", devices=devices) for devices in ((0, 1), (0,))]
    assert [one.outcome for one in _beside_others(subject, low)] == ["unknown", "fail"]


def test_errors_that_only_looks_outside_the_run_read_are_a_fault() -> None:
    looks = [
        {
            "moment": moment,
            "when_ns": 0,
            "devices": [{"device": 1, "values": {"nvlink_dl_crc_errors": count, "power": 9}}],
        }
        for moment, count in (("before", 3.0), ("after", 7.0))
    ]
    (found,) = rules.apply(Facts([], info={"looks": looks}))
    assert (found.rule, found.severity) == ("errors_rose", "fault")
    assert "nvlink_dl_crc_errors rose by 4 during the run" in found.sentence
    assert rules.apply(Facts([], info={"looks": looks[:1] * 2})) == []
    assert looked_at({"looks": looks}) == {"nvlink_dl_crc_errors", "power"}


# --- by process -------------------------------------------------------------------------------------------------------


def by_process(beside: Beside, busy: float = 0.0, copies_ns: float = 0.0) -> None:
    """A case of a second beside which a driver counted so much of others."""
    beside.add({"others_copy_time": copies_ns})
    row = beside.rows[-1]
    for moment, when, value in (("before", 0.0, 0.9), ("after", 1.0, busy)):
        at = int((10 * (len(beside.rows) - 1) + when) * SECOND)
        beside.observations.append(Observation(row.identity, 0, "hip:0", "others_busy", "", value, moment, at))


@pytest.mark.parametrize(("busy", "copies_ns"), [(0.4, 0.0), (0.0, 0.3e9)])
def test_what_a_driver_counts_of_other_processes_disturbs_the_cases(busy: float, copies_ns: float) -> None:
    beside = Beside()
    for at in range(12):
        by_process(beside, *((busy, copies_ns) if 4 <= at < 7 else (0.02, 1e6)))
    (use,) = beside.found().uses
    assert use.cases == {row.identity for row in beside.rows[4:7]}
    assert (use.hits, use.devices) == (3, (0,))


def with_memory_moved(beside: Beside, rate: float, **columns: object) -> None:
    """A case of a second beside which all cores moved so much from and to memory."""
    beside.add({"nvlink_data_tx_bytes": 0.0, "nvlink_data_rx_bytes": 0.0}, **columns)
    row, at = beside.rows[-1], 10 * (len(beside.rows) - 1) * SECOND
    for moment, when, value in (("before", 0, 7e15), ("after", SECOND, 7e15 + rate)):
        beside.observations.append(
            Observation(row.identity, 0, "host memory", "memory_bytes", "B", value, moment, at + when)
        )


def test_memory_that_others_move_disturbs_the_cases_through_the_host() -> None:
    beside = Beside()
    for at in range(10):
        with_memory_moved(beside, 60e9 if at in (4, 6) else 0.5e9)
        with_memory_moved(beside, 50e9, pattern="host_to_device")  # its own bytes
    (use,) = beside.found().uses
    assert (use.devices, use.media, use.hits) == ((HOST,), ("host memory",), 2)
    assert use.cases <= {row.identity for row in beside.rows[1::2]}
    assert {row.identity for row in beside.rows[9:12:2]} <= use.cases
    look = Look(HOST, -SECOND, {"host memory": 60e9}, 0.0, (), 8)
    quiet = Beside()
    quiet.add({"nvlink_data_tx_bytes": 0.0}, pattern="host_to_device")
    assert quiet.found(look).disturbed == {quiet.rows[0].identity}
    assert quiet.found(dataclasses.replace(look, rates={"host memory": 1e9})).uses == ()


# --- network cards ----------------------------------------------------------------------------------------------------

CARD = 12.5e9
"""B/s of a card of 100 Gb/s."""


@dataclasses.dataclass
class BetweenNodes:
    """Messages from one node to the other, one case each second, and what both nodes' cards say; clocks differ."""

    rows: list[Result] = dataclasses.field(default_factory=list)
    observations: list[Observation] = dataclasses.field(default_factory=list)

    def add(self, others: float = 0.0, reset: bool = False, **columns: object) -> None:
        """A case of 0.9 s beside `others` B/s from the first node to the second."""
        at, operations = len(self.rows), 400
        case = {"transport": "mpi", "pattern": "unidirectional", "devices": (0, 1), "size": (16 << 20) + 8 * at}
        row = result_of({**case, "case_key": f"case {at}", **columns, "median_ns": 1e6, "bytes_total": 16 << 20,
                         "operations_total": operations})  # fmt: skip
        self.rows.append(row)
        moved = 1.06 * row.size * operations if row.size > MIB else 0.0
        for rank, clock in ((0, 7 * SECOND), (1, 4000 * SECOND)):
            # Who sends sees acknowledgments come in.
            ways = {"nic_sent": (1.0, 0.02)[rank], "nic_received": (0.02, 1.0)[rank]}
            for way, share in ways.items():
                used = share * (moved + 0.9 * others)
                for moment, when, value in (("before", 0.05, 5e12), ("after", 0.95, 0.0 if reset else 5e12 + used)):
                    self.observations.append(
                        Observation(row.identity, rank, "nic mlx5_0", way, "B", value, moment,
                                    clock + int((at + when) * SECOND))
                    )  # fmt: skip

    def found(self) -> OtherUsers:
        return other_users(self.rows, self.observations, nodes=lambda row: ["n0", "n1"][: len(row.devices)])


def test_other_traffic_over_the_cards_disturbs_the_cases_between_nodes_meanwhile() -> None:
    beside = BetweenNodes()
    for at in range(30):
        beside.add(0.4 * CARD if 10 <= at < 14 else 0.0)
    beside.add(size=8, pattern="pingpong")
    used = beside.found()
    (use,) = used.uses
    assert (use.devices, used.nodes, use.media, use.is_light) == ((-3, -2), ("n0", "n1"), ("network",), False)
    assert use.cases == {row.identity for row in beside.rows[10:14]}
    assert (use.hits, use.measured) == (4, 4)
    assert use.rate == pytest.approx(0.4 * CARD, rel=0.2)


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"pattern": "bidirectional"},
        {"pattern": "allreduce"},
        {"pattern": "pingpong", "size": 8},
        {"pattern": "barrier", "size": 0},
    ],
)
def test_what_a_case_moves_itself_is_no_other_traffic(columns: dict[str, object]) -> None:
    beside = BetweenNodes()
    for _ in range(5):
        beside.add(**columns)
    assert beside.found().uses == ()


def test_a_counter_that_began_anew_says_nothing_and_little_traffic_is_none() -> None:
    beside = BetweenNodes()
    beside.add(0.4 * CARD, reset=True)
    beside.add(0.5e6)  # a monitor
    assert beside.found().uses == ()


def test_traffic_that_only_a_small_case_shows_is_seen_too() -> None:
    beside = BetweenNodes()
    beside.add(0.4 * CARD, pattern="pingpong", size=8)
    (use,) = beside.found().uses
    assert use.hits == 1
    beside = BetweenNodes()
    beside.add(0.4 * CARD, status="failed")
    assert beside.found().uses == ()
