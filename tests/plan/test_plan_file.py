"""Plan files: what is wrong is named with file and key, nothing crashes, and a stranger's plan does no harm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linkgauge.app.planning import parse_env
from linkgauge.errors import UsageError
from linkgauge.model.case import DIMENSIONS
from linkgauge.plan.builtin import plan_of
from linkgauge.plan.papers import read_paper
from linkgauge.plan.plan_file import parse_plan, read_plan
from linkgauge.plan.tuning_variables import safe_variable

GOOD = '[[case]]\npattern = "pingpong"\nsize = "8"\n'
JOB = GOOD + '[[job]]\nname="x"\ntransport="kernel"\npattern="local_copy"\nsize="8"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["no [[case]]"]),
        ("x = ", ["not valid TOML"]),
        ('nonsense = 1\n' + GOOD, ["unknown key 'nonsense'", "expected one of"]),
        (GOOD + 'trasport="mpi"', ["[[case]] 1", "trasport", "did you mean 'transport'"]),
        (GOOD + '[[case]]\npattern="pingpnog"\nsize="8"', ["[[case]] 2", "pattern", "pingpnog"]),
        ('[[case]]\npattern="pingpong"\nsize="64KB"', ["size", "64KB", "did you mean 64KiB"]),
        ('[[case]]\npattern="pingpong"\nsize=true', ["size", "true"]),
        ('[[case]]\npattern="pingpong"\nsize=[]', ["size", "empty"]),
        ('[[case]]\npattern="pingpong"\nsize="8"\nwindow="many"', ["window", "many", "whole number"]),
        ('[[case]]\npattern="pingpong"\nsize="8"\nwindow=0', ["window", "from 1 to", "0"]),
        ('[[case]]\npattern="pingpong"\nsize="8"\nmax_time="10"', []),
        ('[[case]]\npattern="pingpong"\nsize="8"\nmax_time="10 parsec"', ["max_time", "expected a time"]),
        ('[[case]]\npattern="pingpong"\nsize="8"\nin_place="maybe"', ["in_place", "yes or no"]),
        ('[[case]]\npattern="pingpong"\nsize="8"\nci_width=2.0', ["above 0 and up to 1"]),
        ('[[case]]\npattern="pingpong"\nsize="8"\npairs="most"', ["pairs", "most"]),
        ('[[case]]\npattern="pingpong"\nsize="8"\ndevices="all"', ["devices", "[0, 1]"]),
        ('[[case]]\npattern="pingpong"\nsize="8"\ndevices=[-1]', ["devices"]),
        ('[[case]]\nsize="8"', ["no 'pattern'"]),
        ('[[case]]\npattern="pingpong"', ["no 'size'"]),
        (JOB.replace('size="8"', ""), ["[[job]] 1", "no 'size'"]),
        (JOB.replace('"x"', '"x y"'), ["[[job]] 1", "name 'x y'"]),
        (JOB + 'duty=2', ["duty", "up to 1"]),
        (JOB + 'on="there"', ["[[job]] 1", "rest:1/4"]),
        (JOB + 'clock="event"', ["unknown key 'clock'"]),
        ('[[case]]\npattern="pingpong"\nsize="8"\nranks="120%"', ["ranks", "120%"]),
        ('case = 3', ["expected [[case]] tables", "[[case]]"]),
        ('case = [3]', ["expected [[case]] tables"]),
        ('repeat = 0\n' + GOOD, ["repeat", "from 1"]),
        ('seed = "x"\n' + GOOD, ["seed"]),
        ('time_limit = 10\n' + GOOD, ["time_limit", "expected a text"]),
        ('time_limit = "10"\n' + GOOD, ["time_limit", "expected a time"]),
        ('memory_limit = "200%"\n' + GOOD, ["memory_limit", "100%"]),
        (GOOD + '[[launch]]\nthreads = "yes"', ["[[launch]] 1", "threads", "true or false"]),
        (GOOD + '[[launch]]\nenvironment = {}', ["[[launch]] 1", "unknown key 'environment'"]),
        (GOOD + '[[launch]]\nbind = "somewhere"', ["bind", "nearest"]),
        (GOOD + '[[launch]]\nthread_level = "double"', ["thread_level", "funneled"]),
        (GOOD + 'launch = "absent"', ["launch 'absent'"]),
        (GOOD + '[[launch]]\nmpi = "/tmp/evil"', ["is a path", "--mpi"]),
        (GOOD + '[[launch]]\nlauncher_args = ["--evil"]', ["unknown key 'launcher_args'"]),
        (GOOD + '[[launch]]\nenv = { LD_PRELOAD = "x" }', ["LD_PRELOAD", "--env"]),
        (GOOD + '[[launch]]\nenv = { NCCL_NET_PLUGIN = "x" }', ["NCCL_NET_PLUGIN"]),
        (GOOD + '[[launch]]\nenv = { OMPI_MCA_plm_rsh_agent = "x" }', ["OMPI_MCA_plm_rsh_agent"]),
        (GOOD + '[[launch]]\nenv = { NCCL_ALGO = "/x" }', ["NCCL_ALGO"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_file_and_key(text: str, words: list[str]) -> None:
    if not words:
        parse_plan(text, "a.toml", "a")
        return
    with pytest.raises(UsageError) as caught:
        parse_plan(text, "a.toml", "a")
    said = str(caught.value)
    assert said.startswith("a.toml: ")
    assert "\n" not in said
    for word in words:
        assert word in said


PAPER = """title = "A paper"
estimator = "mean"
unit = "us"
left_out = []
[reference]
kind = "misc"
title = "A paper"
authors = ["Doe, Jane"]
where = "a shelf"
year = 2024
[every_case]
warmup = 3
window = 4
[figure.12]
covers = ["12"]
[[figure.12.launch]]
name = "plain"
[[figure.12.case]]
pattern = "pingpong"
size = "8"
[[figure.12.case]]
pattern = "pingpong"
size = "64"
window = 2
"""


def test_a_papers_figure_is_a_plan_with_what_every_case_has_and_it_does_not_say(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(PAPER)
    figure = read_paper(tmp_path / "mine.toml").figures[0]
    assert (figure.name, figure.plan, figure.estimator, figure.unit) == ("mine:12", "mine-12", "mean", "us")
    plan = figure.load()
    assert plan.name == "mine-12"
    assert [(one.values["warmup"], one.values["window"]) for one in plan.cases] == [((3,), (4,)), ((3,), (2,))]
    assert plan.launches[0].name == "plain"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("unit =", "unti =", "mine.toml: unknown key 'unti' (did you mean 'unit'?)"),
        ("covers =", "cover =", "mine.toml: [figure.12]: unknown key 'cover' (did you mean 'covers'?)"),
        ('"plain"\n', '"plain"\nmpj = ""\n', "mine.toml: [[figure.12.launch]] 1: unknown key 'mpj'"),
        ("window = 2", "windw = 2", "mine.toml: [[figure.12.case]] 2: unknown key 'windw' (did you mean 'window'?)"),
        ("window = 2", 'launch = "other"', "mine.toml: [[figure.12.case]] 2: launch 'other' is not in the plan"),
        ('covers = ["12"]', "repeat = 0", "mine.toml: [figure.12]: repeat is 0"),
    ],
)
def test_what_is_wrong_in_a_papers_file_is_named_with_figure_and_key(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(PAPER.replace(old, new))
    with pytest.raises(UsageError, match=re.escape(said)):
        read_paper(tmp_path / "mine.toml").figures[0].load()


def test_a_plan_file_of_ones_own_has_no_figures() -> None:
    with pytest.raises(UsageError, match="unknown key 'figure'"):
        parse_plan('[[figure.12.case]]\npattern = "pingpong"\nsize = "8"', "a.toml", "a")


def test_tuning_variables_are_allowed_and_make_a_product() -> None:
    plan = parse_plan(
        GOOD + '[[launch]]\nenv = { NCCL_P2P_DIRECT_DISABLE = ["0", "1"], UCX_TLS = "sm,self" }', "a", "a"
    )
    assert plan.launches[0].env == {"NCCL_P2P_DIRECT_DISABLE": ("0", "1"), "UCX_TLS": ("sm,self",)}


LOADING = (
    "PATH PYTHONPATH LD_LIBRARY_PATH FI_PROVIDER_PATH HSA_TOOLS_LIB CUDA_INJECTION64_PATH UCX_MODULE_DIR "
    "NCCL_TUNER_PLUGIN OMPI_MCA_mca_base_component_path NCCL_COMM_ID I_MPI_ROOT CUDA_MPS_PIPE_DIRECTORY "
    "CUDA_MPS_LOG_DIRECTORY OMPI_MCA_btl_vader_backing_directory UCX_ERROR_MAIL_TO UCX_ERROR_MAIL_FOOTER NCCL_RAS_ADDR "
    "UCX_GDB_COMMAND UCX_MODULES UCX_LOG_FILE UCX_PROFILE_FILE UCX_MEMTRACK_DEST UCX_POSIX_DIR UCX_TCP_PORT_RANGE "
    "NCCL_NET_PLUGIN NCCL_PROFILER_PLUGIN NCCL_ENV_PLUGIN NCCL_CONF_FILE NCCL_TOPO_FILE NCCL_DEBUG_FILE NCCL_HOSTID "
    "NCCL_GRAPH_DUMP_FILE FI_HOOK FI_VERBS_XRCD_FILENAME FI_PSM2_NAME_SERVER FI_OFI_MRAIL_ADDR FI_LOG_PROV "
    "MPIR_CVAR_QMPI_TOOL_LIST MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE MPIR_CVAR_CH3_INTERFACE_HOSTNAME MPICH_DIR "
    "MPIR_CVAR_NAMESERV_FILE_PUBDIR MPICH_MEM_DEBUG_FNAME OMPI_MCA_coll_tuned_dynamic_rules_filename "
    "OMPI_MCA_coll_han_use_dynamic_file_rules OMPI_MCA_btl_openib_device_param_files OMPI_MCA_osc_sm_backing_directory "
    "I_MPI_HYDRA_BOOTSTRAP_EXEC I_MPI_HYDRA_BOOTSTRAP I_MPI_HYDRA_HOST_FILE I_MPI_PMI_LIBRARY I_MPI_GTOOL I_MPI_TMPDIR "
    "I_MPI_OFFLOAD_CUDA_LIBRARY OMP_TOOL_LIBRARIES CUDA_CACHE_PATH CUDA_ENABLE_COREDUMP_ON_EXCEPTION CUDA_COREDUMP_PIPE"
    " "
    "HSA_TOOLS_REPORT_LOAD_FAILURE HIP_PATH UCC_CL_BASIC_CONFIG_FILE MV2_USE_HOSTFILE_PATH RCCL_MSCCL_ALGO_DIR UCX_FOO"
)
TUNABLE = (
    "NCCL_ALGO NCCL_MAX_CTAS NCCL_NET_GDR_LEVEL NCCL_NET_GDR_C2C NCCL_IB_HCA NCCL_SOCKET_IFNAME NCCL_DEBUG UCX_TLS "
    "NCCL_P2P_DIRECT_DISABLE NCCL_CUMEM_ENABLE NCCL_IB_QPS_PER_CONNECTION UCX_RNDV_THRESH UCX_NET_DEVICES FI_PROVIDER "
    "UCX_RC_MLX5_TX_QUEUE_LEN UCX_IB_GPU_DIRECT_RDMA FI_TCP_IFACE FI_CXI_RDZV_PROTO "
    "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM "
    "MPICH_GPU_SUPPORT_ENABLED OMPI_MCA_pml OMPI_MCA_btl_tcp_if_include OMPI_MCA_coll_tuned_use_dynamic_rules "
    "OMPI_MCA_btl_vader_single_copy_mechanism I_MPI_ADJUST_ALLREDUCE I_MPI_FABRICS HSA_ENABLE_SDMA HSA_XNACK "
    "CUDA_VISIBLE_DEVICES CUDA_DEVICE_MAX_CONNECTIONS OMP_NUM_THREADS MV2_USE_GPUDIRECT_RDMA"
)


@pytest.mark.parametrize("name", LOADING.split())
def test_variables_that_load_or_run_something_are_not(name: str) -> None:
    assert not safe_variable(name, "x")


@pytest.mark.parametrize("name", TUNABLE.split())
def test_variables_of_known_kinds_are(name: str) -> None:
    assert safe_variable(name, "1")
    assert not safe_variable(name, "/1")
    assert not safe_variable(name, "1\n")


def test_a_variable_that_a_library_brings_tomorrow_is_allowed_by_its_kind_alone() -> None:
    for prefix in ("NCCL_", "UCX_", "OMPI_MCA_btl_", "MPIR_CVAR_", "I_MPI_", "CUDA_"):
        assert safe_variable(f"{prefix}NEW_THING_THRESHOLD", "8K")
        assert not safe_variable(f"{prefix}NEW_THING", "x")
        for word in ("PATH", "FILE", "DIRECTORY", "ADDR", "SERVER", "MAIL", "COMMAND", "PLUGIN", "LIBRARY"):
            assert not safe_variable(f"{prefix}NEW_{word}", "x")
            assert not safe_variable(f"{prefix}ENABLE_{word}_SIZE", "x")


@pytest.mark.parametrize("value", ["8M", "4 MiB", "large", ""])
def test_an_amount_that_nccl_would_read_without_its_unit_is_refused(value: str) -> None:
    """It reads 8M as 8, and dies of SIGFPE with a buffer of 8 bytes."""
    with pytest.raises(UsageError, match=f"NCCL_BUFFSIZE is '{value}': expected a whole number"):
        parse_env([f"NCCL_BUFFSIZE=4194304,{value}"])
    with pytest.raises(UsageError, match="expected a whole number, NCCL reads no unit"):
        parse_plan(GOOD + f'[[launch]]\nname="x"\nenv={{NCCL_P2P_NVL_CHUNKSIZE=["0x40000", "{value}"]}}', "a.toml", "a")
    assert parse_env(["NCCL_BUFFSIZE=4194304,0x40000,-2", "UCX_RNDV_THRESH=8K"])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, word in ((tmp_path / "none.toml", "no such file"), (tmp_path, "folder")):
        with pytest.raises(UsageError, match=word):
            read_plan(path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="UTF-8"):
        read_plan(tmp_path / "binary.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 20 | 1))
    with pytest.raises(UsageError, match="too large"):
        read_plan(tmp_path / "large.toml")
    with pytest.raises(UsageError, match="did you mean 'quick'"):
        plan_of("quik")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=400))
def test_any_text_is_a_plan_or_a_usage_error(text: str) -> None:
    try:
        parse_plan(text, "fuzz", "fuzz")
    except UsageError as error:
        said = str(error)
    else:
        return
    assert said.startswith("fuzz: ")


scalars = st.one_of(st.integers(), st.booleans(), st.floats(allow_nan=False), st.text("abc:x,0189%KiB-", max_size=12))


def toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(DIMENSIONS)), scalars | st.lists(scalars, max_size=3), max_size=6))
def test_any_values_under_known_keys_are_a_plan_or_a_usage_error(table: dict[str, object]) -> None:
    lines = [f"{key} = {toml(value)}" for key, value in table.items() if not isinstance(value, float) or value == value]
    text = "[[case]]\n" + "\n".join(line for line in lines if "inf" not in line)
    try:
        plan = parse_plan(text, "fuzz", "fuzz")
    except UsageError as error:
        assert str(error).startswith("fuzz: ")  # noqa: PT017  # both ends are right; this one must name the file
    else:
        assert plan.cases


def test_every_dimension_has_a_flag_and_a_plan_key_of_one_name() -> None:
    import dataclasses

    from linkgauge.model.case import Case

    columns = set(Case("mpi", "pingpong", 8, 8, (0, 1)).dimensions())
    # size_requested is size before it was restated; devices has subsets, as a key of its own, and devices_per_node
    # says how they are numbered; settings are a search's own.
    assert columns - set(DIMENSIONS) == {"size_requested", "devices", "devices_per_node", "settings"}
    assert set(DIMENSIONS) - columns == set()
    assert all(
        dimension.flag == "--" + name.removesuffix("_ns").replace("_", "-") for name, dimension in DIMENSIONS.items()
    )
    assert {field.name for field in dataclasses.fields(Case)} - {"stop", *(columns - set(DIMENSIONS))} <= set(
        DIMENSIONS
    )


# Keys of a [[case]] that are no dimension of a case, or a dimension of another kind, and what they lack by intention.
NOT_DIMENSIONS = {
    "devices": {"flag"},  # the flag --devices chooses the run's devices; the column is there
    "pairs": {"column"},  # which sets of devices become cases: the column is devices
    "placement": {"column"},
    "swap_roles": {"column"},  # a load as the measured job is a case of its own
    "until_gain": {"flag", "column"},  # sizes given by flags are all measured; evidence says how a curve ended
    "until_time": {"flag", "column"},
    "fit_size": {"flag", "column"},  # sizes given by flags are all measured; the column is the size that fitted
    "where_present": {"flag", "column"},  # a transport that is named by a flag is skipped with its reason
    "on": {"flag", "column"},  # --devices chooses the kind
    "concurrent_pairs": {"column"},  # another pattern in place of the pair's: the column is pattern
    "launch": {
        "flag",
        "column",
    },  # names [[launch]] tables, whose settings have flags; the column is the launch's number
}


def test_every_key_of_a_case_has_flag_and_column_or_a_reason() -> None:
    from linkgauge.app.run import run_command
    from linkgauge.model.case import Case
    from linkgauge.plan.plan_file import CASE, LAUNCH

    flags = {flag for parameter in run_command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    columns = set(Case("mpi", "pingpong", 8, 8, (0, 1)).dimensions())
    for key in CASE:
        has = {
            "flag": "--" + key.replace("_", "-") in flags and key != "devices",
            "column": key in columns or f"{key}_ns" in columns,
        }
        assert {what for what, there in has.items() if not there} == NOT_DIMENSIONS.get(key, set()), key
    # size_requested is size before it was restated, devices_per_node how places are numbered, settings a search's.
    assert {name.removesuffix("_ns") for name in columns} - set(CASE) == {
        "size_requested",
        "devices_per_node",
        "settings",
    }
    # A launch's name is what cases call it by.
    assert {key for key in LAUNCH if "--" + key.replace("_", "-") not in flags} == {"name"}


def test_the_page_on_plans_names_the_keys_that_are_no_dimensions_and_its_examples_are_plans(tmp_path: Path) -> None:
    from linkgauge.plan.plan_file import CASE, LAUNCH

    page = (Path(__file__).parents[2] / "docs" / "reference" / "plans.md").read_text()
    for name in (*(CASE.keys() - {one.key for one in DIMENSIONS.values()}), *LAUNCH):
        assert f"| `{name}` | " in page, name
    example = page.split("```toml\n")[1].split("```")[0]
    plan = parse_plan(example, "docs/reference/plans.md", "example")
    assert len(plan.cases) == 2
    assert plan.launches[1].env["UCX_TLS"] == ("sm,self", "tcp,self")
    paper = tmp_path / "sc24.toml"
    paper.write_text(page.split("```toml\n")[-1].split("```")[0])
    assert [figure.load().name for figure in read_paper(paper).figures] == ["sc24-12"]
