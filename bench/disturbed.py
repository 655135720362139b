"""Runs beside another user of two GPUs: whether it is named, what is accused, and what `check` says.

    .venv/bin/python bench/disturbed.py [VARIANT...] [--rounds 1] [--out FOLDER] [--time-limit 50s]

For each variant it starts another user, runs the default plan, and prints a line of JSON: the variant, whether an other
user was named and how, the faults and losses that were reported, the exit status of `check`, and the seconds it took.
The other user is ended after each run. Needs CUDA's driver and two NVIDIA GPUs, and about a minute a variant. PyTorch
is used for `compute` where it is installed, else Linkgauge's own matrix products.

free             nobody
copies           256 MiB from GPU 0 to GPU 1, all the time
bursts           the same for 0.3 s every 2 s
light            the same for about a twentieth of the time
compute          matrix products on GPU 1
device_memory    copies within the memory of GPU 0
pcie             copies of pinned host memory to GPU 0
host_memory      copies of host memory by half of the cores
second           a second Linkgauge with the default plan, again and again
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
SIZE = 256 << 20
WARMS_UP_S = 4.0
PROGRAM = (sys.executable, "-m", "linkgauge")


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

    def memory(self, on_host: bool = False) -> ctypes.c_uint64:
        """Allocate SIZE bytes, on the current GPU or pinned on the host."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t(SIZE)
        if on_host:
            self("cuMemHostAlloc", ctypes.byref(address), size, 0)
        else:
            self("cuMemAlloc_v2", ctypes.byref(address), size)
        return address

    def copies(self, source: str) -> Callable[[], None]:
        """Return what copies some times: from GPU 0 to its `peer`, or to GPU 0 from the `host` or its `own` memory."""
        target = None
        if source == "peer":
            target_context = self.context(1)
            target = self.memory()
        self.context(0)
        if source == "peer":
            self("cuCtxEnablePeerAccess", target_context, 0)
        ends = (target or self.memory(), self.memory(on_host=source == "host"))
        stream = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(stream), 0)

        def copy() -> None:
            for _ in range(8):
                self("cuMemcpyAsync", *ends, ctypes.c_size_t(SIZE), stream)
            self("cuStreamSynchronize", stream)

        return copy


def always(work: Callable[[], None]) -> None:
    """Work without a pause."""
    while True:
        work()


def by_turns(work: Callable[[], None], works_s: float, period_s: float) -> None:
    """Work for a part of each period."""
    while True:
        began = time.monotonic()
        while time.monotonic() < began + works_s:
            work()
        time.sleep(max(0.0, began + period_s - time.monotonic()))


def compute() -> None:
    """Multiply matrices on GPU 1."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        again_and_again("--devices", "cuda:1", "--transport", "kernel", "--pattern", "gemm", "--size", "64MiB",
                        "--stop-rule", "duration", "--max-time", "60s")  # fmt: skip
    a = torch.randn(8192, 8192, device="cuda:1", dtype=torch.bfloat16)
    while True:
        for _ in range(50):
            a @ a
        torch.cuda.synchronize(1)


def host_memory() -> None:
    """Copy host memory by half of the cores."""
    for _ in range(max(2, (os.cpu_count() or 2) // 2)):
        if os.fork() == 0:
            block = bytearray(SIZE)
            while True:
                bytes(block)
    threading.Event().wait()


def again_and_again(*words: str) -> None:
    """Run a second Linkgauge without end, which does not heed the first one's hold on the GPUs."""
    number = 0
    while True:
        out = Path(os.environ["DISTURBER_OUT"]) / f"second-{os.getpid()}-{number}"
        environment = {**os.environ, "LINKGAUGE_DEVICE_HOLDS": f"disturber-{os.getpid()}"}
        subprocess.run([*PROGRAM, "run", "--no-report", "-q", "--out", str(out), *words], env=environment, check=False)
        number += 1


VARIANTS: dict[str, Callable[[], None] | None] = {
    "free": None,
    "copies": lambda: always(Cuda().copies("peer")),
    "bursts": lambda: by_turns(Cuda().copies("peer"), 0.3, 2.0),
    "light": lambda: by_turns(Cuda().copies("peer"), 0.001, 0.12),
    "compute": compute,
    "device_memory": lambda: always(Cuda().copies("own")),
    "pcie": lambda: always(Cuda().copies("host")),
    "host_memory": host_memory,
    "second": lambda: again_and_again("--plan", "default"),
}


def disturb(variant: str) -> None:
    """Be the other user until the parent closes standard input; its process group ends with it."""

    def ends_with_the_parent() -> None:
        while os.read(0, 1 << 10):
            pass
        os.killpg(0, 9)

    threading.Thread(target=ends_with_the_parent, daemon=True).start()
    work = VARIANTS[variant]
    assert work is not None
    work()


@contextlib.contextmanager
def disturbed(variant: str, out: Path) -> Iterator[None]:
    """Have another user beside what is done meanwhile."""
    if VARIANTS[variant] is None:
        yield
        return
    other = subprocess.Popen(
        [sys.executable, str(HERE), "--disturb", variant],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "DISTURBER_OUT": str(out)},
        start_new_session=True,
    )
    try:
        time.sleep(WARMS_UP_S)
        if other.poll() is not None:
            sys.exit(f"the other user of variant {variant} ended with {other.returncode}")
        yield
    finally:
        assert other.stdin is not None
        other.stdin.close()
        other.wait()


def said(*words: str) -> tuple[int, Any]:
    """Return the exit status of a command and what it prints as JSON."""
    done = subprocess.run([*PROGRAM, *words, "--json"], stdout=subprocess.PIPE, check=False)
    return done.returncode, json.loads(done.stdout or b"null")


def measured(variant: str, number: int, out: Path, time_limit: str) -> dict[str, Any]:
    """Run the default plan beside another user, and return what is said of it."""
    run = out / f"{variant}-{number}"
    began = time.monotonic()
    with disturbed(variant, out):
        limit = ["--time-limit", time_limit] if time_limit else []
        done = subprocess.run([*PROGRAM, "run", "--no-report", "-q", "--out", str(run), *limit],
                              stdout=subprocess.DEVNULL, check=False)  # fmt: skip
    _, findings = said("findings", str(run))
    status, _ = said("check", str(run))
    told = [one for one in findings if one["rule"] == "other_processes"]
    return {
        "variant": variant,
        "round": number,
        "named": bool(told),
        "disturbed": any(one["severity"] == "disturbed" for one in told),
        "told": [one["sentence"] for one in told],
        "evidence": [item["text"] for one in told for item in one["evidence"]],
        "accused": sorted({one["rule"] for one in findings if one["severity"] in ("fault", "loss")}),
        "check": status,
        "run": done.returncode,
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", metavar="VARIANT", help=f"of {', '.join(VARIANTS)}; all by default")
    parser.add_argument("--rounds", type=int, default=1, help="how often each variant is measured")
    parser.add_argument("--out", type=Path, default=Path("runs/disturbed"), help="folder for the runs")
    parser.add_argument("--time-limit", default="", help="of each run, such as 50s; none by default")
    parser.add_argument("--disturb", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.disturb:
        disturb(asked.disturb)
    unknown = [name for name in asked.variants if name not in VARIANTS]
    if unknown:
        parser.error(f"unknown variant '{unknown[0]}': expected some of {', '.join(VARIANTS)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    for number in range(asked.rounds):
        for variant in asked.variants or VARIANTS:
            line = json.dumps(measured(variant, number, asked.out, asked.time_limit))
            print(line, flush=True)
            with (asked.out / "found.jsonl").open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
