"""The table of settings is whole, is refused where it is not, and is asked of the libraries that are here."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from installed_mpi import installed
from linkgauge.app import cli
from linkgauge.errors import UsageError
from linkgauge.model.worded import LibrarySettings
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.mpi_t import displayed, taken
from linkgauge.run.machine.transports import absent_transports
from linkgauge.run.parent.devices import DeviceSet
from linkgauge.run.parent.mpi_library import resolve
from linkgauge.tune.in_launch import InLaunch
from linkgauge.tune.known import (
    Known,
    asked_as_displayed,
    asked_of_file,
    asked_of_itself,
    by_mpi_t,
    by_network_library,
    hsa_file,
)
from linkgauge.tune.table import SEEN, Setting, libraries, library, read_library
from thorough import most, thorough

USABLE = {one.vendor: one for one in reversed(installed()) if not one.problem}


def test_every_value_is_legal_once_and_not_the_default() -> None:
    for one in libraries().values():
        assert one.settings
        for setting in one.settings:
            assert len(set(setting.values)) == len(setting.values) > 0, setting.name
            assert setting.default not in setting.values, setting.name
            assert setting.what.endswith(".")


def test_a_name_of_another_library_is_told_whose_it_is() -> None:
    with pytest.raises(UsageError, match=r"NCCL_NCHANNELS_PER_PEER is RCCL's; NCCL does not read it"):
        library("nccl").setting("NCCL_NCHANNELS_PER_PEER")
    with pytest.raises(UsageError, match="did you mean 'NCCL_BUFFSIZE'"):
        library("nccl").setting("NCCL_BUFSIZE")


HEAD = 'title="X"\nvendors=["x"]\ntransports=["mpi"]\nseen="no"\nevidence="none"\n'
ONE = '[[setting]]\nname="UCX_TLS"\nscale="names"\nvalues=["a"]\nwhat="It."\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEAD + ONE.replace('"names"', '"sizes"'), "scale is 'sizes'"),
        (HEAD + ONE.replace('values=["a"]', ""), "listed as values"),
        (HEAD + ONE.replace('"names"\nvalues=["a"]', '"log2"\nlow=8\nhigh=4'), "low the less"),
        (HEAD + ONE.replace('"UCX_TLS"', '"LD_PRELOAD"'), "none that a table may set"),
        (HEAD + ONE.replace('["a"]', '["/tmp/x"]'), "none that a table may set"),
        (HEAD + ONE + ONE, "twice"),
        (HEAD + ONE + "only_with={UCX_Q='1'}\n", "none of the table"),
        (HEAD + ONE + "color='red'\n", "color"),
        (HEAD + ONE + "only=[{values=['b']}]\n", "only: 'b' is none of its values"),
        (ONE, "title"),
    ],
)
def test_a_wrong_table_names_file_and_cause(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as wrong:
        read_library(path)
    assert str(path) in str(wrong.value)
    assert told in str(wrong.value)


@pytest.mark.parametrize(
    ("patterns", "nodes", "environment", "values"),
    [
        ({"allreduce"}, False, {}, {"Ring", "Tree", "NVLS"}),
        ({"allreduce"}, False, {"NCCL_NVLS_ENABLE": "0"}, {"Ring", "Tree"}),
        ({"allreduce"}, True, {}, {"Ring", "Tree", "NVLS", "NVLSTree"}),
        ({"allgather"}, True, {}, {"Ring", "NVLS", "PAT"}),
        ({"alltoall"}, True, {}, {"Ring"}),
        ({"allgather", "allreduce"}, False, {"NCCL_NVLS_ENABLE": "1"}, {"Ring", "Tree", "NVLS"}),
    ],
)
def test_values_that_nothing_here_can_take_are_not_tried(
    patterns: set[str], nodes: bool, environment: dict[str, str], values: set[str]
) -> None:
    """NCCL's algorithms by function, as its user guide has them; without multicast there is no NVLS."""
    setting = library("nccl").setting("NCCL_ALGO")
    unfit = setting.unfit(patterns, nodes, environment)
    assert {*setting.without(unfit).values} == values
    assert all(unfit.values())
    channels = library("nccl").setting("NCCL_NVLS_NCHANNELS")
    off = environment.get("NCCL_NVLS_ENABLE") == "0"
    assert bool(channels.without(channels.unfit(patterns, nodes, environment)).values) is not off


