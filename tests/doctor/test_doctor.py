"""Each check of the doctor under the condition it is for, faked, and under its absence."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from doctor_conditions import QUIET, SETTINGS
from fake_readers import CRAY, GPU, MPICH, OTHER, FakeReaders, changed
from linkgauge.app import cli
from linkgauge.doctor import check as checks
from linkgauge.doctor.readers import Need, Readers
from linkgauge.doctor.stage import _need
from linkgauge.plan.memory import host_need, memory_need
from linkgauge.system.allowance import Limit
from linkgauge.system.nvlink_errors import LinkErrors
from linkgauge.system.sysfs import PciFacts
from synthetic import make_case


def tree(
    *,
    speed: float = 32.0,
    width: int = 16,
    port: tuple[float, int] = (32.0, 16),
    uplink: int = 16,
    acs: int | None = 0,
) -> dict[str, PciFacts]:
    """Two GPUs and a card below one PCIe switch; `port` is what the switch's ports above them can do at most."""
    root, up = (
        PciFacts("0000:11:00.0", max_speed=32.0, max_width=16),
        PciFacts("0000:12:00.0", parents=("0000:11:00.0",), speed=32.0, width=uplink, max_speed=32.0, max_width=16),
    )
    ends = {}
    for number, end in enumerate(("0000:1b:00.0", "0000:1c:00.0", "0000:1d:00.0")):
        above = (root.address, up.address)
        down = PciFacts(f"0000:13:0{number}.0", parents=above, max_speed=port[0], max_width=port[1], acs=acs)
        ends[down.address] = down
        ends[end] = PciFacts(
            end, parents=(*above, down.address), speed=speed, width=width, max_speed=32.0, max_width=16
        )
    return {root.address: root, up.address: up, **ends}  # fmt: skip


def on_pci(vendor: int, kind: int) -> dict[str, PciFacts]:
    """Two functions of a vendor."""
    addresses = ("0000:1b:00.0", "0000:1c:00.0")
    return {address: PciFacts(address, vendor=vendor, class_code=kind) for address in addresses}


def found(readers: Readers) -> dict[str, checks.Result]:
    return {one.name: result for one, result in checks.run_checks(readers)}


def one(name: str, readers: Readers) -> checks.Result:
    """What one check finds: the others cost ten times as much."""
    checks.load()
    return checks.CHECKS[name].look(readers)


def test_a_healthy_machine_passes_every_check() -> None:
    bad = {name: result for name, result in found(FakeReaders()).items() if result.status not in ("ok",)}
    # These GPUs belong to no NVLink fabric, and no PCI tree is there: the checks that do not apply.
    assert {name: result.status for name, result in bad.items()} == dict.fromkeys(
        ("nvlink_fabric", "relaxed_ordering"), checks.NOT_CHECKED
    )


