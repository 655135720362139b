"""`path` and `algorithm` as what the libraries read when they start, and as launches."""

from __future__ import annotations

import pytest

from linkgauge.model.case import Case
from linkgauge.model.worded import ServiceClass
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import plan_run
from linkgauge.plan.library_settings import class_settings, gpudirect_settings, library_settings, runtime_settings
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.plan_file import parse_plan

GIB = 1 << 30
GPUS = PlanMachine("cuda", 4, 8 * GIB, 8 * GIB, 8 * GIB, 16)


def case_of(transport: str, pattern: str = "allreduce", **words: str) -> Case:
    return Case(transport=transport, pattern=pattern, size=64, size_requested=64, devices=(0, 1), **words)  # type: ignore[arg-type]


def environments(text: str, abi: str = "openmpi") -> list[dict[str, str]]:
    """What each launch of a plan is started with, in the plan's order."""
    plan = parse_plan(text, "test", "test")
    run = plan_run(plan, expand(plan, GPUS), GPUS, lambda _: abi)
    assert all(launch.cases for launch in run), [launch.skipped for launch in run]
    return [{**dict(one.settings.env), **dict(one.settings.derived_env)} for one in run]


def test_without_path_and_algorithm_nothing_is_set() -> None:
    for transport in ("ccl", "mpi", "kernel", "staging"):
        for dialect in ("openmpi", "mpich", "intel"):
            assert library_settings(case_of(transport), dialect) == ((), "")


def test_direct_and_host_exclude_each_other() -> None:
    found = environments(
        '[[case]]\ntransport="ccl"\npattern="allreduce"\nsize="8"\npath=["default","direct","host","net"]'
    )
    default, direct, host, net = found
    assert default == {}
    # What NCCL's user guide says of each variable: peers off, shared memory off, network between devices of a node off.
    assert direct["NCCL_SHM_DISABLE"] == direct["NCCL_NET_DISABLE_INTRA"] == "1"
    assert "NCCL_P2P_DISABLE" not in direct
    assert host["NCCL_P2P_DISABLE"] == net["NCCL_P2P_DISABLE"] == "1"
    assert "NCCL_SHM_DISABLE" not in host
    assert net["NCCL_SHM_DISABLE"] == "1"
    assert host["NCCL_NVLS_ENABLE"] == net["NCCL_NVLS_ENABLE"] == "0"  # multicast goes between peers


def test_shared_memory_goes_off_too_when_the_environment_says_so() -> None:
    (found,) = environments(
        '[[launch]]\nenv={ NCCL_SHM_DISABLE = "1" }\n'
        '[[case]]\ntransport="ccl"\npattern="allreduce"\nsize="8"\npath="host"'
    )
    assert (found["NCCL_P2P_DISABLE"], found["NCCL_SHM_DISABLE"]) == ("1", "1")


def test_multicast_on_and_off_are_launches_of_their_own_and_the_default_sets_nothing() -> None:
    on_and_off = environments(
        '[[launch]]\nenv={ NCCL_NVLS_ENABLE = ["0", "1"] }\n[[case]]\ntransport="ccl"\npattern="allreduce"\nsize="8"'
    )
    assert on_and_off == [{"NCCL_NVLS_ENABLE": "0"}, {"NCCL_NVLS_ENABLE": "1"}]


@pytest.mark.parametrize(
    ("abi", "path", "variable"),
    [
        ("openmpi", "direct", "UCX_TLS"),
        ("openmpi", "host", "UCX_TLS"),
        ("mpich", "direct", "MPIR_CVAR_CH4_IPC_GPU_P2P_THRESHOLD"),
        ("mpich", "host", "MPIR_CVAR_CH4_IPC_GPU_P2P_THRESHOLD"),
        ("intel", "direct", "I_MPI_OFFLOAD_IPC"),
        ("intel", "host", "I_MPI_OFFLOAD_IPC"),
    ],
)
def test_mpi_is_told_in_its_own_words(abi: str, path: str, variable: str) -> None:
    text = f'[[case]]\ntransport="mpi"\npattern="pingpong"\nsize="8"\npairs="first"\npath="{path}"'
    (found,) = environments(text, abi)
    assert variable in found
    assert ("ipc" in found[variable] or found[variable] == "1") == (path == "direct") or abi == "mpich"
    settings, reason = library_settings(case_of("mpi", path=path), "another")
    assert settings == ()
    assert path in reason


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ({"path": "pcie"}, ["NVLink", "host"]),
        ({"path": "sideways"}, ["'sideways'", "direct, host, net"]),
        ({"algorithm": "nonsense"}, ["'nonsense'", "ring", "send_recv"]),
        ({"algorithm": "send_recv"}, ["alltoall, gather, scatter", "allreduce"]),
    ],
)
def test_what_ccl_cannot_be_told_is_a_reason(words: dict[str, str], parts: list[str]) -> None:
    settings, reason = library_settings(case_of("ccl", **words), "")
    assert settings == ()
    assert all(part in reason for part in parts), reason