def test_gpus_without_multicast_try_none_of_it() -> None:
    """As the driver says of each GPU; what an older one does not say may be there."""

    def devices(*multicast: str) -> DeviceSet:
        infos = tuple({"attributes": {"multicast": one} if one else {}} for one in multicast)
        return DeviceSet("cuda", tuple(range(len(infos))), infos)

    assert [devices(*some).multicast for some in (("1", "1"), ("1", "0"), ("", ""))] == [True, False, True]
    nccl = library("nccl")
    for name, left in (("NCCL_ALGO", {"Ring", "Tree"}), ("NCCL_NVLS_NCHANNELS", set()), ("NCCL_NVLS_ENABLE", set())):
        setting = nccl.setting(name)
        unfit = setting.unfit({"allreduce"}, False, {}, multicast=False)
        assert {*setting.without(unfit).values} == left
        assert "the GPUs have no NVLink multicast" in unfit.values()
    # The library's own default is not tried either where the environment has switched it off.
    off = {"NCCL_NVLS_ENABLE": "0"}
    switch = nccl.setting("NCCL_NVLS_ENABLE").beside("0")
    assert not switch.without(switch.unfit({"allreduce"}, False, off)).values


def _mpi(vendor: str) -> MpiInstallation:
    if vendor not in USABLE:
        pytest.skip(f"no {vendor} here")
    return USABLE[vendor]


@pytest.mark.parametrize("vendor", [pytest.param("mpich", marks=thorough("as Open MPI")), "openmpi"])
def test_an_mpi_library_tells_which_settings_it_reads(vendor: str) -> None:
    mpi, own = _mpi(vendor), library(vendor)
    foreign = Setting("MPIR_CVAR_NO_SUCH_THING", vendor, "names", ("1",), "Nothing.")
    wrong = dataclasses.replace(
        next(one for one in own.settings if "allreduce" in one.patterns), values=("no_such_algorithm",)
    )
    right = [one for one in own.settings if one.patterns == ("alltoall",) and one.is_of(mpi.version)]
    found = {
        one.setting.name: one
        for one in asked_of_itself([*right, wrong, foreign], by_mpi_t(mpi.library), mpi.title, "MPI_T")
    }
    assert found[foreign.name].values == ()
    assert "does not read it" in found[foreign.name].refused[""]
    assert found[wrong.name].values == ()  # a word that the library does not know
    taken = [value for one in right for value in found[one.name].values]
    assert taken
    for one in right:
        known = found[one.name]
        assert {*known.values} | {*known.refused} >= {*one.values} or "" in known.refused
        assert all("->" in known.told[value] for value in known.values)


def test_a_library_file_is_looked_through_for_whole_names(tmp_path: Path) -> None:
    file = tmp_path / "libnccl.so.2"
    file.write_bytes(b"\x7fELF\0NCCL_ALGO\0NCCL_PROTOCOLS\0" + b"\0" * 64)
    rccl = library("rccl").setting("NCCL_NCHANNELS_PER_PEER")
    nccl = library("nccl")
    asked = [nccl.setting("NCCL_ALGO"), nccl.setting("NCCL_PROTO"), dataclasses.replace(rccl, library="nccl"),
             nccl.setting("NCCL_BUFFSIZE")]  # fmt: skip
    algo, proto, peer, size = asked_of_file(asked, "NCCL 2.28", str(file))
    assert algo.values == asked[0].values
    assert proto.values == ()
    assert peer.refused[""] == "NCCL_NCHANNELS_PER_PEER is RCCL's; NCCL 2.28 does not read it"
    assert size.refused[""] == "NCCL_BUFFSIZE: NCCL 2.28 does not read it"  # RCCL has it too


@thorough("which settings a library reads is tested of its names")
@pytest.mark.parametrize("mpi", most([*USABLE.values()], [*USABLE.values()][:1]), ids=lambda mpi: mpi.name)
def test_ucx_and_libfabric_tell_which_settings_they_read(mpi: MpiInstallation) -> None:
    for transport, table, name, value, told in (
        ("ucx", "ucx", "UCX_MAX_EAGER_RAILS", "2", "UCX_MAX_EAGER_RAILS 1 -> 2 (its own table of options)"),
        ("ofi", "libfabric", "FI_TCP_NODELAY", "1", "FI_TCP_NODELAY empty -> 1 (fi_getparams)"),
    ):
        if absent := absent_transports("host").get(transport):
            pytest.skip(absent)
        one = dataclasses.replace(library(table).setting(name), values=(value,))
        nothing = dataclasses.replace(one, name=f"{name.partition('_')[0]}_NO_SUCH_THING")
        known, unknown = asked_of_itself([one, nothing], by_network_library(transport, mpi), table, SEEN[transport])
        assert known.told[value] == told
        assert unknown.values == ()
        every = asked_of_itself(library(table).settings, by_network_library(transport, mpi), table, SEEN[transport])
        assert sum(bool(found.values) for found in every) >= len(every) / 2  # the others are of what is not built in


