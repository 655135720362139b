"""Which card each device is near to, and which devices stand for the cards."""

from __future__ import annotations

import pytest

from linkgauge.system import load
from linkgauge.system.affinity import near_nics, one_a_nic, words


@pytest.mark.parametrize(
    ("system", "devices"),
    [
        ("lumi-g", (1, 3, 5, 7)),  # the dies of SC'24's artifact
        ("alps", (0, 1, 2, 3)),
        ("leonardo-booster", (0, 1, 2, 3)),  # all under one switch
        ("summit", (0, 3)),
        ("hgx-h100-8", ()),  # its cards are not described
    ],
)
def test_a_device_for_each_card(system: str, devices: tuple[int, ...]) -> None:
    assert one_a_nic(load(system)) == devices


def test_near_cards_are_told_devices_of_the_same_together() -> None:
    assert words(near_nics(load("summit"))) == "devices 0, 1, 2: mlx5_0; devices 3, 4, 5: mlx5_1"
    assert words(near_nics(load("alps"))).startswith("device 0: cxi0; ")
    assert near_nics(load("hgx-h100-8")) == {}
