"""RDMA ports of a stand-in tree: what a node's /sys says of them, and of which subnet they are."""

from __future__ import annotations

from pathlib import Path

from linkgauge.system.rdma_ports import RdmaPort, rdma_ports


def port(root: Path, name: str, **files: str) -> None:
    card, number = name.split("/")
    folder = root / "sys/class/infiniband" / card / "ports" / number
    (folder / "gids").mkdir(parents=True)
    for file, text in files.items():
        (folder / ("gids/0" if file == "gid" else file)).write_text(text + "\n")


def test_state_rate_and_subnet_are_read(tmp_path: Path) -> None:
    assert rdma_ports(tmp_path) == []
    gid = "fec0:0000:0000:0007:506b:4b03:00f4:a1b2"
    port(tmp_path, "mlx5_0/1", state="4: ACTIVE", rate="200 Gb/sec (4X HDR)", link_layer="InfiniBand", lid="0x1a",
         sm_lid="0x1", gid=gid)  # fmt: skip
    port(tmp_path, "mlx5_1/1", state="2: INIT", rate="100 Gb/sec (2X HDR)", link_layer="InfiniBand", lid="0x0",
         sm_lid="0x0", gid=gid)  # fmt: skip
    port(tmp_path, "mlx5_2/1", state="4: ACTIVE", rate="100 Gb/sec (4X EDR)", link_layer="Ethernet", lid="0x0",
         sm_lid="0x0", gid="fe80:0000:0000:0000:0e42:a1ff:fe46:0e1c")  # fmt: skip
    port(tmp_path, "strange/1", lid="none")
    assert rdma_ports(tmp_path) == [
        RdmaPort("mlx5_0/1", "ACTIVE", "200 Gb/sec (4X HDR)", "InfiniBand", 26,
                 "fec0:0000:0000:0007, subnet manager at LID 1"),
        RdmaPort("mlx5_1/1", "INIT", "100 Gb/sec (2X HDR)", "InfiniBand"),  # no subnet manager yet
        RdmaPort("mlx5_2/1", "ACTIVE", "100 Gb/sec (4X EDR)", "Ethernet"),
        RdmaPort("strange/1", "", "", ""),
    ]  # fmt: skip