CONDITIONS: list[tuple[str, str, str, Callable[[], FakeReaders]]] = [
    ("ranks_see_each_other", "failing", "rank 0", lambda: FakeReaders(ranks=[(0, 1), (0, 1)])),
    ("ranks_see_each_other", "failing", "no launcher", lambda: FakeReaders(ranks="no launcher here")),
    ("ranks_on_one_device", "failing", "twice", lambda: FakeReaders(gpus=changed(GPU, uuid="GPU-b"))),
    ("gpus_answer", "failing", "GPU 0: GPU is lost", lambda: FakeReaders(gpus=changed(GPU, lost="GPU is lost"))),
    ("gpus_answer", "failing", "the GPU at 0000:1d:00.0 cannot be initialized", lambda: FakeReaders(
        texts={f"/proc/driver/nvidia/gpus/0000:{bus}:00.0/information": "" for bus in ("1b", "1c", "1d")})),
    ("gpus_answer", "warning", "2 NVIDIA GPUs are on the PCI bus, but libnvidia-ml.so.1 not found", lambda: FakeReaders(
        gpus=([], "libnvidia-ml.so.1 not found"), pci=on_pci(0x10DE, 0x030200))),
    ("gpus_answer", "warning", "2 AMD GPUs are on the PCI bus", lambda: FakeReaders(
        gpus=([], "libnvidia-ml.so.1 not found"), pci=on_pci(0x1002, 0x120000))),
    ("devices_hidden", "warning", "CUDA_VISIBLE_DEVICES=1", lambda: FakeReaders(
        visible=1, environment={"HOME": "/root", "CUDA_VISIBLE_DEVICES": "1"})),
    ("devices_hidden", "warning", "CUDA_VISIBLE_DEVICES=0,7: 7 is no GPU here", lambda: FakeReaders(
        visible=1, environment={"HOME": "/root", "CUDA_VISIBLE_DEVICES": "0,7"})),
    ("devices_hidden", "warning", "0 is there twice", lambda: FakeReaders(
        visible=0, environment={"HOME": "/root", "CUDA_VISIBLE_DEVICES": "0,0"})),
    ("gpus_shared", "warning", "GPU 0 is divided by MIG: its 2 devices share its PCIe link", lambda: FakeReaders(
        gpus=changed(GPU, partition="MIG", instances=("MIG-a", "MIG-b")))),
    ("gpus_shared", "warning", "GPU 0 is a vGPU", lambda: FakeReaders(gpus=changed(GPU, virtual=True))),
    ("gpus_shared", "warning", "MPS gives each process 50 %", lambda: FakeReaders(
        environment={"HOME": "/root", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"})),
    ("gpus_shared", "warning", "replicas of GPUs", lambda: FakeReaders(
        environment={"HOME": "/root", "NVIDIA_VISIBLE_DEVICES": "GPU-a::1"})),
    ("observable", "warning", "2 GPUs are visible, but libnvidia-ml.so.1 not found", lambda: FakeReaders(
        gpus=([], "libnvidia-ml.so.1 not found"))),
    ("observable", "warning", "/sys has no PCI devices", lambda: FakeReaders(
        texts={path: None for path in FakeReaders().facts["texts"] if path.startswith("/sys/bus/pci")})),
    ("devices_hidden", "failing", "no variable hides", lambda: FakeReaders(visible=1)),
    ("sycl_devices", "warning", "no GPU and no CPU", lambda: FakeReaders(sycl="SYCL shows no GPU and no CPU")),
    ("package_versions", "failing", "numpy: expected 1.26 or newer, found 1.20", lambda: FakeReaders(
        packages={"numpy": "1.20"})),
    ("package_versions", "failing", "found none", lambda: FakeReaders(packages={"mpi4py": None})),
    ("package_versions", "warning", "altair", lambda: FakeReaders(packages={"altair": None})),
    ("mpi_library", "failing", "MPI", lambda: FakeReaders(mpi=None)),
    ("mpi_library", "failing", "broken", lambda: FakeReaders(mpi=dataclasses.replace(MPICH, problem="it is broken"))),
    ("mpi_with_gpus", "failing", "GPU transport library", lambda: FakeReaders(mpi=CRAY)),
    ("mpi_with_gpus", "warning", "no GPU support", lambda: FakeReaders(mpi_gpus=False)),
    ("mps", "warning", "no daemon answers", lambda: FakeReaders(texts={"/tmp/nvidia-mps/control": ""})),
    ("mps", "warning", "4 ranks share 2 GPUs", lambda: FakeReaders(rank_count=4)),
    ("ucx_with_gpus", "warning", "no cuda", lambda: FakeReaders(commands={"ucx_info": "# Transport: sysv"})),
    ("gpu_direct", "failing", "peermem", lambda: FakeReaders(texts={"/proc/modules": ""})),
    ("gpu_direct", "warning", "its device is not here", lambda: FakeReaders(texts={
        "/dev/gdrdrv": None, "/proc/modules": "nvidia_peermem 1 0 - Live 0x0\ngdrdrv 24576 0 - Live 0x0\n"})),
    ("gpu_direct", "warning", "GDRCopy", lambda: FakeReaders(texts={"/dev/gdrdrv": None})),
    ("nvlink_fabric", "failing", "in progress", lambda: FakeReaders(gpus=changed(GPU, fabric_state="in progress"))),
    ("nvlink_fabric", "warning", "no IMEX channel", lambda: FakeReaders(
        gpus=changed(GPU, fabric_state="completed", fabric_cluster="07"),
        texts={"/dev/nvidia-caps-imex-channels/channel0": None})),
    ("peer_access", "warning", "0-1", lambda: FakeReaders(refused={"0-1": "refused by the container"})),
    ("peer_access", "warning", "refused", lambda: FakeReaders(
        refused={"0-1": "refused"}, texts={"/sys/kernel/iommu_groups/1/type": "DMA"})),
    ("shared_memory", "failing", "/dev/shm", lambda: FakeReaders(free=1 << 20)),
    ("shared_memory", "failing", "not there", lambda: FakeReaders(free=None)),
    ("locked_memory", "failing", "RDMA", lambda: FakeReaders(locked=64 << 10)),
    ("open_files", "failing", "at most 64 files", lambda: FakeReaders(limits={"NOFILE": 64})),
    ("processes", "failing", "at most 50 processes", lambda: FakeReaders(limits={"NPROC": 50})),
    ("address_space", "warning", "at most 6 GiB", lambda: FakeReaders(limits={"AS": 6 << 30})),
    ("cross_memory", "warning", "Operation not permitted", lambda: FakeReaders(
        cross="Operation not permitted", texts={"/proc/sys/kernel/yama/ptrace_scope": "1"})),
    ("device_affinity", "warning", "GPU 0", lambda: FakeReaders(cores={8, 9})),
    ("huge_pages", "warning", "never", lambda: FakeReaders(
        texts={"/sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]"})),
    ("cpu_governor", "warning", "powersave", lambda: FakeReaders(
        texts={"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"})),
    ("other_gpu_users", "warning", "GPU 0: 37 % busy by processes that are not visible here",
     lambda: FakeReaders(gpus=changed(GPU, busy=0.37))),
    ("other_gpu_users", "warning", "4711", lambda: FakeReaders(gpus=changed(GPU, processes=(4711,)))),
    ("clocks_capped", "warning", "1200 of 1980", lambda: FakeReaders(gpus=changed(GPU, clock_limit=1200))),
    ("clocks_capped", "warning", "500 of 700", lambda: FakeReaders(gpus=changed(GPU, power_limit=500))),
    ("clocks_capped", "warning", "heat", lambda: FakeReaders(gpus=changed(GPU, throttle=("heat",)))),
    ("pcie_width", "failing", "x8 of x16", lambda: FakeReaders(gpus=changed(GPU, pcie_width=8))),
    ("pcie_width", "warning", "GPU 0: x8 of x16", lambda: FakeReaders(
        gpus=changed(GPU, pcie_width=8, pcie_width_max=8))),
    ("pcie_width", "warning", "GPU 0: generation 3 of 5", lambda: FakeReaders(
        gpus=changed(GPU, pcie_generation=3, pcie_generation_max=3))),
    ("pcie_width", "warning", "GPU 0: slot x8, card x16", lambda: FakeReaders(pci=tree(width=8, port=(32.0, 8)))),
    ("pcie_width", "warning", "GPU 0: slot of generation 3, card of generation 5", lambda: FakeReaders(
        pci=tree(speed=8.0, port=(8.0, 16)))),
    ("pcie_width", "failing", "switch port 0000:12:00.0: x8 of x16", lambda: FakeReaders(pci=tree(uplink=8))),
    ("acs", "warning", "between GPU 0 and GPU 1", lambda: FakeReaders(pci=tree(acs=0x1D))),
    ("acs", "warning", "between GPU 0 and mlx5_0", lambda: FakeReaders(
        pci={**tree(acs=0x1D), "0000:1c:00.0": PciFacts("0000:1c:00.0")},
        links={"/sys/class/infiniband/mlx5_0/device": "0000:1d:00.0"})),
    ("nvlinks", "failing", "17 of 18", lambda: FakeReaders(gpus=changed(GPU, nvlinks_active=17))),
    ("links_as_described", "warning", "gpu0 has 12 of 18 nvlink links", lambda: FakeReaders(
        likeness=dataclasses.replace(FakeReaders().facts["likeness"],
                                     differences=("gpu0 has 12 of 18 nvlink links",)))),
    ("nvlink_errors", "warning", "NVLink 1 of GPU 0: effective bit error rate 2e-09", lambda: FakeReaders(
        link_errors=[LinkErrors(0, 0), LinkErrors(0, 1, effective_ber=2e-9)])),
    ("nvlink_errors", "warning", "symbol error rate 1e-20", lambda: FakeReaders(
        link_errors=[LinkErrors(0, 0), LinkErrors(0, 1, symbol_ber=1e-20)])),
    ("nvlink_errors", "warning", "NVLink 1 of GPU 0: 3 recoveries", lambda: FakeReaders(
        link_errors=[LinkErrors(0, 0), LinkErrors(0, 1, recoveries=3)])),
    ("nvlink_errors", "warning", "2 recoveries failed", lambda: FakeReaders(
        link_errors=[LinkErrors(0, 0), LinkErrors(0, 1, recoveries=3, failed_recoveries=2)])),
    ("nvlink_errors", "warning", "NVLink 2 of GPU 0: 1204 replays, others 5", lambda: FakeReaders(
        link_errors=[LinkErrors(0, link, replays=1204 if link == 2 else 5) for link in range(4)])),
    ("nvlink_fabric", "failing", "Insufficient Resources (GPU 0)", lambda: FakeReaders(
        gpus=changed(GPU, fabric_state="completed", fabric_status="Insufficient Resources"))),
    ("nvlink_fabric", "warning", "GPU 0: degraded bandwidth", lambda: FakeReaders(
        gpus=changed(GPU, fabric_state="completed", fabric_health=("degraded bandwidth",)))),
    ("nvlink_fabric", "warning", "GPU 1 in clique 2", lambda: FakeReaders(gpus=(
        [dataclasses.replace(gpu, fabric_state="completed", fabric_cluster="07", fabric_clique=1 + gpu.index)
         for gpu in (GPU, OTHER)], ""))),
    ("nvlink_fabric", "warning", "cluster UUID of GPU 0 is all zeros", lambda: FakeReaders(gpus=(
        [dataclasses.replace(GPU, name="NVIDIA GB200", fabric_state="completed", fabric_cluster="0" * 32)], ""))),
    ("gpu_memory", "warning", "GPU 0: a row remapping failed", lambda: FakeReaders(
        gpus=changed(GPU, memory_faults=("a row remapping failed",)))),
    ("partitions", "warning", "GPU 1 whole, others MIG", lambda: FakeReaders(gpus=(
        [dataclasses.replace(GPU, partition="MIG"), dataclasses.replace(OTHER, partition="whole")], ""))),
    ("rails", "warning", "mlx5_1/1", lambda: FakeReaders(
        texts={"/sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN"})),
    ("rail_width", "warning", "mlx5_1/1 has 2 of 4 lanes", lambda: FakeReaders(
        texts={"/sys/class/infiniband/mlx5_1/ports/1/rate": "100 Gb/sec (2X HDR)"})),
    ("rail_width", "warning", "mlx5_1/1 is at 100 of 200 Gb/s", lambda: FakeReaders(
        texts={"/sys/class/infiniband/mlx5_1/ports/1/rate": "100 Gb/sec (4X EDR)"})),
    ("nearest_card", "warning", "leaves none of the cards here", lambda: FakeReaders(
        environment={"HOME": "/root", "NCCL_IB_HCA": "mlx4"})),
    ("rail_errors", "warning", "mlx5_1/1: 57 times down, others 3", lambda: FakeReaders(
        texts={"/sys/class/infiniband/mlx5_1/ports/1/counters/link_downed": "57"})),
    ("rail_errors", "warning", "mlx5_0/1: 40000 symbol errors, others 3", lambda: FakeReaders(
        texts={"/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error": "40000"})),
    ("rail_firmware", "warning", "28.35.1012 on mlx5_1, 28.39.2048 on mlx5_0", lambda: FakeReaders(
        texts={"/sys/class/infiniband/mlx5_1/fw_ver": "28.35.1012"})),
    ("nearest_card", "warning", "leaves none of the cards here", lambda: FakeReaders(
        environment={"HOME": "/root", "NCCL_IB_HCA": "mlx5_0:2"})),
    ("nearest_card", "warning", "NCCL_IB_HCA", lambda: FakeReaders(
        environment={"HOME": "/root", "NCCL_IB_HCA": "mlx5_1"})),
    ("kernel_cache", "warning", "cannot be written", lambda: FakeReaders(writable=False)),
    ("temporary_folder", "failing", "TMPDIR", lambda: FakeReaders(environment={"HOME": "/", "TMPDIR": "/" + "x" * 90})),
    ("cores", "warning", "2 ranks share 1", lambda: FakeReaders(cores={0})),
    ("cores", "warning", "2 ranks share 0.5 cores: this process may use 0.5 of 4 cores (CPU quota of cgroup /pod)",
     lambda: FakeReaders(allowed={"quota": Limit(0.5, "/pod")})),
    ("cores", "warning", "2 ranks share 1.5 cores", lambda: FakeReaders(allowed={"quota": Limit(1.5, "/pod")})),
    ("memory_allowed", "warning", "512 MiB of 64 GiB of memory (limit of cgroup /pod), for 2 ranks",
     lambda: FakeReaders(allowed={"memory": Limit(512 << 20, "/pod")})),
    ("other_load", "warning", "2.0 of 4 cores are busy by pid 7", lambda: FakeReaders(
        core_users=["2.0 of 4 cores are busy by pid 7"])),
    ("other_load", "warning", "load 9.0", lambda: FakeReaders(load=9.0)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "value", "left"),
    [
        ("NCCL_IB_HCA", "mlx5_1", [1, 10, 11]),
        ("NCCL_IB_HCA", "=mlx5_1", [1]),
        ("NCCL_IB_HCA", "=mlx5_1:1,mlx5_10:2", [1, 10]),
        ("NCCL_IB_HCA", "^mlx5_1", [0]),
        ("NCCL_IB_HCA", "^=mlx5_1", [0, 10, 11]),
        ("NCCL_IB_HCA", "^=mlx5_1:1", [0, 10, 11]),
        ("NCCL_IB_HCA", "^=mlx5_1:2", [0, 1, 10, 11]),
        ("NCCL_IB_HCA", "=mlx5_0:2,mlx5_1:1", [1]),
        ("NCCL_IB_HCA", "mlx5", [0, 1, 10, 11]),
        ("UCX_NET_DEVICES", "mlx5_1:1", [1]),
        ("UCX_NET_DEVICES", "^mlx5_1:1", [0, 10, 11]),
        ("UCX_NET_DEVICES", "all", [0, 1, 10, 11]),
        ("UCX_NET_DEVICES", "eth0", None),
    ],
)
@pytest.mark.parametrize("near", [0, 1, 10, 11])
def test_cards_are_taken_as_the_libraries_take_them(
    variable: str, value: str, left: list[int] | None, near: int
) -> None:
    """NCCL: beginnings of names, = before whole names, ^ before those that are left out (env_vars, NCCL_IB_HCA). Both
    GPUs are on the node of one card, and all other cards are on another."""
    texts = {f"/sys/class/infiniband/mlx5_{card}/device/numa_node": "0" if card == near else "1"
             for card in (0, 1, 10, 11)}  # fmt: skip
    texts |= {f"/sys/class/infiniband/mlx5_{card}": "" for card in (0, 1, 10, 11)}
    readers = FakeReaders(environment={"HOME": "/root", variable: value}, texts=texts)
    result = one("nearest_card", readers)
    assert (result.status == "ok") == (left is None or near in left), result
    if result.status != "ok":
        assert result.fix.startswith(f"take mlx5_{near} out of" if value.startswith("^") else f"add mlx5_{near} to")


ALL = [*CONDITIONS, *SETTINGS]


@pytest.mark.parametrize(("name", "status", "word", "make"), ALL, ids=[f"{c[0]}-{c[2]}" for c in ALL])
def test_a_condition_is_found_with_its_cost_and_fix(
    name: str, status: str, word: str, make: Callable[[], FakeReaders]
) -> None:
    result = one(name, make())
    assert result.status == status, result
    assert word in result.finding
    assert result.cost
    assert result.fix


def test_intels_mpi_is_told_of_gpus_and_offered_where_the_library_here_has_none() -> None:
    intel = dataclasses.replace(MPICH, vendor="intel")
    said = found(FakeReaders(mpi=intel, mpi_gpus=None))["mpi_with_gpus"]
    assert said.status == "ok"
    assert "I_MPI_OFFLOAD=1" in said.finding
    assert "impi-rt" in found(FakeReaders(mpi_gpus=False))["mpi_with_gpus"].fix
    amd = changed(dataclasses.replace(GPU, vendor="amd"))
    assert "impi-rt" not in found(FakeReaders(mpi_gpus=False, gpus=amd))["mpi_with_gpus"].fix


def test_an_mps_daemon_that_answers_is_well() -> None:
    for place, environment in (("/tmp/nvidia-mps", {}), ("/run/mps", {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"})):
        readers = FakeReaders(environment={"HOME": "/root", **environment}, commands={"sh": "4711"},
                              texts={f"{place}/control": ""}, rank_count=4)  # fmt: skip
        assert found(readers)["mps"] == checks.ok("an MPS daemon answers")


def test_limits_that_hinder_nothing_are_still_named() -> None:
    """A quota above the ranks' cores, and memory enough: no warning, but who reads on sees them."""
    results = found(FakeReaders(allowed={"quota": Limit(3.0, "/pod"), "memory": Limit(8 << 30, "/pod")}))
    assert results["cores"] == checks.ok(
        "3 cores for 2 ranks: this process may use 3 of 4 cores (CPU quota of cgroup /pod)"
    )
    assert "8 GiB of 64 GiB" in results["memory_allowed"].finding
    assert results["memory_allowed"].status == "ok"


@pytest.mark.parametrize(
    ("check", "need", "status"),
    [
        ("locked_memory", Need(locked_bytes=1 << 30), "ok"),
        ("locked_memory", Need(locked_bytes=3 << 30), "failing"),
        ("locked_memory", Need(), "failing"),
        ("shared_memory", Need(shm_bytes=64 << 20), "ok"),
        ("shared_memory", Need(shm_bytes=2 << 30), "failing"),
    ],
)
def test_limits_of_memory_are_judged_by_what_the_plan_needs(check: str, need: Need, status: str) -> None:
    """Without a plan any limit of locked memory counts where RDMA cards are; with one what it registers."""
    result = one(check, FakeReaders(locked=2 << 30, free=1 << 30, need=need))
    assert result.status == status, result


def test_the_need_is_that_of_the_largest_case_of_a_plan() -> None:
    cases = [make_case("staging", "pingpong", size, source_memory=memory, target_memory=memory)
             for size in (8, 1 << 20) for memory in ("host", "device")]  # fmt: skip
    launches = [SimpleNamespace(cases=cases[:2]), SimpleNamespace(cases=cases[2:])]
    for kind in ("host", "cuda"):
        found = _need(SimpleNamespace(launches=launches, machine=SimpleNamespace(kind=kind)))  # type: ignore[arg-type]
        needs = [memory_need(case) for case in cases]
        assert found.shm_bytes == max(need.shm_bytes for need in needs)
        assert found.locked_bytes == max(host_need(case, need, kind) + need.shm_bytes
                                         for case, need in zip(cases, needs, strict=True))  # fmt: skip
    assert _need(SimpleNamespace(launches=[], machine=SimpleNamespace(kind="host"))) == Need()  # type: ignore[arg-type]


def test_a_fabric_that_ends_with_the_host_needs_no_imex() -> None:
    readers = FakeReaders(gpus=changed(GPU, fabric_state="completed"),
                          texts={"/dev/nvidia-caps-imex-channels/channel0": None})  # fmt: skip
    assert found(readers)["nvlink_fabric"] == checks.ok("the fabric, which ends with this host, is there")


def test_checks_that_pass_are_counted_by_kind_and_named_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linkgauge.doctor.readers.Readers", lambda **_: FakeReaders())
    assert cli.run_command(["doctor", "--devices", "host:2"]) == 0
    short = capsys.readouterr().out.splitlines()
    kinds = re.findall(r"([a-z-]+) (\d+)", short[-2])
    assert len(kinds) == len({look.look.__module__ for look in checks.CHECKS.values()})
    assert sum(int(count) for _, count in kinds) == len(checks.CHECKS) - 2
    assert cli.run_command(["doctor", "--devices", "host:2", "--verbose"]) == 0
    named = capsys.readouterr().out
    assert all(name.replace("_", " ") in named for name in checks.CHECKS)


def test_every_check_has_a_condition_that_it_finds() -> None:
    found(FakeReaders())
    assert {condition[0] for condition in ALL} == set(checks.CHECKS) - {"idle_states"}  # a fact, which alarms nobody


def test_a_check_that_fails_itself_is_not_checked_and_stops_nothing() -> None:
    class Broken(FakeReaders):
        def load(self) -> float:
            raise RuntimeError("no load here")

    result = found(Broken())["other_load"]
    assert result.status == checks.NOT_CHECKED
    assert "no load here" in result.finding


def test_this_machine_is_looked_at_without_a_failure_of_the_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.run_command(["doctor", "--json", "--devices", "host:2"])
    rows = json.loads(capsys.readouterr().out)
    assert {row["check"] for row in rows} == set(checks.CHECKS)
    assert not [row for row in rows if "could not look" in row["finding"]]
    assert status == (1 if any(row["status"] == "failing" for row in rows) else 0)


def test_what_bridges_state_counts_where_it_can_be_true() -> None:
    """An emulated port states what its machine's author liked, and no port can do less than its card does now."""
    narrow = tree(port=(16.0, 1))
    assert found(FakeReaders(pci=tree(port=(2.5, 1))))["pcie_width"].status == "ok"
    older = found(FakeReaders(pci=tree(speed=2.5, port=(16.0, 16))))["pcie_width"]
    assert (older.status, "one generation older" in older.finding) == ("ok", True), older
    one_slot = tree(speed=2.5, port=(16.0, 16)) | {
        "0000:13:01.0": PciFacts("0000:13:01.0", max_speed=32.0, max_width=16)
    }
    assert "GPU 0: slot of generation 4" in found(FakeReaders(pci=one_slot))["pcie_width"].finding
    idle = {address: dataclasses.replace(facts, speed=2.5, width=1) if len(facts.parents) == 3 else facts
            for address, facts in narrow.items()}  # fmt: skip
    assert found(FakeReaders(pci=idle))["pcie_width"].status == "warning"
    virtual = {"/proc/cpuinfo": "processor : 0\nflags : fpu hypervisor lahf_lm\n"}
    assert found(FakeReaders(pci=idle, texts=virtual))["pcie_width"].status == "ok"
    emulated = {address: dataclasses.replace(facts, vendor=0x1B36) for address, facts in idle.items()}
    assert found(FakeReaders(pci=emulated))["pcie_width"].status == "ok"


def test_a_lost_gpu_hides_nothing_of_the_others() -> None:
    results = found(FakeReaders(gpus=changed(GPU, lost="GPU is lost", pcie_width=8)))
    assert results["gpus_answer"].status == "failing"
    assert results["pcie_width"].status == "ok"
    alone = found(FakeReaders(gpus=([dataclasses.replace(GPU, lost="GPU is lost")], "")))
    assert (alone["gpus_answer"].status, alone["pcie_width"].finding) == ("failing", "no GPU")


def test_gpus_of_other_jobs_and_screens_are_not_missed() -> None:
    driven = {f"/proc/driver/nvidia/gpus/0000:{bus}:00.0/information": "" for bus in ("1b", "1c", "1d")}
    job = FakeReaders(texts=driven, environment={"HOME": "/root", "SLURM_JOB_ID": "1"})
    assert found(job)["gpus_answer"].status == "ok"
    none = ([], "libnvidia-ml.so.1 not found")
    for vendor, kind in ((0x10DE, 0x030000), (0x1002, 0x030000), (0x8086, 0x030200)):
        screen = found(FakeReaders(gpus=none, pci=on_pci(vendor, kind)))["gpus_answer"]
        assert (screen.status, screen.finding) == ("not checked", "libnvidia-ml.so.1 not found")


def test_acs_that_only_root_can_read_is_named_where_it_would_matter() -> None:
    assert found(FakeReaders(pci=tree(acs=None)))["acs"].status == checks.NOT_CHECKED
    assert found(FakeReaders(pci=tree(acs=0x11)))["acs"].status == "ok"  # source validation redirects nothing
    apart = {address: dataclasses.replace(facts, parents=facts.parents[-1:]) for address, facts in tree().items()}
    assert found(FakeReaders(pci=apart))["acs"] == checks.ok("no two of them share a PCIe switch")


def test_links_alike_and_small_counts_are_no_alarm() -> None:
    """Rates as drivers state none: mantissa 15, exponent 255; replays of all links since a long time."""
    links = [LinkErrors(0, link, replays=5000 + link, crc=40, recoveries=0, effective_ber=1.5e-254, symbol_ber=1.5e-254)
             for link in range(18)]  # fmt: skip
    assert found(FakeReaders(link_errors=links))["nvlink_errors"] == checks.ok("18 links")


def test_rails_that_all_count_and_boards_that_differ_are_no_alarm() -> None:
    counters = {f"/sys/class/infiniband/mlx5_{card}/ports/1/counters/symbol_error": str(40000 + card)
                for card in range(2)}  # fmt: skip
    other = {"/sys/class/infiniband/mlx5_1/board_id": "DEL0000000036", "/sys/class/infiniband/mlx5_1/fw_ver": "22.1"}
    results = found(FakeReaders(texts=counters | other))
    assert (results["rail_errors"].status, results["rail_firmware"].status) == ("ok", "ok")


def test_the_firmware_is_named_so_that_nodes_can_be_compared() -> None:
    assert one("rail_firmware", FakeReaders()).finding == "MT_0000000838: 28.39.2048 on 2"


def test_ports_that_tell_no_rate_are_not_compared() -> None:
    readers = FakeReaders(texts={f"/sys/class/infiniband/mlx5_{card}/ports/1/rate": None for card in range(2)})
    assert found(readers)["rail_width"].status == checks.NOT_CHECKED


@pytest.mark.parametrize(("name", "readers"), QUIET)
def test_what_is_no_cause_for_alarm_raises_none(name: str, readers: Callable[[], FakeReaders]) -> None:
    assert one(name, readers()).status == checks.OK
