"""Runs beside another user of two GPUs: whether it is named, what is accused, and what `check` says.

    .venv/bin/python bench/disturbed.py [VARIANT...] [--rounds 1] [--out FOLDER] [--time-limit 50s]

For each variant it starts another user, runs the default plan, and prints a line of JSON: the variant, whether an other
user was named and how, the faults and losses that were reported, the exit status of `check`, and the seconds it took.
The other user is ended after each run. Each round draws GPUs, direction, size, share and pauses anew, by its number.
A run is judged while the next one's other user starts, so that a round takes 2 s and the time limit.
Needs CUDA's driver and two NVIDIA GPUs, and about a minute a variant. PyTorch is used for `compute` where it is
installed, else Linkgauge's own matrix products.

free             nobody
copies           copies from one GPU to the other, all the time
bursts           the same for 0.2 to 0.4 s every 1.5 to 3 s
light            the same for about a twentieth of the time
compute          matrix products on one GPU
device_memory    copies within the memory of one GPU
pcie             copies of pinned host memory to one GPU, or back
host_memory      copies of host memory by a quarter to three quarters of the cores
second           a second Linkgauge with the default plan, again and again
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benching import PROGRAM, options, say

HERE = Path(__file__).resolve()
SECOND_STARTS_S = 3.0  # a second Linkgauge says nothing when it begins to measure


class Drawn:
    """What a round's other user does: drawn by the number of the round."""

    def __init__(self, number: int) -> None:
        draw = random.Random(number)
        self.gpu, self.back = draw.randrange(2), draw.random() < 0.5
        self.size = draw.choice((16, 64, 256)) << 20
        self.works_s, self.period_s = draw.uniform(0.2, 0.4), draw.uniform(1.5, 3.0)
        self.light_s = draw.uniform(0.09, 0.15)  # after each 2 GiB, which take 5 ms
        self.cores = draw.uniform(0.25, 0.75)  # of all


class Cuda:
    """The few calls of CUDA's driver that another user needs; an error ends the process with its number."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)

    def __call__(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            sys.exit(f"{name} failed with {status}")

    def context(self, ordinal: int) -> ctypes.c_void_p:
        """Make the primary context of a GPU the current one."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), ordinal)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        return context

    def memory(self, size: int, on_host: bool = False) -> ctypes.c_uint64:
        """Allocate `size` bytes, on the current GPU or pinned on the host."""
        address, count = ctypes.c_uint64(), ctypes.c_size_t(size)
        if on_host:
            self("cuMemHostAlloc", ctypes.byref(address), count, 0)
        else:
            self("cuMemAlloc_v2", ctypes.byref(address), count)
        return address

    def copies(self, ends: str, drawn: Drawn) -> Callable[[], None]:
        """Return what copies 2 GiB: from the GPU to its `peer`, within its `own` memory, or to and from the `host`."""
        size, target = drawn.size, None
        if ends == "peer":
            target_context = self.context(1 - drawn.gpu)
            target = self.memory(size)
        self.context(drawn.gpu)
        if ends == "peer":
            self("cuCtxEnablePeerAccess", target_context, 0)
        places = [target or self.memory(size), self.memory(size, on_host=ends == "host")]
        if ends == "host" and drawn.back:
            places.reverse()
        stream = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(stream), 0)

        def copy() -> None:
            for _ in range((2 << 30) // size):
                self("cuMemcpyAsync", *places, ctypes.c_size_t(size), stream)
            self("cuStreamSynchronize", stream)

        return copy


def at_work() -> None:
    """Say that the other user works now."""
    print("at work", flush=True)


def always(work: Callable[[], None]) -> None:
    """Work without a pause."""
    work()
    at_work()
    while True:
        work()


def by_turns(work: Callable[[], None], works_s: float, period_s: float) -> None:
    """Work for a part of each period."""
    work()
    at_work()
    while True:
        began = time.monotonic()
        while time.monotonic() < began + works_s:
            work()
        time.sleep(max(0.0, began + period_s - time.monotonic()))


def compute(drawn: Drawn) -> None:
    """Multiply matrices on a GPU."""
    device = f"cuda:{drawn.gpu}"
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        again_and_again("--devices", device, "--transport", "kernel", "--pattern", "gemm", "--size", "64MiB",
                        "--stop-rule", "duration", "--max-time", "60s")  # fmt: skip
    a = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)

    def multiply() -> None:
        for _ in range(50):
            a @ a
        torch.cuda.synchronize(drawn.gpu)

    always(multiply)


def host_memory(drawn: Drawn) -> None:
    """Copy host memory by some of the cores."""
    for _ in range(max(2, round(drawn.cores * (os.cpu_count() or 2)))):
        if os.fork() == 0:
            block = bytearray(256 << 20)
            while True:
                bytes(block)
    at_work()
    threading.Event().wait()


