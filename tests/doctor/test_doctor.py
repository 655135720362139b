"""Each check of the doctor under the condition it is for, faked, and under its absence."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from fake_readers import CRAY, GPU, MPICH, FakeReaders, changed
from linkgauge.app import cli
from linkgauge.doctor import check as checks
from linkgauge.doctor.readers import Readers


def found(readers: Readers) -> dict[str, checks.Result]:
    return {one.name: result for one, result in checks.run_checks(readers)}


def test_a_healthy_machine_passes_every_check() -> None:
    bad = {name: result for name, result in found(FakeReaders()).items() if result.status not in ("ok",)}
    # These GPUs belong to no NVLink fabric: the one check that does not apply.
    assert set(bad) == {"imex"}
    assert bad["imex"].status == checks.NOT_CHECKED


CONDITIONS: list[tuple[str, str, str, Callable[[], FakeReaders]]] = [
    ("ranks_see_each_other", "failing", "rank 0", lambda: FakeReaders(ranks=[(0, 1), (0, 1)])),
    ("ranks_see_each_other", "failing", "no launcher", lambda: FakeReaders(ranks="no launcher here")),
    ("ranks_on_one_device", "failing", "CUDA_VISIBLE_DEVICES", lambda: FakeReaders(
        environment={"HOME": "/root", "CUDA_VISIBLE_DEVICES": "0,0"})),
    ("ranks_on_one_device", "failing", "twice", lambda: FakeReaders(gpus=changed(GPU, uuid="GPU-b"))),
    ("devices_hidden", "warning", "CUDA_VISIBLE_DEVICES=1", lambda: FakeReaders(
        visible=1, environment={"HOME": "/root", "CUDA_VISIBLE_DEVICES": "1"})),
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
    ("gpu_direct", "warning", "GDRCopy", lambda: FakeReaders(texts={"/dev/gdrdrv": None})),
    ("imex", "failing", "in progress", lambda: FakeReaders(gpus=changed(GPU, fabric_state="in progress"))),
    ("imex", "warning", "no IMEX channel", lambda: FakeReaders(
        gpus=changed(GPU, fabric_state="completed", fabric_across_hosts=True),
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
    ("other_gpu_users", "warning", "4711", lambda: FakeReaders(gpus=changed(GPU, processes=(4711,)))),
    ("clocks_capped", "warning", "1200 of 1980", lambda: FakeReaders(gpus=changed(GPU, clock_limit=1200))),
    ("clocks_capped", "warning", "500 of 700", lambda: FakeReaders(gpus=changed(GPU, power_limit=500))),
    ("clocks_capped", "warning", "heat", lambda: FakeReaders(gpus=changed(GPU, throttle=("heat",)))),
    ("pcie_width", "failing", "x8 of x16", lambda: FakeReaders(gpus=changed(GPU, pcie_width=8))),
    ("pcie_width", "warning", "GPU 0: x8 of x16", lambda: FakeReaders(
        gpus=changed(GPU, pcie_width=8, pcie_width_max=8))),
    ("pcie_width", "warning", "GPU 0: generation 3 of 5", lambda: FakeReaders(
        gpus=changed(GPU, pcie_generation=3, pcie_generation_max=3))),
    ("nvlinks", "failing", "17 of 18", lambda: FakeReaders(gpus=changed(GPU, nvlinks_active=17))),
    ("rails", "warning", "mlx5_1/1", lambda: FakeReaders(
        texts={"/sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN"})),
    ("rail_width", "warning", "mlx5_1/1 has 2 of 4 lanes", lambda: FakeReaders(
        texts={"/sys/class/infiniband/mlx5_1/ports/1/rate": "100 Gb/sec (2X HDR)"})),
    ("rail_width", "warning", "mlx5_1/1 is at 100 of 200 Gb/s", lambda: FakeReaders(
        texts={"/sys/class/infiniband/mlx5_1/ports/1/rate": "100 Gb/sec (4X EDR)"})),
    ("nearest_card", "warning", "leaves none of the cards here", lambda: FakeReaders(
        environment={"HOME": "/root", "NCCL_IB_HCA": "mlx4"})),
    ("nearest_card", "warning", "NCCL_IB_HCA", lambda: FakeReaders(
        environment={"HOME": "/root", "NCCL_IB_HCA": "mlx5_1"})),
    ("kernel_cache", "warning", "cannot be written", lambda: FakeReaders(writable=False)),
    ("temporary_folder", "failing", "TMPDIR", lambda: FakeReaders(environment={"HOME": "/", "TMPDIR": "/" + "x" * 90})),
    ("cores", "warning", "2 ranks share 1", lambda: FakeReaders(cores={0})),
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
    result = found(readers)["nearest_card"]
    assert (result.status == "ok") == (left is None or near in left), result
    if result.status != "ok":
        assert result.fix.startswith(f"take mlx5_{near} out of" if value.startswith("^") else f"add mlx5_{near} to")


def test_gpus_of_others_are_not_said_to_be_none() -> None:
    texts = {f"/sys/class/kfd/kfd/topology/nodes/{node}/gpu_id": str(node * 4096) for node in range(9)}
    for there, said in (({}, "NVML: Not Found"), (texts, "8 AMD GPUs: this check knows NVIDIA's alone")):
        results = found(FakeReaders(gpus=([], "NVML: Not Found"), visible=8, texts=there))
        for name in ("devices_hidden", "pcie_width", "clocks_capped", "device_affinity"):
            if name == "devices_hidden" and there:  # those of either vendor are counted
                assert (results[name].status, results[name].finding) == ("ok", "all 8 GPUs are visible")
            else:
                assert (results[name].status, results[name].finding) == ("not checked", said)
    hiding = FakeReaders(gpus=([], "x"), visible=2, texts=texts, environment={"ROCR_VISIBLE_DEVICES": "0,1"})
    hidden = found(hiding)["devices_hidden"]
    assert (hidden.status, hidden.fix) == ("warning", "unset ROCR_VISIBLE_DEVICES")
    assert hidden.finding == "2 of 8 GPUs are visible (ROCR_VISIBLE_DEVICES=0,1)"


@pytest.mark.parametrize(("name", "status", "word", "make"), CONDITIONS, ids=[f"{c[0]}-{c[2]}" for c in CONDITIONS])
def test_a_condition_is_found_with_its_cost_and_fix(
    name: str, status: str, word: str, make: Callable[[], FakeReaders]
) -> None:
    result = found(make())[name]
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


def test_a_fabric_that_ends_with_the_host_needs_no_imex() -> None:
    readers = FakeReaders(gpus=changed(GPU, fabric_state="completed"),
                          texts={"/dev/nvidia-caps-imex-channels/channel0": None})  # fmt: skip
    assert found(readers)["imex"] == checks.ok("the fabric, which ends with this host, is there")


def test_every_check_has_a_condition_that_it_finds() -> None:
    found(FakeReaders())
    assert {condition[0] for condition in CONDITIONS} == set(checks.CHECKS)


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
