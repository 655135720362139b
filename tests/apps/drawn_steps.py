"""Step files drawn by a number: every kind of step, loops, groups and queues, alike and unlike; some with a fault.

The same number draws the same file on every Python: only `Random.random` is asked, which all have alike.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

from linkgauge.apps import matching
from linkgauge.apps.program import Program, amounts, core_program, program_of
from linkgauge.apps.step_file import step_file_of
from linkgauge.errors import UsageError

Step = dict[str, Any]


class Drawn:
    """A file of up to so many lists of steps."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number)
        self._indices: list[str] = []
        self._size = (3, 12, 60)[self._below(3)]
        self._loops = self._below(3) > 0
        self._matched = self._below(4) > 0  # messages that meet, and no root or peer that some rank does not have

    def document(self) -> dict[str, Any]:
        said: dict[str, Any] = {"description": "drawn", "parameters": {"n": self._below(9), "m": 64}}
        if self._below(2):
            said["values"] = {"half": "(n + 1) // 2", "block": "4 * ranks * (half + 1)"}
        if self._below(4) == 0:
            said["presets"] = {"large": {"n": 4096}}
        said["step"] = self._steps(0)
        if self._below(3) == 0 and said["step"]:
            for _ in range(1 + self._below(2)):
                self._spoil(said["step"])
        return said

    def _below(self, most: int) -> int:
        return int(self._random.random() * most)

    def _one(self, *of: Any) -> Any:
        return of[self._below(len(of))]

    def _steps(self, depth: int) -> list[Step]:
        found: list[Step] = []
        for _ in range(1 + self._below(self._size if depth == 0 else 4)):
            if self._loops and depth < 4 and self._below(6) == 0:
                found.append(self._loop(depth))
            elif self._below(5) == 0:  # a stretch as of a trace: of few forms and many numbers
                for _ in range(self._below(self._size)):
                    found += self._of_trace()
            else:
                found += self._some()
        return found

    def _loop(self, depth: int) -> Step:
        loop: Step = {"repeat": self._one(0, 1, 2, 3, "n", "2 + rank * 0", "n % 3")}
        index = f"i{depth}"
        if self._below(2):
            loop["index"] = index
            self._indices.append(index)
        loop["step"] = self._steps(depth + 1)
        if "index" in loop:
            self._indices.remove(index)
        return self._sometimes(loop)

    def _of_trace(self) -> list[Step]:
        match self._below(4):
            case 0:
                return [{"compute": self._below(5000)}, {"collective": "allreduce", "bytes": 4 * self._below(9)}]
            case 1:
                size = self._below(300)
                return [{"send": "(rank + 1) % ranks", "bytes": size, "when": "ranks > 1"},
                        {"receive": "(rank + ranks - 1) % ranks", "bytes": size, "when": "ranks > 1"}]  # fmt: skip
            case 2:
                begun = [{"collective": "allgather", "bytes": f"{4 * self._below(4)} * ranks", "begun": True},
                         {"collective": "allreduce", "bytes": 4 * self._below(4), "begun": True,
                          "group": "0 if rank < 2 else 1 + rank"}]  # fmt: skip
                return [*begun[: 1 + self._below(2)], {"wait": True}]
        return [{"compute": self._below(99)}]

    def _some(self) -> list[Step]:
        size = self._amount()
        match self._below(12):
            case 0 | 1:
                return [self._sometimes({"compute": size})]
            case 2:
                return [self._sometimes({"work": size, "queue": self._queue()})]
            case 3:
                step: Step = {"copy": self._one("host_to_device", "device_to_host", "within_device"), "bytes": size}
                if self._below(2):
                    step["queue"] = self._queue()
                return [self._sometimes(step)]
            case 4 | 5:
                if self._matched:
                    shift = 1 + self._below(2)
                    return [{"send": f"(rank + {shift}) % ranks", "bytes": size, "when": f"ranks > {shift}"},
                            {"receive": f"(rank + ranks - {shift}) % ranks", "bytes": size,
                             "when": f"ranks > {shift}"}]  # fmt: skip
                return [self._sometimes({self._one("send", "receive"): self._one(0, 1, "1 - rank"), "bytes": size})]
            case 6:
                return [{"wait": True}]
            case 7 | 8:
                return [self._collective()]
            case 9:
                step = {"barrier": True}
                if self._below(2):
                    step["group"] = self._one("rank % 2", 0, "rank // 2")
                return [step]
            case 10:
                queue = self._queue()
                return [{"work": 8, "queue": queue}, {"sync": self._one(queue, "all")}]
        queue, other = self._one(("a", "b"), ("b", "a"))
        return [{"work": 8, "queue": queue}, {"copy": "host_to_device", "bytes": 8, "queue": other},
                {"after": queue, "queue": other}]  # fmt: skip

    def _collective(self) -> Step:
        step: Step = {"collective": self._one("allreduce", "allreduce", "broadcast", "alltoall", "alltoallv"),
                      "bytes": self._one(0, 4, 64, "4 * n", "m * ranks", "4 * (rank * 0 + n)")}  # fmt: skip
        if step["collective"] == "broadcast":
            step["root"] = self._one(0, 0, "n % ranks", *([] if self._matched else [1]))
        if step["collective"] == "alltoallv" and self._below(2):
            step["distribution"] = "hot_spot:2"
        elif self._below(4) == 0 and "root" not in step:
            step["group"] = self._one("rank % 2", "0 if rank < 2 else 1 + rank", 3)
        if self._below(3) == 0:
            step["begun"] = self._one(True, True, False)
        if self._below(6) == 0:
            step["when"] = self._one(1, 0, "n > 2")
        return step

    def _queue(self) -> str:
        return str(self._one("a", "b", "q1"))

    def _amount(self) -> int | str:
        index = self._indices[-1] if self._indices and self._below(2) else "n"
        return self._one(0, 1, 8, 64, 1000, self._below(1 << 12), f"{index} * 8", f"{index} + 1", "rank + 1 - rank",
                         "m")  # fmt: skip

    def _sometimes(self, step: Step) -> Step:
        return {**step, "when": self._one("n > 3", 1, 0, "n % 2", "ranks > 1")} if self._below(5) == 0 else step

    def _spoil(self, steps: list[Step]) -> None:
        """Plants a fault in one of the steps, or in one of those in it."""
        step = steps[self._below(len(steps))]
        inner = step.get("step")
        if isinstance(inner, list) and inner and isinstance(inner[0], dict) and self._below(3):
            self._spoil(inner)
            return
        key = [*step, "when"][self._below(len(step))]
        wrong: list[Callable[[], Any]] = [
            lambda: step.__setitem__(key, self._one(True, False)),
            lambda: step.__setitem__(key, self._one(1.0, -0.5, None)),
            lambda: step.__setitem__(key, self._one(1 << 62, -(1 << 62), (1 << 62) - 1, 1 << 63, 1 << 90)),
            lambda: step.__setitem__(key, self._one(-1, -3, 5)),
            lambda: step.__setitem__(key, self._one("unknown + 1", "n +", "", "7 / 2", "1 // 0", "i0", "x\x07y")),
            lambda: step.__setitem__(key, self._one([], [1], {}, {"n": 1}, [{"wait": True}], [{}])),
            lambda: step.pop(key, None),
            lambda: step.__setitem__(self._one("byte", "queue", "index", "group", "x\x1b", "step"), 1),
            lambda: step.__setitem__(self._one("compute", "wait", "repeat"), 1),
            lambda: step.__setitem__("index", self._one("n", "rank", "half", "a b", "i0")),
            lambda: step.__setitem__(self._one("queue", "sync", "after"), self._one("nowhere", "all", "a")),
            lambda: step.__setitem__("when", self._one("rank == 0", "rank - 1", -1)),
            lambda: steps.append({"repeat": 10_000_000, "index": "k", "step": [{"compute": "k + 1"}]}),
            lambda: steps.append({"repeat": 30_000, "step": [{"repeat": 3000, "step": [{"compute": 1}]}]}),
            lambda: steps.append(_nested(9 + self._below(2))),
        ]
        wrong[self._below(len(wrong))]()