def test_the_list_is_short_and_a_wrong_library_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["tune", "--list", "rocm"]) == 0
    assert "HSA_ENABLE_SDMA" in capsys.readouterr().out
    assert cli.run_command(["tune", "--list", "ncll"]) == 2
    assert "did you mean 'nccl'" in capsys.readouterr().err


def test_what_intel_mpi_complains_of_is_none_that_it_took() -> None:
    said = [  # of 2021.18.1, I_MPI_DEBUG=10
        "[0] MPI startup(): Intel(R) MPI Library, Version 2021.18.1  Build 20260626 (id: b44796a)",
        "[0] MPI startup(): Incorrect algorithm: ALLREDUCE=99, will be ignored",
        'MPI startup(): "zzz" shm transport is not supported. "bdw_sse" shm transport will be used.',
        "[0] MPI startup(): I_MPI_SHM=zzz",
        "[0] MPI startup(): I_MPI_SHM_OPT=intra",
        "[0] MPI startup(): I_MPI_ADJUST_ALLREDUCE=99",
        "[0] MPI startup(): I_MPI_ADJUST_ALLTOALL=2",
        "[0] MPI startup(): I_MPI_FOO environment variable is not supported.",
    ]
    assert taken(said) == {"I_MPI_SHM_OPT": "intra", "I_MPI_ADJUST_ALLTOALL": "2"}


def test_intel_mpi_tells_which_settings_it_takes() -> None:
    places = [Path(one) for one in os.environ.get("LINKGAUGE_TEST_MPI", "").split(os.pathsep) if one]
    mpi = next((one for place in places if (one := resolve(str(place))).vendor == "intel"), None)
    if mpi is None:
        pytest.skip("LINKGAUGE_TEST_MPI names no Intel MPI")
    table = library("impi")
    wrong = dataclasses.replace(table.setting("I_MPI_ADJUST_ALLREDUCE"), values=("2", "99"))
    nothing = dataclasses.replace(wrong, name="I_MPI_NO_SUCH_THING")
    number = dataclasses.replace(table.setting("I_MPI_SHM_CELL_FWD_SIZE"), values=("8192",))
    found = asked_of_itself([wrong, nothing, number], by_mpi_t(mpi.library, "intel"), mpi.title, SEEN["mpi_log"])
    assert [one.values for one in found] == [("2",), (), ("8192",)]
    assert found[2].told["8192"].startswith("I_MPI_SHM_CELL_FWD_SIZE -1 -> 8192")
    assert "takes it as what it has without" in found[0].refused["99"]
    assert "does not read it" in found[1].refused[""]


# As 8.1.17 wrote it on a machine of four nodes (rank 0, under MPICH_ENV_DISPLAY=1).
DISPLAYED = """\
PE 0: MPICH processor detected:
PE 0:   AMD Milan (25:48:1) (family:model:stepping)
PE 0: MPICH environment settings =====================================
PE 0:   MPICH_MEM_DEBUG_FNAME                          =
PE 0: MPICH/GPU environment settings =================================
PE 0:   MPICH_GPU_IPC_THRESHOLD                        = 1024
PE 0:   MPICH_USE_GPU_STREAM_TRIGGERED                 = 0
PE 0:   FI_CXI_RDZV_THRESHOLD                          = 16384
PE 0: MPICH/COLLECTIVE environment settings ==========================
PE 0:   MPICH_ALLTOALL_SHORT_MSG                       = 64-512
PE 0:   rank 0 required = single, was provided = single
PE 1:   MPICH_OFI_NIC_POLICY                           = NUMA
"""


def test_what_cray_mpich_lists_is_read() -> None:
    assert displayed(DISPLAYED.splitlines()) == {
        "MPICH_MEM_DEBUG_FNAME": "", "MPICH_GPU_IPC_THRESHOLD": "1024", "MPICH_USE_GPU_STREAM_TRIGGERED": "0",
        "FI_CXI_RDZV_THRESHOLD": "16384", "MPICH_ALLTOALL_SHORT_MSG": "64-512",
    }  # fmt: skip


# Begins as Cray MPICH does, and lists two variables; without a launcher where STAND_IN_ALONE is set it fails.
CRAY = r"""
#include <stdio.h>
#include <stdlib.h>
int MPI_T_init_thread(int wanted, int* got) { *got = wanted; return 0; }
int MPI_T_cvar_get_num(int* number) { *number = 0; return 0; }
int MPI_Finalize(void) { return 0; }
int MPI_Init(int* argc, char*** argv) {
  const char* size = getenv("MPICH_GPU_IPC_THRESHOLD");
  if (getenv("STAND_IN_ALONE")) return 1;
  if (!getenv("MPICH_ENV_DISPLAY")) return 0;
  fprintf(stderr, "PE 0: MPICH/GPU environment settings =================================\n");
  fprintf(stderr, "PE 0:   %-46s = %s\n", "MPICH_GPU_IPC_THRESHOLD", size ? size : "1024");
  fprintf(stderr, "PE 0:   %-46s = 1\n", "MPICH_GPU_IPC_ENABLED");
  return 0;
}
"""