def test_messages_are_the_transports_own_and_need_no_launch_of_their_own() -> None:
    for pattern in ("alltoall", "gather", "scatter"):
        assert library_settings(case_of("ccl", pattern, algorithm="send_recv"), "") == ((), "")
    found = environments('[[case]]\ntransport="ccl"\npattern="alltoall"\nsize="64"\nalgorithm=["default","send_recv"]')
    assert found == [{}]


def test_a_protocol_goes_with_its_algorithm() -> None:
    (found,) = environments('[[case]]\ntransport="ccl"\npattern="allreduce"\nsize="64"\nalgorithm="tree+LL128"')
    assert found == {"NCCL_ALGO": "tree", "NCCL_PROTO": "LL128"}


def test_intels_algorithms_are_its_own_numbers() -> None:
    case = case_of("mpi", "broadcast", algorithm="4")
    assert library_settings(case, "intel") == ((("I_MPI_ADJUST_BCAST", "4"),), "")
    assert library_settings(case, "mpich") == ((("MPIR_CVAR_BCAST_INTRA_ALGORITHM", "4"),), "")


def test_intels_mpi_is_told_of_gpus_where_their_memory_is_given_to_it_and_unless_told_otherwise() -> None:
    cases = (
        '[[case]]\ntransport=["mpi","staging"]\npattern="pingpong"\nsize="8"\npairs="first"\n'
        '[[case]]\ntransport="mpi"\npattern="pingpong"\nsize="16"\npairs="first"\nsource_memory="pinned"\n'
        'target_memory="pinned"\n'
    )
    told = {"I_MPI_OFFLOAD": "1", "I_MPI_OFFLOAD_MODE": "cuda", "I_MPI_OFFLOAD_CUDA_LIBRARY": "libcuda.so.1",
            "I_MPI_OFFLOAD_PIN": "0"}  # fmt: skip
    assert environments(cases, "intel") == [told, {}]
    assert environments(cases, "mpich") == [{}]
    plan = parse_plan(cases, "test", "test")
    others = PlanMachine("host", 4, 8 * GIB, 8 * GIB, 8 * GIB, 16)
    run = plan_run(plan, expand(plan, others), others, lambda _: "intel")
    assert all(launch.settings.derived_env == () for launch in run)
    off, _ = environments('[[launch]]\nenv={ I_MPI_OFFLOAD = "0" }\n' + cases, "intel")
    assert off["I_MPI_OFFLOAD"] == "0"


@pytest.mark.parametrize(
    ("transport", "dialect", "asked", "told"),
    [
        ("ccl", "", "3", ("NCCL_IB_SL", "3")),
        ("ccl", "", "dscp:26", ("NCCL_IB_TC", "104")),
        ("ucx", "", "0", ("UCX_IB_SL", "0")),
        ("nixl", "", "dscp:0", ("UCX_IB_TRAFFIC_CLASS", "0")),
        ("mpi", "openmpi", "15", ("UCX_IB_SL", "15")),
        ("staging", "mpich", "dscp:63", ("UCX_IB_TRAFFIC_CLASS", "252")),
        ("mpi", "mpich", "low_latency", ("MPICH_OFI_DEFAULT_TCLASS", "TC_LOW_LATENCY")),
    ],
)
def test_a_service_class_is_a_variable_of_the_library(transport: str, dialect: str, asked: str, told: object) -> None:
    assert class_settings(case_of(transport, service_class=ServiceClass.of_text(asked)), dialect) == ((told,), "")


@pytest.mark.parametrize(
    ("transport", "dialect", "asked"),
    [("ofi", "", "3"), ("copy_engine", "", "dscp:3"), ("ccl", "", "bulk_data"), ("mpi", "openmpi", "best_effort")],
)
def test_a_class_without_a_variable_is_a_reason(transport: str, dialect: str, asked: str) -> None:
    settings, reason = class_settings(case_of(transport, service_class=ServiceClass.of_text(asked)), dialect)
    assert settings == ()
    assert f"service class '{asked}'" in reason


