"""Traces of other tools become step files that run: sizes, order, groups and waits as the traces have them."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.app.cli import run_command
from linkgauge.app.dimension_options import applications
from linkgauge.apps import catalog, chakra_trace
from linkgauge.apps.matching import check
from linkgauge.apps.program import amounts, program_of
from linkgauge.apps.step_file import as_toml, step_file_of
from linkgauge.apps.trace_steps import COLLECTIVES, Steps, looped
from linkgauge.apps.traces import convert
from linkgauge.errors import UsageError
from linkgauge.model.rank_bytes import pair_bytes
from linkgauge.model.shape import parsed_toml
from linkgauge.model.worded import App
from linkgauge.plan.builtin import file_of
from tool_traces import PARAM, chakra, chakra_node, execution_nodes, field, kernel, varint


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def written(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def moved(document: dict[str, Any], ranks: int, rank: int = 0) -> dict[str, tuple[int, int]]:
    """How often a rank has what, and how many bytes together."""
    made = program_of(step_file_of(document, "trace"), {}, ranks)
    return {name: (one.count, one.total) for name, one in amounts(made, rank).items()}


def test_param(tmp_path: Path) -> None:
    document, lost = convert([written(tmp_path, "0.json", PARAM)])
    assert moved(document, 2) == {
        "allreduce": (1, 4096),
        "alltoall": (1, 4096),
        "reduce_scatter": (1, 512),
        "barrier": (1, 0),
    }
    assert moved(document, 4)["alltoall"] == (1, 2048)  # of as many bytes of a rank, for more destinations
    verbs = [next(iter(step)) for step in document["step"]]
    assert verbs == ["collective", "collective", "wait", "collective", "barrier", "wait"]
    assert any("uneven" in words for words in lost)
    assert any("compute kernels" in words for words in lost)


def test_messages_need_a_trace_of_each_rank(tmp_path: Path) -> None:
    sends = {"comms": "isend", "dst_rank": 1, "in_msg_size": 16, "out_msg_size": 16, "dtype": "int"}
    receives = {"comms": "irecv", "src_rank": 0, "in_msg_size": 16, "out_msg_size": 16, "dtype": "int"}
    # The tenth trace comes after the second, whatever the shell's order.
    paths = [written(tmp_path, f"trace.{rank}.json.gz", gzip.compress(json.dumps([one, {"comms": "wait"}]).encode()))
             for rank, one in ((10, receives), (2, sends))]  # fmt: skip
    document, _ = convert(paths)
    assert moved(document, 2, 0) == {"sent": (1, 64)}
    assert moved(document, 2, 1) == {"received": (1, 64)}
    assert run_command(["convert", str(paths[1])]) == 2


def test_pytorch_execution_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes: list[dict[str, Any]] = []
    for number in (10, 20, 30):
        nodes += execution_nodes(number, "broadcast", 53, 2)
        nodes += execution_nodes(number + 4, "wait", 0, 0, pg_size=1)
        nodes += execution_nodes(number + 6, "allreduce", 1000, 0, pg_size=2)
    trace = written(tmp_path, "et.json", {"schema": "1.1.0-chakra.0.0.4", "nodes": nodes[::-1]})
    assert run_command(["convert", str(trace), "-o", str(tmp_path / "et.toml")]) == 0
    assert "not in it: what was computed between" in capsys.readouterr().out
    document = parsed_toml((tmp_path / "et.toml").read_text(), "et.toml")
    assert document["step"][0]["repeat"] == 3
    assert document["step"][0]["step"][0] == {"collective": "broadcast", "bytes": 212, "root": 2, "begun": True}
    assert moved(document, 4, 0) == {"broadcast": (3, 636), "allreduce": (3, 12000)}
    assert moved(document, 4, 3) == {"broadcast": (3, 636)}  # the allreduce is of ranks 0 and 1
    assert catalog.why_not_here(App.of_text(f"x {json.dumps(document)}"), 2) == (
        "x needs 3 ranks or more, which the trace names"
    )


def test_pytorch_profiles_keep_what_went_on_beside(tmp_path: Path) -> None:
    reduced: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8,
                               "dtype": "BFloat16", "Group size": 2, "Process Group Ranks": "[0, 1]"}  # fmt: skip
    events = [
        kernel(0, 10),
        kernel(10, 50, **reduced),
        kernel(12, 20),
        kernel(20, 20),
        kernel(70, 5),
        {"cat": "cpu_op"},
    ]
    document, _ = convert([written(tmp_path, "kineto.json", {"traceEvents": events[::-1]})])
    assert document["step"] == [
        {"compute": 10_000}, {"collective": "allreduce", "bytes": 16, "begun": True},
        {"compute": 28_000},  # 12 to 40, on two streams
        {"wait": True}, {"compute": 5_000},
    ]  # fmt: skip


def test_chakra(tmp_path: Path) -> None:
    trace = chakra(
        chakra_node(3, 4, us=7),
        chakra_node(4, 7, us=99, is_cpu_op=1),  # the host's part of it
        chakra_node(5, 7, (4,), is_cpu_op=0, comm_type=0, comm_size=400_000),
        chakra_node(6, 4, us=20, is_cpu_op=0),
        chakra_node(7, 4, (5,), us=1, is_cpu_op=0),
    )
    document, _ = convert([written(tmp_path, "chakra.0.et", trace)])
    assert document["step"] == [{"compute": 7000}, {"collective": "allreduce", "bytes": 400_000, "begun": True},
                                {"compute": 20_000}, {"wait": True}, {"compute": 1000}]  # fmt: skip


def message(number: int, verb: str, peer: int, needs: tuple[int, ...] = (), size: int = 65536) -> bytes:
    key = "comm_dst" if verb == "send" else "comm_src"
    return chakra_node(number, 5 if verb == "send" else 6, needs, comm_size=size, comm_tag=0, **{key: peer})


def a_ring(ranks: int) -> list[bytes]:
    """As of astra-sim's custom collectives: each step's receive needs its send, the next send what was received."""
    found = []
    for rank in range(ranks):
        nodes = []
        for step in range(ranks - 1):
            nodes.append(message(2 * step + 1, "send", (rank + 1) % ranks, (2 * step,) if step else ()))
            nodes.append(message(2 * step + 2, "receive", (rank - 1) % ranks, (2 * step + 1,)))
        found.append(chakra(*nodes))
    return found


def work_and_workers() -> list[bytes]:
    """A receive is posted early, and more than one message is sent before what it waits for is."""
    return [
        chakra(message(1, "receive", 1), message(2, "send", 1), message(3, "send", 1, (2,)),
               chakra_node(4, 4, (1,), us=5, is_cpu_op=0)),
        chakra(message(1, "receive", 0), message(2, "receive", 0, (1,)), message(3, "send", 0, (2,))),
    ]  # fmt: skip


def one_by_one(end: str) -> list[object]:
    """Blocking calls of two ranks, each of which sends before it receives."""
    peers = [{"dst_rank": 1 - rank, "src_rank": 1 - rank} for rank in range(2)]
    sizes = {"in_msg_size": 16, "out_msg_size": 16, "dtype": "int"}
    if end == "PARAM":
        return [[{"comms": name, **sizes, **peer} for name in ("send", "recv")] for peer in peers]
    return [{"traceEvents": [kernel(20 * at, 10, **{"Collective name": name, "In msg nelems": 16, "Out msg nelems": 16,
                                                     "dtype": "int", "Dst Rank": 1 - rank, "Src Rank": 1 - rank})
                             for at, name in enumerate(("send", "recv"))]} for rank in range(2)]  # fmt: skip


@pytest.mark.parametrize(
    ("traces", "sent"),
    [
        (a_ring(2), 1), (a_ring(4), 3), (a_ring(7), 6), (work_and_workers(), 2),
        (one_by_one("PARAM"), 1), (one_by_one("profile"), 1),
    ],
    ids=["two", "ring of 4", "ring of 7", "work", "PARAM", "profile"],
)  # fmt: skip
def test_what_is_sent_before_its_receiver_comes_is_no_deadlock(
    traces: list[object], sent: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [written(tmp_path, f"t.{rank}.{'et' if isinstance(one, bytes) else 'json'}", one)
             for rank, one in enumerate(traces)]  # fmt: skip
    assert run_command(["convert", *map(str, paths), "-o", str(tmp_path / "t.toml")]) == 0
    assert "waits for messages that were sent" in capsys.readouterr().out
    (app,) = applications(str(tmp_path / "t.toml"), [])
    made = catalog.program(app, len(paths))  # which is refused where ranks wait for each other for ever
    assert amounts(made, 0)["sent"].count == sent


def test_what_is_received_is_waited_for_before_what_needs_it_in_a_ring_too(tmp_path: Path) -> None:
    document, _ = convert([written(tmp_path, f"t.{rank}.et", one) for rank, one in enumerate(a_ring(4))])
    assert [next(iter(step)) for step in unrolled(document["step"][1]["step"])] == ["send", "receive", "wait"] * 3


def test_a_send_is_waited_for_where_that_is_no_deadlock(tmp_path: Path) -> None:
    traces = [
        chakra(message(1, "send", 1), chakra_node(2, 4, (1,), us=5, is_cpu_op=0)),
        chakra(message(1, "receive", 0)),
    ]
    document, lost = convert([written(tmp_path, f"t.{rank}.et", one) for rank, one in enumerate(traces)])
    assert [next(iter(step)) for step in document["step"][0]["step"]] == ["send", "wait", "compute"]
    assert not any("waits for messages" in words for words in lost)


def unrolled(of: Steps) -> Steps:
    return [one for step in of for one in (unrolled(step["step"]) * step["repeat"] if "step" in step else [step])]


@given(st.lists(st.sampled_from("abc"), max_size=24))
def test_loops_are_the_same_steps(letters: list[str]) -> None:
    steps: Steps = [{"send": letter} for letter in letters]

    assert unrolled(looped(steps)) == steps
    assert len(looped(steps * 5)) <= max(1, len(steps))
    document = {"description": "x", "step": [{"repeat": 2, "step": [*steps, {"wait": True}]}]}
    assert parsed_toml(as_toml(document), "made") == document


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([1], "no trace: expected"), ({"nodes": 3}, "no trace: expected"), (b"[", "not JSON"),
        (b"\x1f\x8bxxxxxxxxxxxxxxxx", "damaged gzip"), (b"\xff" * 40, "no trace of Chakra"),
        (chakra(chakra_node(1, 7, comm_type=9))[:-1], "no trace of Chakra"), ([], "no communication in it"),
        (chakra(chakra_node(1, 7, comm_type=11)), "entry 1: comm_type 11"),
        ([{"comms": "all_reduce", "in_msg_size": 4, "dtype": "complex"}], "entry 0: dtype 'complex'"),
        ([{"comms": "all_reduce", "in_msg_size": -4, "dtype": "int"}], "entry 0: in_msg_size is '-4'"),
        ([{"comms": "all_reduce", "in_msg_size": 4, "dtype": "int", "global_ranks": [0, 1, 3], "world_size": 8}],
         "expected ranks at equal distances"),
        ([{"comms": "send", "in_msg_size": 4, "dtype": "int", "dst_rank": 1}], "expected a trace of each rank"),
        ([{"comms": "send", "in_msg_size": 4, "dtype": "int", "dst_rank": 1 << 49}], "entry 0: rank 562949953421312"),
        ([{"comms": "all_reduce", "in_msg_size": 4, "dtype": "int", "global_ranks": [-5, -3], "world_size": 8}],
         "a group of ranks -5, -3"),
        ([{"comms": "all_reduce", "in_msg_size": 4, "dtype": "int", "global_ranks": [0, 1 << 40], "world_size": 8}],
         "rank 1099511627776"),
        ({"nodes": [{"name": "record_param_comms", "inputs": nested(400)}]}, "no communication in it"),
        (b"[" * 100_000, "nested"), (gzip.compress(b"[" + b"{}," * (1 << 25)), "MiB unpacked"),
        # Attributes that are called as a node's own fields are none of them.
        *((chakra(chakra_node(1, 7, **{name: 5}), chakra_node(2, 4, (1,), 3)), "no communication in it")
          for name in ("id", "deps", "type", "us")),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_told(
    tmp_path: Path, content: object, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["convert", str(written(tmp_path, "t.json", content))]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert expected in said[0]


SHIPPED_AS_CHAKRA = ("tensor_parallel", "fsdp", "pipeline", "llh", "kv_cache", "cg", "moe", "fft_slab", "data_parallel")


@pytest.mark.parametrize("name", [name for name in SHIPPED_AS_CHAKRA if name in catalog.names()])
def test_an_application_as_chakras_traces_is_read_back_with_the_same_amounts(name: str, tmp_path: Path) -> None:
    ranks = 4
    assert run_command(["convert", name, "--ranks", str(ranks), "--chakra", str(tmp_path / "et")]) == 0
    (asked,) = applications(name, [])
    made = catalog.program(asked, ranks)
    files = sorted((tmp_path / "et").glob("*.et"))
    assert [path.name for path in files] == [f"{name}.{rank}.et" for rank in range(ranks)]
    document, _ = convert(files)
    back = program_of(step_file_of(document, "back"), {}, ranks)
    kept = (
        "sent",
        "received",
        "allreduce",
        "allgather",
        "reduce_scatter",
        "broadcast",
        "reduce",
        "alltoall",
        "barrier",
    )
    for rank in range(ranks):
        before = {kind: (one.count, one.total) for kind, one in amounts(made, rank).items()}
        after = {kind: (one.count, one.total) for kind, one in amounts(back, rank).items()}
        if "alltoallv" in before:  # of which Chakra knows the sum alone
            assert before["alltoallv"][0] == after["alltoall"][0]
            before["alltoall"] = after["alltoall"]
        assert {kind: before.get(kind) for kind in kept} == {kind: after.get(kind) for kind in kept}


def test_groups_of_ranks_come_back(tmp_path: Path) -> None:
    file = tmp_path / "halves.toml"
    file.write_text('description = "x"\n[[step]]\ncollective = "allreduce"\nbytes = 64\ngroup = "rank // 2"\n')
    assert run_command(["convert", str(file), "--ranks", "4", "--chakra", str(tmp_path / "et")]) == 0
    traces = sorted((tmp_path / "et").glob("*.et"))
    document, lost = convert(traces)
    made = program_of(step_file_of(document, "back"), {}, 4)
    assert {one.ranks for one in made.collectives} == {(0, 1), (2, 3)}
    assert not any("taken as all ranks" in words for words in lost)
    (tmp_path / "et" / "comm_groups.json").unlink()
    document, lost = convert(traces)
    assert any("taken as all ranks" in words for words in lost)
    (tmp_path / "et" / "comm_groups.json").write_text("[1]")
    with pytest.raises(UsageError, match="expected an object of lists of ranks"):
        convert(traces)


def test_groups_of_a_node_of_process_groups_and_nodes_as_json(tmp_path: Path) -> None:
    listed = json.dumps([{"pg_name": "7", "pg_desc": "tp", "pg_size": 2, "ranks": [0, 2]},
                         {"pg_name": "0", "ranks": [0, 1, 2, 3]}])  # fmt: skip
    begun = field(1, 1) + field(2, b"## process_group:init ##") + field(8, field(1, repr([listed]).encode()))
    used = field(1, 2) + field(3, 7) + field(10, field(1, b"pg_name") + field(29, b"7"))
    used += field(10, field(1, b"comm_type") + field(9, 0)) + field(10, field(1, b"comm_size") + field(9, 64))
    path = written(tmp_path, "t.et", chakra(*(varint(len(one)) + one for one in (begun, used))))
    document, _ = convert([path])
    assert document["step"][0]["group"] == "0 if rank >= 0 and rank < 4 and (rank - 0) % 2 == 0 else 1 + rank"
    graph = {"workload_graph": [
        {"Id": 0, "Name": "a", "NodeType": 4, "is_cpu_op": False, "runtime": 5, "data_deps": []},
        {"Id": 1, "Name": "b", "NodeType": 7, "is_cpu_op": False, "data_deps": [0], "comm_type": 0, "comm_size": 64},
        {"Id": 2, "Name": "c", "NodeType": 4, "is_cpu_op": False, "runtime": 3, "data_deps": [1]},
    ]}  # fmt: skip
    document, _ = convert([written(tmp_path, "t.json", graph)])
    assert document["step"] == [{"compute": 5000}, {"collective": "allreduce", "bytes": 64, "begun": True},
                                {"wait": True}, {"compute": 3000}]  # fmt: skip


def test_nodes_as_the_newest_schema_has_them(tmp_path: Path) -> None:
    """Times, inputs and outputs, storage, and attributes of every type beside those that are read."""
    texts = field(1, b"[1]") + field(2, b"[]") + field(3, b"['Int']")
    more = field(4, varint(1)) + field(6, 5_000_000) + field(8, texts) + field(9, texts) + field(11, field(1, 1))
    more += field(10, field(1, b"double") + varint(3 << 3 | 1) + b"\0" * 8 + field(2, b"what it is"))
    more += field(10, field(1, b"float") + varint(5 << 3 | 5) + b"\0" * 4)
    more += field(10, field(1, b"seq_id") + field(9, (1 << 64) - 1)) + field(10, field(1, b"list") + field(10, b"\1\2"))
    begin = field(10, field(1, b"schema") + field(29, b"1.1.1-chakra.0.0.4"))  # of the converter: it has no version

    def node(data: bytes) -> bytes:
        return varint(len(data) + len(more)) + data + more

    reduced = field(10, field(1, b"comm_type") + field(9, 0)) + field(10, field(1, b"comm_size") + field(9, 64))
    content = varint(len(begin)) + begin + node(field(1, 1) + field(3, 4) + field(7, 9))
    content += node(field(1, 2) + field(3, 7) + reduced) + node(field(1, 3) + field(3, 8))
    content += node(field(1, 4) + field(3, 4) + field(5, varint(2)) + field(7, 3))
    document, _ = convert([written(tmp_path, "t.et", content)])
    assert document["step"] == [{"compute": 9000}, {"collective": "allreduce", "bytes": 64, "begun": True},
                                {"wait": True}, {"compute": 3000}]  # fmt: skip


def test_a_message_that_names_no_rank_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="entry 1: a message without comm_dst"):
        convert([written(tmp_path, "t.et", chakra(chakra_node(1, 5, comm_size=8)))])


def nodes_of(path: Path) -> list[dict[str, Any]]:
    return list(chakra_trace._messages(path.read_bytes(), path.name))


def test_nodes_need_what_the_step_waits_for(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("""
description = "Two messages beside a kernel, then a sum of half of the ranks, twice."
[[step]]
repeat = 2
[[step.step]]
send = "(rank + 1) % ranks"
bytes = 64
[[step.step]]
receive = "(rank - 1 + ranks) % ranks"
bytes = 64
[[step.step]]
work = 4096
queue = "q"
[[step.step]]
compute = 1500
[[step.step]]
wait = true
[[step.step]]
sync = "q"
[[step.step]]
collective = "allreduce"
bytes = 256
group = "rank // 2"
""")
    assert run_command(["convert", str(file), "--ranks", "4", "--chakra", str(tmp_path / "et")]) == 0
    nodes = nodes_of(tmp_path / "et" / "mine.3.et")
    assert [node["name"] for node in nodes] == ["send 0", "receive 2", "work", "compute", "allreduce of 256 bytes"] * 2
    needs = [sorted(node["deps"]) for node in nodes]
    # What is posted or in a queue holds the host up only where it waits.
    assert needs[:5] == [[], [], [], [], [0, 1, 2, 3]]
    assert needs[5:] == [[4], [4], [2, 4], [4], [5, 6, 7, 8]]
    assert [node["us"] for node in nodes if node["name"] == "compute"] == [2, 2]
    assert nodes[4]["comm_type"] == 0
    assert nodes[4]["comm_size"] == 256
    assert nodes[4]["pg_name"] == "group1"
    groups = json.loads((tmp_path / "et" / "comm_groups.json").read_text())
    assert groups == {"group0": [0, 1], "group1": [2, 3]}


def test_what_chakra_has_no_node_for_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('description = "A halo."\n[[step]]\ncollective = "halo"\nbytes = 64\n')
    for words, said in (
        ([str(file), "--chakra", str(tmp_path / "et")], "Chakra has no collective for halo"),
        (["no_such", "--chakra", str(tmp_path / "et")], "no application 'no_such'"),
        (["llh", "--chakra", str(file)], "cannot be written"),
        (["llh", "llh", "--chakra", str(tmp_path / "et")], "takes one application"),
    ):
        assert run_command(["convert", *words]) == 2
        assert said in capsys.readouterr().err


def test_a_folder_of_packed_traces_is_what_its_files_are(tmp_path: Path) -> None:
    entry = [{"comms": "all_reduce", "in_msg_size": 1024, "out_msg_size": 1024, "dtype": "float", "world_size": 2}]
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "notes.txt").write_text("not a trace")
    for rank, (codec, suffix) in enumerate((("gzip", ".gz"), ("zstd", ".zst"))):
        with pa.CompressedOutputStream(str(folder / f"rank{rank}.json{suffix}"), codec) as stream:
            stream.write(json.dumps(entry).encode())
    document, _ = convert([folder])
    assert document["description"].endswith("of 2 ranks, on others each rank has as many bytes")
    assert document["step"] == [{"collective": "allreduce", "bytes": 4096}]


def test_an_archive_of_traces_is_what_its_files_are(tmp_path: Path) -> None:
    entry = [{"comms": "all_reduce", "in_msg_size": 1024, "out_msg_size": 1024, "dtype": "float", "world_size": 2}]
    for rank in range(2):
        (tmp_path / f"rank{rank}.json.gz").write_bytes(gzip.compress(json.dumps(entry).encode()))
    whole, _ = convert([tmp_path / "rank0.json.gz", tmp_path / "rank1.json.gz"])
    for name, mode in (("t.tar.gz", "w:gz"), ("t.tar", "w"), ("t.tgz", "w:gz")):
        with tarfile.open(tmp_path / name, mode) as archive:
            archive.add(__file__, "run/notes.py")
            for rank in (1, 0):
                archive.add(tmp_path / f"rank{rank}.json.gz", f"../run/rank{rank}.json.gz")
                archive.add(__file__, f"run/._rank{rank}.json.gz")  # as macOS adds
        document, _ = convert([tmp_path / name])
        assert {**document, "description": ""} == {**whole, "description": ""}
        assert document["description"].startswith(f"{name} and 1 more: ")
    with pa.CompressedOutputStream(str(tmp_path / "t.tar.zst"), "zstd") as stream:
        stream.write((tmp_path / "t.tar").read_bytes())
    assert convert([tmp_path / "t.tar.zst"])[0]["step"] == whole["step"]
    assert not (tmp_path.parent / "run").exists()  # nothing of it is written


def test_archives_damaged_and_empty_ones_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no trace in this folder"):
        convert([tmp_path / "empty"])
    packed = tmp_path / "t.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(__file__, "a.py")
    with pytest.raises(UsageError, match="no trace in this archive"):
        convert([packed])
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(__file__, "a.json")
    with pytest.raises(UsageError, match=r"t\.tar\.gz: a\.json: no trace"):
        convert([packed])
    content = bytearray(gzip.decompress(packed.read_bytes()))
    content[124:136] = b"7" * 12  # the size that it says
    packed.write_bytes(gzip.compress(bytes(content)))
    with pytest.raises(UsageError, match="a damaged tar archive"):
        convert([packed])
    (tmp_path / "a.json.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"\0" * 20)
    with pytest.raises(UsageError, match="a damaged zstd file"):
        convert([tmp_path / "a.json.zst"])


def test_collectives_without_a_size_are_said(tmp_path: Path) -> None:
    one = {"comms": "all_reduce", "in_msg_size": 1024, "out_msg_size": 1024, "dtype": "float", "world_size": 2}
    (tmp_path / "a.json").write_text(json.dumps([one, one | {"in_msg_size": 0, "out_msg_size": 0}]))
    document, lost = convert([tmp_path / "a.json"])
    assert document["step"] == [{"collective": "allreduce", "bytes": 4096}]
    assert lost["collectives whose size is 0 or not recorded: left out"] == 1


@pytest.mark.parametrize("shares", [(400, 240), (400, 0), (0, 0), (0, 400)])
def test_ranks_that_state_unlike_sizes_agree(shares: tuple[int, int], tmp_path: Path) -> None:
    """As of experts' tokens: each rank's trace has what that rank sends, which may be nothing."""
    paths = []
    for rank, share in enumerate(shares):
        uneven = {"comms": "all_to_allv", "in_msg_size": share, "out_msg_size": 0, "dtype": "int", "world_size": 2}
        even = {**uneven, "comms": "all_reduce", "in_msg_size": 16, "out_msg_size": 16}
        paths.append(written(tmp_path, f"trace.{rank}.json", [even, uneven, even]))
    document, lost = convert(paths)
    program = program_of(step_file_of(document, "trace"), {}, 2)
    check(program)
    each = [{name: (one.count, one.total) for name, one in amounts(program, rank).items()} for rank in range(2)]
    mean = sum(shares) // 2
    told = {"alltoall": (1, mean * 4 // 2)} if mean else {}  # to each of two destinations
    assert each == [{"allreduce": (2, 128), **told}] * 2
    assert any("unlike sizes" in words for words in lost) == (mean > 0)
    assert any("size is 0" in words for words in lost) == (mean == 0)


@pytest.mark.parametrize("groups", [1, 2])
def test_an_alltoall_of_uneven_shares_keeps_them(groups: int, tmp_path: Path) -> None:
    """As of experts' tokens: where each rank's trace has what goes to each other, so has the step file."""
    shares = [[5, 3], [4, 4]]
    paths = []
    for rank in range(2 * groups):
        one = {"comms": "all_to_allv", "in_msg_size": 1600, "out_msg_size": 1600, "dtype": "int", "world_size": 2,
               "in_split": shares[rank % 2], "pg_id": rank // 2,
               "global_ranks": [rank // 2 * 2, rank // 2 * 2 + 1]}  # fmt: skip
        paths.append(written(tmp_path, f"trace.{rank}.json", [one]))
    document, lost = convert(paths)
    program = program_of(step_file_of(document, "trace"), {}, 2 * groups)
    check(program)
    for one in program.collectives:
        assert one.pattern == "alltoallv"
        assert sorted(pair_bytes(one.pattern, 2, one.size, one.distribution)) == [(0, 1, 2400), (1, 0, 3200)]
    assert not any("shares" in words or "sizes" in words for words in lost)


def test_shares_that_are_no_whole_parts_of_the_size_are_not_taken(tmp_path: Path) -> None:
    """They are of something else, or wrong: each destination gets the mean."""
    one = {"comms": "all_to_allv", "in_msg_size": 1600, "out_msg_size": 1600, "dtype": "int", "world_size": 2}
    paths = [written(tmp_path, f"trace.{rank}.json", [{**one, "in_split": [1600, 1599]}]) for rank in range(2)]
    document, lost = convert(paths)
    assert [step["collective"] for step in document["step"]] == ["alltoall"]
    assert any("whole parts" in words for words in lost)


@pytest.mark.parametrize("given", [(0, 1, 3), (0, 2)])
def test_a_rank_without_a_trace_is_named(given: tuple[int, ...], tmp_path: Path) -> None:
    one = {"comms": "all_reduce", "in_msg_size": 1600, "out_msg_size": 1600, "dtype": "int", "world_size": 4,
           "global_ranks": [0, 1, 2, 3]}  # fmt: skip
    paths = [written(tmp_path, f"trace.{rank}.json", [one]) for rank in given]
    with pytest.raises(UsageError, match=f"rank 3 takes part, and there are traces of {len(given)} ranks: expected"):
        convert(paths)
    assert convert(paths[:1])[0]["step"]  # one stands for all


def test_what_a_trace_converts_to_has_a_curve_in_the_plan_that_predicts() -> None:
    """Else a program that has it cannot be predicted."""
    cases = parsed_toml(file_of("applications").read_text(), "applications")["case"]
    for cadence in ("isolated", "barrier"):
        measured = [case["pattern"] for case in cases if cadence in case.get("cadence", "isolated")
                    and "variant" not in case]  # fmt: skip
        names = {name for held in measured for name in ([held] if isinstance(held, str) else held)}
        assert {pattern for pattern, _ in COLLECTIVES.values()} <= names


def test_a_step_file_is_no_trace_and_says_where_it_goes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mine\.toml: TOML is of step files.* 'linkgauge predict'"):
        convert([written(tmp_path, "mine.toml", b'step = [{ compute = "1ms" }]')])
