"""Which of a machine's GPUs the environment hides from programs, and by which word of which variable.

CUDA_VISIBLE_DEVICES is read as CUDA reads it (CUDA programming guide, environment variables; MIG user guide, device
names): ordinals, UUIDs and unambiguous beginnings of them, MIG's UUIDs. An entry that names no GPU ends the list, and
one that is there twice leaves none. ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES are read as their sources read them
(ROCR-Runtime, amd_filter_device.cpp; clr, rocdevice.cpp): the second counts among what the first has left, and on AMD
GPUs CUDA_VISIBLE_DEVICES counts where HIP_VISIBLE_DEVICES is empty.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from linkgauge.errors import brief, one_line
from linkgauge.nvml import NvmlAbsentError, asker, mig_uuids, open_nvml, text_of
from linkgauge.system import kfd

CUDA, ROCR, HIP = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
VARIABLES = (CUDA, ROCR, HIP)
_ORDINAL = re.compile(r"[+-]?[0-9]{1,9}")
_C_NUMBER = re.compile(r"\s*[+-]?(?:0[xX][0-9a-fA-F]{1,8}|[0-9]{1,9})")  # strtol(3) with base 0
_EMPTY = " is empty"
_ROCR_LONGEST = 20  # "GPU-" and 16 digits


@dataclasses.dataclass(frozen=True)
class KnownGpu:
    """A GPU as its driver names it. `instances`: UUIDs of the MIG devices that it is divided into."""

    uuid: str = ""
    instances: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Visible:
    """What variables leave of `count` GPUs: `left` in their order, by the machine's numbers, and `why` no more."""

    count: int
    left: tuple[int, ...]
    why: str = ""

    @property
    def hidden(self) -> int:
        """How many are hidden."""
        return self.count - len(set(self.left))

    @property
    def words(self) -> str:
        """What is hidden and by what; empty where nothing is."""
        if not self.hidden:
            return ""
        verb = "is" if self.hidden == 1 else "are"
        by = ": " if self.why.endswith(_EMPTY) else " by "
        return f"{self.hidden} of {self.count} GPUs {verb} hidden{by}{self.why}"


def visible(vendor: str, environment: Mapping[str, str], gpus: Sequence[KnownGpu]) -> Visible:
    """Return what the environment leaves of the GPUs of a vendor (`nvidia` or `amd`)."""
    return _of_cuda(environment, gpus) if vendor == "nvidia" else _of_hip(environment, gpus)


def here() -> dict[str, list[KnownGpu]]:
    """The GPUs that the drivers of this machine show, hidden ones too, by vendor, each in its driver's order."""
    found = {"nvidia": _nvidia(), "amd": of_kfd(kfd.read(Path("/"))[0])}
    return {vendor: gpus for vendor, gpus in found.items() if gpus}


def hidden_here() -> list[str]:
    """What the environment hides of this machine's GPUs, a sentence for each vendor."""
    found = (visible(vendor, os.environ, gpus).words for vendor, gpus in here().items())
    return [words for words in found if words]


def of_kfd(nodes: Iterable[kfd.KfdNode]) -> list[KnownGpu]:
    """AMD's devices, in their driver's order. Each partition of a GPU is one."""
    return [KnownGpu(f"GPU-{int(node.unique_id):016x}" if node.unique_id else "") for node in nodes if node.gpu_id]


def _nvidia() -> list[KnownGpu]:
    """NVIDIA's by NVML's numbers; one that does not answer still counts."""
    try:
        library = open_nvml()
    except NvmlAbsentError:
        return []
    ask, found = asker(library), []
    for index in range(ask("nvmlDeviceGetCount") or 0):
        handle = ask("nvmlDeviceGetHandleByIndex", index)
        uuid = None if handle is None else ask("nvmlDeviceGetUUID", handle)
        found.append(KnownGpu() if uuid is None else KnownGpu(text_of(uuid), mig_uuids(library, handle)))
    return found


def _of_cuda(environment: Mapping[str, str], gpus: Sequence[KnownGpu]) -> Visible:
    every, value = tuple(range(len(gpus))), environment.get(CUDA)
    if value is None:
        return Visible(len(gpus), every)
    if not value.strip():
        return Visible(len(gpus), (), CUDA + _EMPTY)
    left: list[tuple[int, str]] = []
    said = f"{CUDA}={_shown(value)}"
    for word in (part.strip() for part in value.split(",")):
        found = _cuda_device(word, gpus)
        if isinstance(found, str):
            return Visible(len(gpus), tuple(gpu for gpu, _ in left), f"{said}: {found}")
        if found in left:
            return Visible(len(gpus), (), f"{said}: {_shown(word)} is there twice, and CUDA then shows none")
        left.append(found)
    return Visible(len(gpus), tuple(gpu for gpu, _ in left), said)