def again_and_again(*words: str) -> None:
    """Run a second Linkgauge without end, which does not heed the first one's hold on the GPUs."""
    number = 0
    threading.Timer(SECOND_STARTS_S, at_work).start()
    while True:
        out = Path(os.environ["DISTURBER_OUT"]) / f"second-{os.getpid()}-{number}"
        environment = {**os.environ, "LINKGAUGE_DEVICE_HOLDS": f"disturber-{os.getpid()}"}
        subprocess.run([*PROGRAM, "run", "--no-report", "-q", "--out", str(out), *words], stdout=subprocess.DEVNULL,
                       env=environment, check=False)  # fmt: skip
        number += 1


VARIANTS: dict[str, Callable[[Drawn], None] | None] = {
    "free": None,
    "copies": lambda drawn: always(Cuda().copies("peer", drawn)),
    "bursts": lambda drawn: by_turns(Cuda().copies("peer", drawn), drawn.works_s, drawn.period_s),
    "light": lambda drawn: by_turns(Cuda().copies("peer", drawn), 0.001, drawn.light_s),
    "compute": compute,
    "device_memory": lambda drawn: always(Cuda().copies("own", drawn)),
    "pcie": lambda drawn: always(Cuda().copies("host", drawn)),
    "host_memory": host_memory,
    "second": lambda _: again_and_again("--plan", "default"),
}


def disturb(variant: str, number: int) -> None:
    """Be the other user until the parent closes standard input; its process group ends with it."""

    def ends_with_the_parent() -> None:
        while os.read(0, 1 << 10):
            pass
        os.killpg(0, 9)

    threading.Thread(target=ends_with_the_parent, daemon=True).start()
    work = VARIANTS[variant]
    assert work is not None
    work(Drawn(number))


@contextlib.contextmanager
def disturbed(variant: str, number: int, out: Path, while_it_starts: Callable[[], None]) -> Iterator[None]:
    """Have another user beside what is done within."""
    if VARIANTS[variant] is None:
        while_it_starts()
        yield
        return
    other = subprocess.Popen(
        [sys.executable, str(HERE), "--disturb", variant, "--number", str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "DISTURBER_OUT": str(out)},
        start_new_session=True,
    )
    try:
        while_it_starts()
        assert other.stdout is not None
        if not other.stdout.readline():
            sys.exit(f"the other user of variant {variant} ended with {other.wait()}")
        yield
    finally:
        assert other.stdin is not None
        other.stdin.close()
        other.wait()


def said(*words: str) -> tuple[int, Any]:
    """Return the exit status of a command and what it prints as JSON."""
    done = subprocess.run([*PROGRAM, *words, "--json"], stdout=subprocess.PIPE, check=False)
    return done.returncode, json.loads(done.stdout or b"null")


def measured(variant: str, number: int, out: Path, time_limit: str,
             while_it_starts: Callable[[], None]) -> Callable[[], dict[str, Any]]:  # fmt: skip
    """Run the default plan beside another user, and return what tells how the run is judged."""
    run = out / f"{variant}-{number}"
    with disturbed(variant, number, out, while_it_starts):
        limit = ["--time-limit", time_limit] if time_limit else []
        began = time.monotonic()
        done = subprocess.run([*PROGRAM, "run", "--no-report", "-q", "--out", str(run), *limit],
                              stdout=subprocess.DEVNULL, check=False)  # fmt: skip
        took_s = round(time.monotonic() - began, 1)
    return lambda: {"variant": variant, "round": number, **judged(run), "run": done.returncode, "seconds": took_s}


def judged(run: Path) -> dict[str, Any]:
    """What is said of a run: the other user, who is accused, and the exit status of `check`."""
    _, findings = said("findings", str(run))
    status, _ = said("check", str(run))
    told = [one for one in findings if one["rule"] == "other_processes"]
    return {
        "named": bool(told),
        "disturbed": any(one["severity"] == "disturbed" for one in told),
        "told": [one["sentence"] for one in told],
        "evidence": [item["text"] for one in told for item in one["evidence"]],
        "accused": sorted({one["rule"] for one in findings if one["severity"] in ("fault", "loss")}),
        "check": status,
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("variants", nargs="*", metavar="VARIANT", help=f"of {', '.join(VARIANTS)}; all by default")
    parser.add_argument("--rounds", type=int, default=1, help="how often each variant is measured")
    parser.add_argument("--out", type=Path, default=Path("runs/disturbed"), help="folder for the runs")
    parser.add_argument("--time-limit", default="", help="of each run, such as 50s; none by default")
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--disturb", help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.disturb:
        disturb(asked.disturb, asked.number)
    unknown = [name for name in asked.variants if name not in VARIANTS]
    if unknown:
        parser.error(f"unknown variant '{unknown[0]}': expected some of {', '.join(VARIANTS)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    last: list[Callable[[], dict[str, Any]]] = []

    def judge_the_last() -> None:
        while last:
            say(last.pop()(), asked.out / "found.jsonl")

    for number in range(asked.first, asked.first + asked.rounds):
        for variant in asked.variants or VARIANTS:
            last.append(measured(variant, number, asked.out, asked.time_limit, judge_the_last))
    judge_the_last()


if __name__ == "__main__":
    main()
