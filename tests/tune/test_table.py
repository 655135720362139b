"""The table of settings is whole, is refused where it is not, and is asked of the libraries that are here."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from linkgauge.app import cli
from linkgauge.errors import UsageError
from linkgauge.run.mpi_library import MpiInstallation, find_all, resolve
from linkgauge.run.transports import absent_transports
from linkgauge.tune.known import asked_of_ccl, asked_of_itself, by_mpi_t, by_network_library
from linkgauge.tune.mpi_t import taken
from linkgauge.tune.table import SEEN, Setting, libraries, library, read_library

USABLE = {one.vendor: one for one in reversed(find_all()) if not one.problem}


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
        (HEAD + ONE + "colour='red'\n", "colour"),
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


def _mpi(vendor: str) -> MpiInstallation:
    if vendor not in USABLE:
        pytest.skip(f"no {vendor} here")
    return USABLE[vendor]


@pytest.mark.parametrize("vendor", ["mpich", "openmpi"])
def test_an_mpi_library_tells_which_settings_it_reads(vendor: str) -> None:
    mpi, own = _mpi(vendor), library(vendor)
    foreign = Setting("MPIR_CVAR_NO_SUCH_THING", vendor, "names", ("1",), "Nothing.")
    wrong = dataclasses.replace(
        next(one for one in own.settings if "allreduce" in one.patterns), values=("no_such_algorithm",)
    )
    right = [one for one in own.settings if one.patterns == ("alltoall",) and one.is_of(mpi.version)]
    found = {
        one.setting.name: one for one in asked_of_itself([*right, wrong, foreign], by_mpi_t(mpi), mpi.title, "MPI_T")
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
    asked = [nccl.setting("NCCL_ALGO"), nccl.setting("NCCL_PROTO"), dataclasses.replace(rccl, library="nccl")]
    algo, proto, peer = asked_of_ccl(asked, "NCCL", "2.28", str(file))
    assert algo.values == asked[0].values
    assert proto.values == ()
    assert peer.refused[""] == "NCCL_NCHANNELS_PER_PEER is RCCL's; NCCL 2.28 does not read it"


@pytest.mark.parametrize("mpi", USABLE.values(), ids=USABLE)
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
    found = asked_of_itself([wrong, nothing, number], by_mpi_t(mpi, log=True), mpi.title, SEEN["mpi_log"])
    assert [one.values for one in found] == [("2",), (), ("8192",)]
    assert found[2].told["8192"].startswith("I_MPI_SHM_CELL_FWD_SIZE -1 -> 8192")
    assert "takes it as what it has without" in found[0].refused["99"]
    assert "does not read it" in found[1].refused[""]