def _nested(deep: int) -> Step:
    return {"wait": True} if deep == 0 else {"repeat": 1, "step": [_nested(deep - 1)]}


def told(document: dict[str, Any], ranks: int) -> str:
    """What becomes of a file on so many ranks: sixteen digits of its program, behind them what it is; or the error."""
    checked = "meets"
    try:
        program = program_of(step_file_of(document, "drawn"), {}, ranks)
    except UsageError as error:
        return str(error)
    try:
        matching.check(program)
    except UsageError as error:
        checked = str(error)
    rows = sum(len(one.rows) for one in program.ranks)
    return f"{hashlib.sha256(repr(_plain(program)).encode()).hexdigest()[:16]} {rows} rows, {checked}"


def _plain(program: Program) -> list[Any]:
    said: list[Any] = [program.file.digest, program.file.queues, program.collectives]
    for rank, one in enumerate(program.ranks):
        rows = [tuple(int(number) for number in row) for row in one.rows]
        places = [program.file.where(int(step)) for step in dict.fromkeys(one.steps)]
        said += [rows, [int(step) for step in one.steps], places, one.executed, list(one.copied)]
        core = core_program(program, rank)
        said += [(key, value.tolist() if hasattr(value, "tolist") else value) for key, value in sorted(core.items())]
        said += sorted(amounts(program, rank).items())
    return said