def _cuda_device(word: str, gpus: Sequence[KnownGpu]) -> tuple[int, str] | str:
    """A GPU's number and MIG instance (empty: all of it), or what is wrong with the word."""
    lower = word.lower()
    if _ORDINAL.fullmatch(word):
        return (int(word), "") if 0 <= int(word) < len(gpus) else f"{word} is no GPU here"
    if lower.startswith("mig-gpu-"):  # before driver 470: MIG-GPU-UUID/instance/compute instance
        gpu, _, instance = lower.removeprefix("mig-").partition("/")
        known = [(number, instance) for number, one in enumerate(gpus) if one.uuid.lower() == gpu and one.instances]
    elif lower.startswith("mig-"):
        known = [(number, instance) for number, one in enumerate(gpus) for instance in one.instances
                 if instance.lower().startswith(lower)]  # fmt: skip
    elif lower.startswith("gpu-"):
        known = [(number, "") for number, one in enumerate(gpus) if one.uuid.lower().startswith(lower)]
    else:
        known = []
    if len(known) == 1:
        return known[0]
    shown = _shown(word) if word else "an empty entry"
    return f"{shown} names {len(known)} GPUs here" if known else f"{shown} is no GPU here"


def _of_hip(environment: Mapping[str, str], gpus: Sequence[KnownGpu]) -> Visible:
    left, whys = list(range(len(gpus))), []
    if (value := environment.get(ROCR)) is not None:
        left, bad = _of_rocr(value, gpus)
        if len(left) < len(gpus):
            whys.append(_because(ROCR, value, bad))
    name = HIP if environment.get(HIP) else CUDA
    if value := environment.get(name):
        among = [gpus[number] for number in left]
        chosen, bad = _of_clr(value, among)
        if len(chosen) < len(left):
            whys.append(_because(name, value, bad))
        left = [left[number] for number in chosen]
    return Visible(len(gpus), tuple(left), " and ".join(whys))


def _because(name: str, value: str, bad: str | None) -> str:
    if not value:
        return name + _EMPTY
    ended = "" if bad is None else f": {_shown(bad) or 'an empty entry'} is no GPU here"
    return f"{name}={_shown(value)}{ended}"


def _of_rocr(value: str, gpus: Sequence[KnownGpu]) -> tuple[list[int], str | None]:
    """Numbers of the GPUs that ROCR_VISIBLE_DEVICES leaves, and the word that ends the list before its end.

    A GPU that is there already ends the list too, without being a wrong word.
    """
    left: list[int] = []
    for word in value.split(",")[: len(gpus)] if value else ():
        if word[:1] in ("G", "g"):
            alike = [number for number, one in enumerate(gpus) if one.uuid.lower().startswith(word.lower())]
            number = alike[0] if len(alike) == 1 and 5 <= len(word) <= _ROCR_LONGEST else -1
        else:
            number = _c_number(word)
        if not 0 <= number < len(gpus):
            return left, word
        if number in left:
            return left, None
        left.append(number)
    return left, None


def _c_number(word: str) -> int:
    """A number as strtol reads it with base 0, where nothing follows; -1 for any other word. Nothing at all is 0."""
    if not word:
        return 0
    if not _C_NUMBER.fullmatch(word):
        return -1
    digits = word.strip().lstrip("+-").lower()
    sign = -1 if word.strip().startswith("-") else 1
    if digits.startswith("0x"):
        return sign * int(digits, 16)
    if len(digits) > 1 and digits.startswith("0"):
        return sign * int(digits, 8) if re.fullmatch(r"[0-7]+", digits) else -1
    return sign * int(digits)


def _of_clr(value: str, gpus: Sequence[KnownGpu]) -> tuple[list[int], str | None]:
    """Numbers of the GPUs that HIP_VISIBLE_DEVICES leaves, each once, and the word that ends the list."""
    left: dict[int, None] = {}
    for word in value.split(","):
        known = word
        if "GPU-" in word:
            known = next((str(number) for number, one in enumerate(gpus) if one.uuid and word in one.uuid), word)
        if not _ORDINAL.fullmatch(known) or known != str(int(known)) or not 0 <= int(known) < len(gpus):
            return list(left), word
        left[int(known)] = None
    return list(left), None


def _shown(text: str) -> str:
    """A user's word as a message has it."""
    return brief(one_line(text))
