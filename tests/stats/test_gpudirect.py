"""Whether GPUDirect RDMA was as a case asked: by the library's word, or told as not proved, and why."""

from __future__ import annotations

import dataclasses

import pytest

from linkgauge.model.case import Case
from linkgauge.stats.asked_effects import gpudirect_effect

BETWEEN = Case("ccl", "pingpong", 8, 8, (0, 1), devices_per_node=1)
HOST = {"source_memory": "pinned", "target_memory": "pinned"}


@pytest.mark.parametrize(
    ("asked", "channels", "direct", "proved"),
    [("on", 4, 4, True), ("off", 4, 0, True), ("on", 4, 2, False), ("on", 4, 0, False), ("off", 4, 4, False)],
)
def test_nccls_channels_prove_it_or_not(asked: str, channels: int, direct: int, proved: bool) -> None:
    case = dataclasses.replace(BETWEEN, gpudirect=asked)
    effect = gpudirect_effect(case, {"network_channels": channels, "gpudirect_channels": direct}, True)
    assert effect is not None
    assert effect.proved == proved
    assert f"{direct} of {channels} ends of channels" in effect.words


@pytest.mark.parametrize(
    ("more", "cards", "why"),
    [
        ({}, True, "--library-choices does"),
        ({}, False, "no RDMA card"),
        ({"devices_per_node": 0}, True, "nothing of it crosses the network"),
        ({"transport": "mpi"}, True, "the library below mpi tells nobody"),
        ({"transport": "staging"}, True, "its messages are in host memory"),
        ({"transport": "mpi", **HOST}, True, "its messages are in host memory"),
    ],
)
def test_what_no_one_tells_is_not_proved(more: dict[str, object], cards: bool, why: str) -> None:
    effect = gpudirect_effect(dataclasses.replace(BETWEEN, gpudirect="on", **more), {}, cards)  # type: ignore[arg-type]
    assert effect is not None
    assert not effect.proved
    assert why in effect.words
    assert gpudirect_effect(dataclasses.replace(BETWEEN, **more), {}, cards) is None  # type: ignore[arg-type]
