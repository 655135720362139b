"""Loads as text: what is written comes back, in canonical form, and what is no load is told in one line."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkgauge.errors import UsageError
from linkgauge.model.background import Pace
from linkgauge.model.case import Case, LoadCase, Loads, loads_written

DEVICES = st.lists(st.integers(0, 63), min_size=1, max_size=8, unique=True).map(tuple)
PACES = st.builds(
    Pace, burst=st.integers(0, 1 << 20), every_ns=st.integers(0, 10**12),
    duty=st.sampled_from([1.0, 0.5, 0.125, 0.01]), offset_ns=st.integers(0, 10**9),
)  # fmt: skip
CASES = st.builds(
    Case, transport=st.sampled_from(["copy_engine", "kernel", "ccl", "mpi"]),
    pattern=st.sampled_from(["alltoall", "host_to_device", "local_copy", "alltoallv"]),
    size=st.integers(0, 1 << 40), size_requested=st.just(0), devices=DEVICES,
    source_memory=st.sampled_from(["device", "pinned"]), window=st.integers(1, 64), blocks=st.integers(0, 200),
    huge_pages=st.booleans(), distribution=st.sampled_from(["", "zipf:1.2", "0,3;1,0"]),
)  # fmt: skip
LIBRARIES = st.sampled_from(["", "same", "mpich-4.0.2"])
LOADS = st.lists(st.builds(LoadCase, CASES, PACES, LIBRARIES), min_size=1, max_size=4).map(
    lambda loads: tuple(
        dataclasses.replace(one, case=dataclasses.replace(one.case, size_requested=one.case.size)) for one in loads
    )
)


@settings(deadline=None)
@given(LOADS)
def test_what_is_written_comes_back(loads: tuple[LoadCase, ...]) -> None:
    found = Loads.of(loads)
    assert found.each == Loads.of_text(found.text).each == loads
    assert Loads.of(found.each) == found


@settings(deadline=None)
@given(LOADS, st.integers(0, 63))
def test_moving_a_case_moves_its_loads(loads: tuple[LoadCase, ...], by: int) -> None:
    case = Case("mpi", "pingpong", 8, 8, (0, 1), background=Loads.of(loads))
    moved = case.on_devices(lambda device: device + by)
    assert moved.devices == (by, by + 1)
    assert [one.case.devices for one in moved.background.each] == [
        tuple(device + by for device in one.case.devices) for one in loads
    ]
    assert moved.on_devices(lambda device: device - by) == case


def test_each_job_has_ranks_of_its_own() -> None:
    case = Case("mpi", "pingpong", 8, 8, (0, 1))
    assert case.ranks_needed == 1
    assert dataclasses.replace(case, background=Loads.of_text("ccl alltoall 8 on=2,3")).ranks_needed == 1
    both = Loads.of_text("ccl alltoall 8 on=1,2; mpi halo 8 on=1,0")
    assert dataclasses.replace(case, background=both).ranks_needed == 3
    own = dataclasses.replace(case, background=Loads.of_text("ccl alltoall 8 on=1,2 mpi=same; mpi halo 8 on=1,0"))
    assert own.ranks_needed == 2  # of this launch
    assert [number for number, _ in own.background.own_launches] == [1]
    assert [job.devices for job in own.jobs] == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 loads"),
        ("; ".join(["mpi halo 8"] * 65), "65 loads"),
        ("ccl alltoall 8;mpi halo 8", "'8;mpi' is not a size"),
        ("ccl alltoall", "TRANSPORT PATTERN SIZE"),
        ("ccl alltoall on=1 8", "TRANSPORT PATTERN SIZE"),
        ("nvlink alltoall 8", "unknown transport 'nvlink'"),
        ("ccl alltoall 64MB", "did you mean 64MiB"),
        ("ccl alltoall 8:64", "several values of size"),
        ("ccl alltoall 8 on=some", "expected devices such as 2,3, or same, rest or rest:1/4"),
        ("ccl alltoall 8 clock=event", "'clock=event' is no setting"),
        ("ccl alltoall 8 duty=0", "above 0 and up to 1"),
        ("ccl alltoall 8 every=5", "--every"),
        ("ccl alltoall 8 burst", "'burst' is no setting"),
        ("ccl alltoall 8 mpi=", "'mpi=' is no setting"),
        ("ccl alltoall 8 mpi=/opt/mpi", "mpi is a path"),
    ],
)
def test_what_is_no_load_is_told(text: str, said: str) -> None:
    if "every=5" in text:  # a time without a unit is nanoseconds, as in plans
        assert loads_written(text).each[0].pace.every_ns == 5
        return
    with pytest.raises(UsageError) as error:
        loads_written(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
