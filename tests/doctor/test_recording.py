"""A machine as one file: it replays as the machine itself, and names nobody."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from fake_readers import GPU, FakeReaders, TreeReaders, changed
from linkgauge.doctor import check as checks
from linkgauge.doctor import recorded
from linkgauge.doctor.facts import ImexDomain
from linkgauge.doctor.readers import Readers
from linkgauge.errors import UsageError
from linkgauge.system import catalog, discover
from linkgauge.system.anonymous import Pseudonyms
from linkgauge.system.record import parsed_recording, unpacked
from program import linkgauge
from recorded_machine import hgx_machine, kfd_machine, machine_of_all, memory_module
from recordings import KEY, recording_of, replayed


@pytest.mark.parametrize("made", [hgx_machine, kfd_machine, machine_of_all])
def test_a_recording_says_what_the_machine_says(made: Any, tmp_path: Path) -> None:
    """Every check finds the same, and so does discovery: nothing that they look at is missing from the file."""
    machine = made(tmp_path / "machine")
    first = {one.name: found for one, found in checks.run_checks(TreeReaders(machine.root))}
    recording = recording_of(machine.root)
    again = replayed(recording)
    # What is looked at only in this process, such as other users of cores, is an answer, and recorded as well.
    assert {name: one for name, one in again.items() if one != first[name]} == {}
    file = tmp_path / "machine.json"
    file.write_text(recorded.record(TreeReaders(machine.root), root=machine.root, pseudonyms=Pseudonyms(KEY)))
    there, here = catalog.load(file), discover(machine.root)
    assert [(one.name, one.kind, one.memory_bytes) for one in there.nodes] == [
        (one.name, one.kind, one.memory_bytes) for one in here.nodes
    ]
    assert there.links == here.links


IDENTITIES = {
    "sys/class/infiniband/mlx5_0/node_guid": "b83f:d203:00ab:cdef",
    "sys/class/infiniband/mlx5_0/ports/1/gids/0": "fe80:0000:0000:0000:b83f:d203:00ab:cdef",
    "sys/class/infiniband/mlx5_0/ports/1/gids/1": "0000:0000:0000:0000:0000:ffff:8dfe:0a2b",
    "proc/self/cgroup": "0::/kubepods/pod0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0/" + "9ab" * 21 + "c",
    "proc/modules": "nvidia_peermem 16384 0 - Live 0x0\n# 3c:ec:ef:12:34:56 141.254.10.43 fe80::3eec:efff:fe12:3456\n",
    "proc/cpuinfo": "processor : 0\nmodel name : Xeon\n\nprocessor : 1\n",
}


def test_a_recording_names_nobody(tmp_path: Path) -> None:
    machine = hgx_machine(tmp_path / "machine")
    for path, text in IDENTITIES.items():
        machine.write(path, text)
    config = bytearray(4096)  # with a Device Serial Number, which is a card's GUID
    struct.pack_into("<IQ", config, 0x100, 0x0003 | 1 << 16, 0xB83FD20300ABCDEF)
    (machine.root / "sys/bus/pci/devices/0000:14:00.0/config").write_bytes(bytes(config))
    raw = machine.root / "sys/firmware/dmi/entries/17-0/raw"
    raw.parent.mkdir(parents=True)
    raw.write_bytes(memory_module(32768, extended=True))
    answers = json.loads((machine.root / "nvml.json").read_text())
    answers["devices"][0] |= {"serial": "1654023000123", "uuid": "GPU-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"}
    answers["devices"][0]["fabric"]["cluster"] = "0f1e2d3c4b5a69788796a5b4c3d2e1ff"
    machine.nvml(answers)
    names = Pseudonyms(KEY, ("gpu-node17.cluster.example.org", "gpu-node17"), ("ada",))
    environment = {"HOME": "/home/ada", "NCCL_SOCKET_IFNAME": "ens2", "UCX_NET_DEVICES": "mlx5_0:1",
                   "OMPI_MCA_btl_tcp_if_include": "141.254.10.0/24", "AWS_SECRET_ACCESS_KEY": "hush"}  # fmt: skip
    text = recorded.record(
        TreeReaders(machine.root, environment=environment, cross="gpu-node17: Operation not permitted",
                    core_users=["1.0 of 4 cores are busy by pid 7 (secret-model, user grace)"],
                    commands={"ucx_info": "# host gpu-node17.cluster.example.org"}),
        root=machine.root, pseudonyms=names,
    )  # fmt: skip
    plain = text.lower()
    for identity in ("b83f", "8dfe:0a2b", "0f1e2d3c", "9ab9ab", "3c:ec:ef", "141.254.10.43", "3eec:efff", "16540230",
                     "/ada", "gpu-node17", "example.org", "hush", "grace", "secret-model", "serial-1234",
                     "efcdab0003d23fb8"):  # fmt: skip
        assert identity not in plain, identity
    made = parsed_recording(text.encode(), "made")
    # The card's GUID is one and the same stand-in in the GID, so that what compares them still can.
    with unpacked(made, "made") as root:
        guid = (root / "sys/class/infiniband/mlx5_0/ports/1/gids/0").read_text().strip()
    assert guid.startswith("fe80:0000:0000:0000:0000:0000:0000:")
    assert made["answers"]["set-up"]["environment"]["HOME"] == "/home/user"


def test_of_a_modules_memory_no_serial_number_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ("\tVendor name           : NVIDIA\n\tVendor SN             : MT2301X17\n\tLength (SMF)          : 0.50km\n"
            "\tDate code             : 230105\n\tModule temperature high alarm  : Off\n")  # fmt: skip
    readers = Readers()
    monkeypatch.setattr(readers, "run", lambda command: said if command == ["ethtool", "-m", "ens1"] else None)
    assert [line.partition(" :")[0].strip() for line in readers.module("ens1").splitlines()] == [
        "Vendor name", "Length (SMF)", "Module temperature high alarm"]  # fmt: skip
    assert readers.module("ens2") == ""


def test_of_an_imex_domain_no_nodes_name_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {str(at): {"status": "READY" if at else "UNAVAILABLE", "host": f"10.0.0.{at}", "hostName": f"tray{at}",
                       "connections": {}} for at in range(3)}  # fmt: skip
    answers = {"nvidia-imex-ctl": json.dumps({"nodes": nodes, "timestamp": "9/4/2026", "status": "DEGRADED"}),
               "nv-fabricmanager": "\n\n\tFabric Manager version is : 535.161.08\n"}  # fmt: skip
    readers = Readers()
    monkeypatch.setattr(readers, "run", lambda command: answers.get(command[0]))
    assert readers.imex() == ImexDomain("DEGRADED", 2, 3)
    assert readers.fabric_manager() == "535.161.08"
    for other in ("", "[]", '{"status": 1, "nodes": {}}', '{"status": "UP", "nodes": []}', '{"nodes": {"0": null}}'):
        answers["nvidia-imex-ctl"] = other
        assert readers.imex() is None


def test_an_older_recording_still_tells_what_it_knows(tmp_path: Path) -> None:
    """Of questions that came later a check takes what is usual, where it says much without them."""
    recording = recording_of(hgx_machine(tmp_path / "machine").root, gpus=changed(GPU, fabric_state="in progress"))
    for later in ("runs", "fabric_manager", "imex", "amd_smi"):
        recording["answers"] = {question: answer for question, answer in recording["answers"].items()
                                if not question.startswith(later)}  # fmt: skip
    assert replayed(recording)["nvlink_fabric"].status == "failing"


def test_pseudonyms_keep_what_is_compared() -> None:
    names = Pseudonyms(b"key")
    one, other, far = (names.of(text) for text in ("141.254.10.1", "141.254.10.99", "141.254.200.1"))
    assert one.rpartition(".")[0] == other.rpartition(".")[0] != far.rpartition(".")[0]
    assert one == names.of("141.254.10.1") != "141.254.10.1"
    assert names.of("10.1.2.3").startswith("10.")
    zeros = "00000000-0000-0000-0000-000000000000"
    for text in ("127.0.0.1", zeros, "0" * 32, "0000:1b:00.0", "28.39.2048", "96.00.74.00.01", "1234567890123456",
                 "0x00003807ffffffff", "TOTAL_ERR_COR 0"):  # fmt: skip
        assert names.of(text) == text
    route = ("Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
             "ens2\t000AFE8D\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
             "ens3\t000AFE8D\t00000000\t0001\t0\t0\t0\t00FFFFFF\n")  # fmt: skip
    first, second = ([*line.split("\t")] for line in names.route_table(route).splitlines()[1:])
    assert first[1] == second[1] != "000AFE8D"
    assert first[1].startswith("00")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"files": {"sys/../../etc/passwd": "x"}}, "expected a path such as"),
        ({"files": {"/etc/passwd": "x"}}, "expected a path such as"),
        ({"links": {"sys/a": "sys/../.."}}, "expected a path such as"),
        ({"links": {"sys/a/b/c": "dev", "sys/a/b/c/d": "proc"}}, "is behind a link"),
        ({"files": {"sys/a": "x", "sys/a/b": "y"}}, "cannot be laid out"),
        ({"files": {"sys/a": {"hex": "zz"}}}, "hexadecimal"),
        ({"format_version": 2}, "format_version"),
        ({"answers": {}}, "set-up"),
        ({"answers": {"set-up": {"environment": {}, "mpi": None, "mpi_problem": "", "ranks": 0}}}, "ranks is 0"),
    ],
)
def test_what_is_no_recording_is_refused_in_one_line(changed: dict[str, Any], words: str) -> None:
    whole = {"format": "linkgauge-recording", "format_version": 1, "files": {"sys/devices/x": "1"}, "links": {},
             "answers": {"set-up": {"environment": {}, "mpi": None, "mpi_problem": "none", "ranks": 2}}}  # fmt: skip
    assert replayed(parsed_recording(json.dumps(whole).encode(), "made"))
    with pytest.raises(UsageError, match=re.escape(words)) as refused:
        replayed(parsed_recording(json.dumps(whole | changed).encode(), "made"))
    assert "\n" not in str(refused.value)


def test_checks_that_a_recording_cannot_answer_say_so(tmp_path: Path) -> None:
    recording = recording_of(hgx_machine(tmp_path / "machine").root)
    recording["answers"] = {"set-up": recording["answers"]["set-up"]}
    found = replayed(recording)
    assert found["open_files"] == checks.not_checked("the recording has no answer to limit NOFILE")
    assert not any("Error" in one.finding for one in found.values())


def test_the_fakes_answer_every_question_that_a_recording_keeps() -> None:
    assert set(recorded._ANSWERS) <= {*dir(FakeReaders)}


@pytest.mark.parametrize("more", [("--noise", "1s"), ("--since", "x"), ("--hosts", "a,b")])
def test_a_recording_is_one_machine_at_one_moment(more: tuple[str, str], tmp_path: Path) -> None:
    done = linkgauge("doctor", "--recording", "x", *more, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
