"""Execution traces of PyTorch 2.11 by gloo, which records no parameters of its collectives: c10d's operators are read.

`gloo/` has two steps of five models on two ranks, as bench/real_programs/torch_step.py wrote them, less what nothing
reads. What they communicate is known from the models' shapes: layers of 256 x 256 float32, 32 rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from linkgauge.apps.matching import check
from linkgauge.apps.program import amounts, program_of
from linkgauge.apps.step_file import step_file_of
from linkgauge.apps.traces import convert

TRACES = Path(__file__).parent / "gloo"
STEPS, LAYER, ROWS = 2, 256 * 256 * 4, 32 * 256 * 4
EXPECTED = {
    "ddp": {"allreduce": (3 * STEPS, 3 * LAYER * STEPS)},
    "fsdp": {"allgather": (6 * STEPS, 6 * LAYER * STEPS), "reduce_scatter": (3 * STEPS, 3 * LAYER * STEPS)},
    "tensor": {"allreduce": (2 * STEPS, 2 * ROWS * STEPS)},
    "pipeline": {"sent": (2 * STEPS, ROWS * STEPS), "received": (2 * STEPS, ROWS * STEPS)},
    # Rank 0's expert gets 24 of its own 32 rows and none of rank 1's, which has 8 and 32: 8 rows one way and none the
    # other, of which the mean is 4.
    "moe": {"alltoallv": (2 * STEPS, ROWS // 8 * 2 * STEPS)},
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_step_has_the_communication_of_its_model(kind: str) -> None:
    document, lost = convert([TRACES / f"{kind}.tar.gz"])
    made = program_of(step_file_of(document, kind), {}, 2)
    check(made)
    for rank in range(2):
        assert {name: (one.count, one.total) for name, one in amounts(made, rank).items()} == EXPECTED[kind]
    assert any("process group" in words for words in lost) == (kind != "pipeline")


def steps_of(*operators: tuple[str, str, list[Any]], tmp_path: Path) -> list[dict[str, Any]]:
    """What two ranks do that have these operators: name, schema, inputs."""
    nodes = [{"id": number, "name": name, "ctrl_deps": 1, "inputs": {"values": values},
              "attrs": [{"name": "op_schema", "value": schema}]}
             for number, (name, schema, values) in enumerate(operators, 2)]  # fmt: skip
    paths = [tmp_path / f"et.{rank}.json" for rank in range(2)]
    for path in paths:
        path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}))
    return list(convert(paths)[0]["step"])


def tensor(storage: int, elements: int = 16) -> list[Any]:
    return [storage + 100, storage, 0, elements, 4, "cpu"]


ALLREDUCE = "c10d::allreduce_(Tensor[] tensors, ProcessGroup process_group, ReduceOp reduce_op, bool async_op=True)"


def test_what_is_begun_is_waited_for_where_its_tensors_are_used(tmp_path: Path) -> None:
    steps = steps_of(
        ("c10d::allreduce_", f"{ALLREDUCE} -> (Tensor[], Work)", [[tensor(1)], "<Object>", "<Object>", True]),
        ("aten::mul", "", [tensor(2), 3.0]),
        ("c10d::allreduce_", f"{ALLREDUCE} -> (Tensor[], Work)", [[tensor(3)], "<Object>", "<Object>", True]),
        ("aten::copy_", "", [tensor(4), tensor(1)]),
        ("c10d::allreduce_", f"{ALLREDUCE} -> (Tensor[], Work)", [[tensor(5)], "<Object>", "<Object>", False]),
        tmp_path=tmp_path,
    )
    begun = {"collective": "allreduce", "bytes": 64, "begun": True}
    assert steps == [{"repeat": 2, "step": [begun]}, {"wait": True}, {"collective": "allreduce", "bytes": 64}]


def test_what_all_ranks_do_alike_is_predicted_on_other_numbers_of_ranks() -> None:
    """A shard stays as large, so that twice the ranks gather twice the bytes; messages name their ranks."""
    document, _ = convert([TRACES / "fsdp.tar.gz"])
    assert document["description"].endswith("of 2 ranks, on others each rank has as many bytes")
    made = program_of(step_file_of(document, "fsdp"), {}, 4)
    check(made)
    assert amounts(made, 3)["allgather"].total == 2 * EXPECTED["fsdp"]["allgather"][1]
    assert "needs" in convert([TRACES / "pipeline.tar.gz"])[0]


def test_an_operator_of_c10d_is_inside_no_other(tmp_path: Path) -> None:
    """gloo's threads take part in the observer's stack, so that what comes next seems to be called by an operator."""
    nodes = [{"id": number, "name": "c10d::allreduce_", "ctrl_deps": parent, "inputs": {"values": [[tensor(number)]]},
              "attrs": [{"name": "op_schema", "value": ALLREDUCE}]}
             for number, parent in ((4, 2), (17, 4), (26, 17))]  # fmt: skip
    for rank in range(2):
        (tmp_path / f"et.{rank}.json").write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}))
    document, _ = convert([tmp_path])
    made = program_of(step_file_of(document, "made"), {}, 2)
    assert amounts(made, 0)["allreduce"].count == 3
