"""NIXL's transfers by descriptors, by NIXL's own Python API and by `linkgauge run --transport nixl`, in turns.

    python bench/nixl_descriptors.py [--rounds 5] [--out FILE.jsonl] [DESCRIPTORSxPAGE ...]

Two processes on this host, each with one agent and its backend UCX, write host memory. A transfer is prepared once and
posted again and again: `post` is the call that posts it, `transfer` from that call until it is done. Descriptors beside
each other are not merged, and no agent has a thread of its own, as Linkgauge's have none. Memory of both is on pages
of 4 KiB: numpy takes huge ones by itself, of which one call copies 1 MiB in half the time. Prints a line a shape:
medians of all rounds, and the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SHAPES = ("1x1048576", "64x1048576", "1024x32768", "16384x4096", "120000x1024")
TRANSFERS = 9
MESSAGE = """
description = "One message, of as many descriptors as --chunk makes of it"
step = [ {{ send = 1, bytes = {size}, when = "rank == 0" }}, {{ receive = 0, bytes = {size}, when = "rank == 1" }},
         {{ wait = true }} ]
"""


def _agent(name: str, size: int) -> tuple[Any, Any, int]:
    """An agent that has registered so many bytes; with the array, and where it lies."""
    import numpy as np
    from nixl_cu13._api import nixl_agent, nixl_agent_config

    agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=False, backends=["UCX"]))
    memory = np.zeros(size, np.uint8)
    address = int(memory.ctypes.data)
    agent.register_memory([(address, size, 0, "")], "DRAM")
    return agent, memory, address


def _target(pipe: Connection, size: int) -> None:
    agent, memory, address = _agent(f"target-{os.getpid()}", size)
    pipe.send((agent.get_agent_metadata(), address))
    while not pipe.poll():
        agent.get_new_notifs()  # takes what has arrived
    pipe.recv()
    pipe.send(bool((memory == 1).all()))


def own(count: int, page: int) -> dict[str, float]:
    """Medians by NIXL's own API, in ns."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_target, args=(there, count * page))
    process.start()
    agent, memory, address = _agent(f"initiator-{os.getpid()}-{time.monotonic_ns()}", count * page)
    memory[:] = 1
    metadata, remote = here.recv()
    peer = agent.add_remote_agent(metadata)
    peer = peer.decode() if isinstance(peer, bytes) else peer
    lists = [agent.prep_xfer_dlist(name, [(at + one * page, page, 0) for one in range(count)], "DRAM")
             for name, at in (("NIXL_INIT_AGENT", address), (peer, remote))]  # fmt: skip
    every = list(range(count))
    handle = agent.make_prepped_xfer("WRITE", lists[0], every, lists[1], every, skip_desc_merge=True)
    posted, moved = [], []
    for turn in range(TRANSFERS + 2):
        begun = time.perf_counter_ns()
        state = agent.transfer(handle)
        after = time.perf_counter_ns()
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        if state != "DONE":
            raise RuntimeError(f"NIXL's transfer ended as {state}")
        if turn >= 2:  # the first ones connect
            posted.append(after - begun)
            moved.append(time.perf_counter_ns() - begun)
    here.send(None)
    if not here.recv():
        raise RuntimeError("wrong bytes")
    process.join()
    return {"post_ns": statistics.median(posted), "transfer_ns": statistics.median(moved)}


def ours(count: int, page: int) -> dict[str, float]:
    """The same by Linkgauge: a message of a step file, on the rank that sends it, until its buffer is free."""
    from linkgauge.run.rank.case_rows import STEPS
    from linkgauge.store.run import load

    with tempfile.TemporaryDirectory() as folder:
        run, steps = Path(folder) / "run", Path(folder) / "one_message.toml"
        steps.write_text(MESSAGE.format(size=count * page))
        subprocess.run(
            [sys.executable, "-m", "linkgauge", "run", "--app", str(steps), "--transport", "nixl", "--chunk", str(page),
             "--devices", "host:2", "--stop-rule", "count", "--stop-samples", str(TRANSFERS), "--warmup", "2",
             "--max-time", "60s", "--no-report", "--out", str(run)],
            check=True, capture_output=True,
        )  # fmt: skip
        told = {one.name: one.value for one in load(run).observed_of(STEPS) if one.rank == 0}
        return {"post_ns": told["posting_time"], "transfer_ns": told["message_time"]}


def main() -> None:
    """Measure each shape in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", nargs="*", default=SHAPES, help="descriptors x bytes of a page")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    os.environ["NUMPY_MADVISE_HUGEPAGE"] = "0"
    for shape in asked.shape:
        count, page = map(int, shape.split("x"))
        rounds = [(own(count, page), ours(count, page)) for _ in range(asked.rounds)]
        line = {
            "descriptors": count, "page_bytes": page, "rounds": asked.rounds, "load": os.getloadavg()[0],
            "nixl_post_ns": statistics.median(one["post_ns"] for one, _ in rounds),
            "nixl_ns": statistics.median(one["transfer_ns"] for one, _ in rounds),
            "linkgauge_post_ns": statistics.median(two["post_ns"] for _, two in rounds),
            "linkgauge_ns": statistics.median(one["transfer_ns"] for _, one in rounds),
            "ratio": statistics.median(two["transfer_ns"] / one["transfer_ns"] for one, two in rounds),
            "ratios": [round(two["transfer_ns"] / one["transfer_ns"], 3) for one, two in rounds],
        }  # fmt: skip
        print(json.dumps(line), flush=True)
        if asked.out is not None:
            with asked.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