def test_cray_mpich_tells_by_its_list_what_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "cray.c").write_text(CRAY)
    library_file = tmp_path / "libmpi_cray.so.12"
    subprocess.run([compiler, "-shared", "-fPIC", str(tmp_path / "cray.c"), "-o", str(library_file)], check=True)
    table = library("cray-mpich")
    some = [
        dataclasses.replace(table.setting("MPICH_GPU_IPC_THRESHOLD"), values=("1", "2048")),
        table.setting("MPICH_GPU_IPC_ENABLED"),  # that it does not follow
        table.setting("MPICH_OFI_NIC_POLICY"),  # that it does not list
    ]
    found = asked_as_displayed(some, by_mpi_t(library_file, "cray"), "Cray MPICH", SEEN[table.seen])
    assert found[0].told["1"] == "MPICH_GPU_IPC_THRESHOLD 1024 -> 1 (MPICH_ENV_DISPLAY)"
    assert "takes it as what it has without" in found[1].refused["0"]
    assert (found[2].values, found[2].told) == (some[2].values, {})
    monkeypatch.setenv("STAND_IN_ALONE", "1")
    silent = asked_as_displayed(some, by_mpi_t(library_file, "cray"), "Cray MPICH", SEEN[table.seen])
    assert [(one.values, one.told) for one in silent] == [(one.values, {}) for one in some]


def test_rocms_runtime_is_looked_through_for_names() -> None:
    file = hsa_file()
    if not file:
        pytest.skip("no libhsa-runtime64 here")
    sdma = library("rocm").setting("HSA_ENABLE_SDMA")
    nothing = dataclasses.replace(sdma, name="HSA_NO_SUCH_THING")
    known, unknown = asked_of_file([sdma, nothing], "ROCm", file)
    assert known.values == ("0",)
    assert unknown.refused[""] == "HSA_NO_SUCH_THING: ROCm does not read it"


def test_what_is_of_later_versions_is_not_of_earlier_ones() -> None:
    policy = library("nccl").setting("NCCL_CTA_POLICY")
    assert not policy.is_of("2.26.6")
    assert policy.is_of("2.27.3")
    assert policy.is_of("2.32.3")


def test_what_is_changed_in_a_launch_is_written_as_the_library_takes_it() -> None:
    told = InLaunch({"A": {"x": "4"}, "B": {"y": "2", "z": "a b"}}, {"A": "0", "B": "1", "C": "7"})
    assert told.written((("A", "x"), ("B", "y"))) == LibrarySettings.of_text("A=4 B=2")
    assert told.written(()) == LibrarySettings()
    assert told.written((("D", "1"),)) is None  # needs a launch
    assert told.written((("B", "z"),)) is None  # of two words
    four, none = LibrarySettings.of_text("A=4"), LibrarySettings()
    ways = [told.spelled(four, number) for number in range(5)]
    assert [way and way.text for way in ways] == ["A=4", "A=4 B=1", "A=4 C=7", "A=4 B=1 C=7", None]
    assert {told.meant(way) for way in ways if way} == {four}
    once = told.each_once([none, four, none, four], 9)
    assert [written for written, _ in once] == [none, four, none, four]
    assert len({spelled for _, spelled in once}) == 4
    assert all(spelled for _, spelled in once)
    assert told.each_once([none] * 20, 20) == [(none, spelled) for _, spelled in told.each_once([none] * 7, 7)]


@pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
def test_what_a_communicator_of_nccl_has_of_its_own_needs_no_launch() -> None:
    from linkgauge import _core
    from linkgauge.tune.choice import _as_configured

    fields = dict(_core.ccl_config_variables())
    own = {one.name: Known(one, one.values, {}, {}) for one in library("nccl").settings}
    assert {name for name, known in own.items() if not known.setting.relaunch} == fields.keys() & own.keys()
    taken = {name: _as_configured(known, "2.26.5").taken for name, known in own.items()}
    assert {name for name, values in taken.items() if values} == {
        "NCCL_CGA_CLUSTER_SIZE", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"
    }  # fmt: skip
    assert _as_configured(own["NCCL_CTA_POLICY"], "2.27.3").taken == {"1": "1", "2": "2"}
    assert not _as_configured(own["NCCL_MIN_CTAS"], "an unknown version").taken