@pytest.mark.parametrize(
    ("transport", "dialect", "on", "off"),
    [
        ("ccl", "", {"NCCL_NET_GDR_LEVEL": "SYS"}, {"NCCL_NET_GDR_LEVEL": "LOC"}),
        ("ucx", "", {"UCX_IB_GPU_DIRECT_RDMA": "yes"}, {"UCX_IB_GPU_DIRECT_RDMA": "no"}),
        ("ofi", "", {"FI_HMEM_DISABLE_P2P": "0"}, {"FI_HMEM_DISABLE_P2P": "1"}),
        ("mpi", "intel", {"I_MPI_OFFLOAD_RDMA": "1"}, {"I_MPI_OFFLOAD_RDMA": "0"}),
        (
            "staging",
            "openmpi",
            {"UCX_IB_GPU_DIRECT_RDMA": "yes", "OMPI_MCA_btl_openib_want_cuda_gdr": "1",
             "OMPI_MCA_pml_pami_enable_cuda": "1"},
            {"UCX_IB_GPU_DIRECT_RDMA": "no", "OMPI_MCA_btl_openib_want_cuda_gdr": "0",
             "OMPI_MCA_pml_pami_enable_cuda": "0"},
        ),
        (
            "mpi",
            "mpich",
            {"UCX_IB_GPU_DIRECT_RDMA": "yes", "MPIR_CVAR_CH4_OFI_ENABLE_HMEM": "1", "MV2_USE_GPUDIRECT_RDMA": "1"},
            {"UCX_IB_GPU_DIRECT_RDMA": "no", "MPIR_CVAR_CH4_OFI_ENABLE_HMEM": "0", "MV2_USE_GPUDIRECT_RDMA": "0"},
        ),
    ],
)  # fmt: skip
def test_gpudirect_is_each_librarys_own_switch(
    transport: str, dialect: str, on: dict[str, str], off: dict[str, str]
) -> None:
    for asked, told in (("on", on), ("off", off), ("", {})):
        settings, reason = gpudirect_settings(case_of(transport, gpudirect=asked), dialect)
        assert (dict(settings), reason) == (told, "")


def test_gpudirect_where_no_switch_is_known_is_a_reason_and_each_way_is_a_launch() -> None:
    settings, reason = gpudirect_settings(case_of("nvshmem", gpudirect="off"), "")
    assert (settings, reason) == ((), "no variable is known that turns GPUDirect RDMA of nvshmem off")
    assert "of this MPI library on" in gpudirect_settings(case_of("mpi", gpudirect="on"), "unknown")[1]
    text = '[[case]]\ntransport="ccl"\npattern="allreduce"\nsize="8"\ngpudirect=["on", "off", "default"]'
    assert environments(text) == [{"NCCL_NET_GDR_LEVEL": "SYS"}, {"NCCL_NET_GDR_LEVEL": "LOC"}, {}]


def test_classes_are_launches_of_their_own_and_jobs_have_each_their_own() -> None:
    text = '[[case]]\ntransport="ccl"\npattern="allreduce"\nsize="8"\nservice_class=[0, 3, "default"]'
    assert environments(text) == [{"NCCL_IB_SL": "0"}, {"NCCL_IB_SL": "3"}, {}]
    jobs = (
        '[[launch]]\nthreads={threads}\n[[job]]\nname="other"\ntransport="ccl"\npattern="alltoall"\nsize="64KiB"\n'
        'service_class=3\n[[case]]\ntransport="ccl"\npattern="allreduce"\nsize="8"\nranks=2\nbackground="other"\n'
        "service_class=[1, 3]"
    )
    plan = parse_plan(jobs.format(threads="false"), "test", "test")
    own, both = (launch.settings for launch in plan_run(plan, expand(plan, GPUS), GPUS, lambda _: "openmpi"))
    assert (own.derived_env, both.derived_env, both.job_env) == ((), (("NCCL_IB_SL", "3"),), ())
    assert own.job_env == (((0, 1), (("NCCL_IB_SL", "1"),)), ((2, 3), (("NCCL_IB_SL", "3"),)))
    copies = jobs.format(threads="true").replace('"ccl"\npattern="alltoall"', '"copy_engine"\npattern="local_copy"')
    plan = parse_plan(copies.replace("service_class=3\n[[case]]", 'on="same"\n[[case]]'), "test", "test")
    settings = [launch.settings for launch in plan_run(plan, expand(plan, GPUS), GPUS)]
    assert [(one.derived_env, one.job_env) for one in settings] == [((("NCCL_IB_SL", n),), ()) for n in "13"]
    plan = parse_plan(jobs.format(threads="true"), "test", "test")
    reasons = [reason for launch in plan_run(plan, expand(plan, GPUS), GPUS) for _, reason in launch.skipped]
    assert reasons == ["jobs of different service classes need processes: leave out --threads"]


def test_devices_of_an_unknown_kind_need_no_settings() -> None:
    """A run's launches may name any: `advise` reads them."""
    for transport in ("mpi", "ccl", "copy_engine"):
        case = Case(transport, "unidirectional", 8, 8, (0, 1))
        assert runtime_settings(case, "nan", "mpich") == ()
