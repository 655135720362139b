"""What devices are called in sentences, known here alone: `GPU 1`, `GPU 0 - GPU 1`, `GPUs 0-7`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from linkgauge.model.runtimes import GPU_RUNTIMES

_PART = re.compile(r"\bgpu(\d+)\b")  # as descriptions and discovery call them
_IMPORTED = "gpu"  # of what logs of nccl-tests and rccl-tests name
_MOST_NAMED, _MOST_PAIRS = 8, 4


def device_noun(kinds: Collection[str]) -> str:
    """Return what one device of these runtimes is called: `GPU`, `host device`, or `device` where that is not known."""
    return "GPU" if {*kinds} & {*GPU_RUNTIMES, _IMPORTED} else "host device" if {*kinds} == {"host"} else "device"


def device_words(devices: Sequence[int], noun: str = "device") -> str:
    """Return the devices of a case, in the order of its ranks. `noun`: what one is called.

    >>> device_words([1], "GPU"), device_words([0, 1], "GPU"), device_words([0, 1, 2, 5], "GPU")
    ('GPU 1', 'GPU 0 - GPU 1', 'GPUs 0-2, 5')
    """
    if len(devices) == 1:
        return f"{noun} {devices[0]}"
    if len(devices) == 2:
        first, second = devices
        return f"inside {noun} {first}" if first == second else f"{noun} {first} - {noun} {second}"
    parts = runs_of(devices) if list(devices) == sorted(set(devices)) else list(map(str, devices))
    return f"{noun}s {', '.join(parts)}" if len(parts) <= _MOST_NAMED else f"{len(devices)} {noun}s"


def with_parts_named(text: str) -> str:
    """Return a text about a system's parts with its GPUs as sentences have them: `memory of GPU 1` of `gpu1`."""
    return _PART.sub(r"GPU \1", text)


def pairs_text(pairs: Sequence[Sequence[int]], noun: str = "") -> str:
    """Return pairs in short, for a list or a cell of a table: `0-1, 1-0`, with a noun `GPU pairs 0-1, 0-2`."""
    words = ["-".join(map(str, pair)) for pair in pairs]
    more = f" and {len(words) - _MOST_PAIRS} more" if len(words) > _MOST_PAIRS + 1 else ""
    return (f"{noun} pairs " if noun else "") + ", ".join(words[:_MOST_PAIRS] if more else words) + more


def numbers_text(numbers: Sequence[int]) -> str:
    """Return device numbers without what they are of, each once: `0-3`, `0, 2, 4-7`."""
    return ", ".join(runs_of(numbers))


def runs_of(numbers: Sequence[int]) -> list[str]:
    """Return numbers as runs of three or more and single ones."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return [word for p in parts for word in ([f"{p[0]}-{p[-1]}"] if len(p) > 2 else map(str, p))]
