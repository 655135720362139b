"""The doctor on a recorded machine: answers that are no files, kept while they are asked, and given back elsewhere."""

from __future__ import annotations

import dataclasses
import os
import pwd
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

from linkgauge.doctor.check import NotRecordedError, run_checks
from linkgauge.doctor.facts import GpuFacts, ImexDomain
from linkgauge.doctor.readers import Readers
from linkgauge.files import listening
from linkgauge.model.shape import Shape, checked, each, flag, label, mapping, maybe, number, only, table, text, whole
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.interfaces import network
from linkgauge.run.parent.info import settings_of
from linkgauge.system import discover, nvml
from linkgauge.system.amdsmi import Health
from linkgauge.system.anonymous import Pseudonyms
from linkgauge.system.ethernet import PortSettings
from linkgauge.system.hwloc import xml_file
from linkgauge.system.nvlink_errors import LinkErrors
from linkgauge.system.rdma_ports import rdma_ports
from linkgauge.system.record import Recorder

_OF_JOBS = ("NVIDIA_VISIBLE_DEVICES", "SLURM_JOB_ID", "LD_PRELOAD")  # which the doctor looks at besides
_BEYOND_PIDS = 1 << 22  # Linux gives no process this number or a larger one
_WHOLE = whole(-1)
_OF_TYPES: dict[Any, Shape] = {
    int: _WHOLE, str: text, float: number(), bool: flag, float | None: maybe(number()), bool | None: maybe(flag),
    tuple[int, ...]: each(_WHOLE), tuple[str, ...]: each(text), tuple[int, ...] | None: maybe(each(_WHOLE)),
}  # fmt: skip


def _of_class(kind: type) -> Callable[[Any, str], Any]:
    """The shape of a dataclass of plain fields as JSON has it; it becomes one."""
    known = {name: _OF_TYPES[of] for name, of in get_type_hints(kind).items()}

    def read(value: Any, at: str) -> Any:
        found = only(known)(value, at)
        needed = {one.name for one in dataclasses.fields(kind) if one.default is dataclasses.MISSING}
        found = table(known, needed=needed)(found, at)
        return kind(**{name: tuple(one) if isinstance(one, list) else one for name, one in found.items()})

    return read


_PAIR = each(whole(), 2, 2)
# Each question of `Readers` that no file answers, and what its answer is.
_ANSWERS: dict[str, Shape] = {
    "free_bytes": maybe(whole()), "writable": flag, "limit": _WHOLE,
    "affinity": lambda value, at: set(each(whole(0, 1 << 16))(value, at)), "load": number(0),
    "core_users": each(text), "run": maybe(text), "package_version": maybe(text),
    "gpus": lambda value, at: tuple(table({"gpus": each(_of_class(GpuFacts)), "why": text},
                                          needed=("gpus", "why"))(value, at).values()),
    "module": text, "port_settings": _of_class(PortSettings), "port_errors": mapping(whole(0, (1 << 63) - 1)),
    "runs": maybe(flag), "fabric_manager": maybe(text), "imex": maybe(_of_class(ImexDomain)),
    "amd_smi": each(_of_class(Health)),
    "nvlink_errors": maybe(each(_of_class(LinkErrors))), "visible_devices": maybe(whole()),
    "multicast": maybe(each(whole(0, 1))), "why_no_sycl": text,
    "refused_peers": maybe(mapping(text)), "cross_memory_refused": maybe(text), "mpi_knows_gpus": maybe(flag),
    "ranks_seen": lambda value, at: text(value, at) if isinstance(value, str)
                  else [tuple(one) for one in each(_PAIR)(value, at)],
}  # fmt: skip
# Questions of checks that also say much without the answer, which older recordings lack: what is known then.
_UNKNOWN: dict[str, Any] = {"runs": None, "fabric_manager": None, "imex": None, "amd_smi": []}
_MPI = {"name": label, "vendor": label, "version": text, "abi": label, "library": text, "launcher": maybe(text),
        "launcher_kind": text, "problem": text}  # fmt: skip
_SET_UP = table({"environment": mapping(text), "mpi": maybe(only(_MPI, needed=_MPI)), "mpi_problem": text,
                 "ranks": whole(1, 1 << 20)},
                needed=("environment", "mpi", "mpi_problem", "ranks"))  # fmt: skip


def _keep_answers(readers: Readers, kept: dict[str, Any], pseudonyms: Pseudonyms) -> None:
    """Have `readers` keep each answer that is no file in `kept`, under its question."""
    for name in _ANSWERS:
        setattr(readers, name, _keeping(getattr(readers, name), name, kept, pseudonyms))


def _keeping(ask: Callable[..., Any], name: str, kept: dict[str, Any], pseudonyms: Pseudonyms) -> Callable[..., Any]:
    def asked(*arguments: Any) -> Any:
        answer = ask(*arguments)
        question = _question(name, arguments, pseudonyms)
        if question not in kept:  # checks ask for the GPUs thirty times
            kept[question] = _plain(_unnamed(answer) if name == "core_users" else answer, pseudonyms)
        return answer

    return asked


def _unnamed(users: list[str]) -> list[str]:
    """Who keeps cores busy, without their programs and names."""
    return [one.partition(" by ")[0] for one in users]


class Recorded(Readers):
    """Readers of a recorded machine, whose files are below `root`."""

    def __init__(self, recording: Mapping[str, Any], root: Path, where: str) -> None:
        """`where` names the recording in errors. UsageError where its answers are none."""
        answers = checked(recording["answers"], table({}), where)
        set_up = checked(answers.pop("set-up", None), _SET_UP, f"{where}: answers.set-up")
        mpi = set_up["mpi"]
        if mpi is not None:
            mpi = MpiInstallation(**{**mpi, "library": Path(mpi["library"]), "source": "recording",
                                     "launcher": Path(mpi["launcher"]) if mpi["launcher"] else None})  # fmt: skip
        super().__init__(set_up["environment"], mpi=mpi, mpi_problem=set_up["mpi_problem"], ranks=set_up["ranks"],
                         root=root)  # fmt: skip
        self._answers = {question: checked(value, _ANSWERS[question.split(" ")[0]], f"{where}: answers.{question}")
                         for question, value in answers.items() if question.split(" ")[0] in _ANSWERS}  # fmt: skip
        for name in _ANSWERS:
            setattr(self, name, self._answering(name))

    def _answering(self, name: str) -> Callable[..., Any]:
        def answer(*arguments: Any) -> Any:
            question = _question(name, arguments, None)
            if question not in self._answers:
                if name in _UNKNOWN:
                    return _UNKNOWN[name]
                raise NotRecordedError(f"the recording has no answer to {question.replace('_', ' ')}")
            return self._answers[question]

        return answer


def _folders(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", *_OF_JOBS) if name in environment}


def _question(name: str, arguments: tuple[Any, ...], pseudonyms: Pseudonyms | None) -> str:
    words = [" ".join(one) if isinstance(one, list | tuple) else str(one) for one in arguments]
    question = " ".join([name, *words])
    return question if pseudonyms is None else pseudonyms.of_answer(question)


def _plain(answer: Any, pseudonyms: Pseudonyms) -> Any:
    """An answer as JSON has it, without identities."""
    if isinstance(answer, str):
        return pseudonyms.of_answer(answer)
    if isinstance(answer, GpuFacts):
        # Of processes only that they are there is anybody's business.
        answer = dataclasses.replace(answer, processes=tuple(_BEYOND_PIDS + n for n, _ in enumerate(answer.processes)))
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        return _plain(dataclasses.asdict(answer), pseudonyms)
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], list):
        return _plain({"gpus": answer[0], "why": answer[1]}, pseudonyms)
    if isinstance(answer, dict):
        return {pseudonyms.of_answer(name): _plain(value, pseudonyms) for name, value in answer.items()}
    if isinstance(answer, list | tuple | set | frozenset):
        return [_plain(one, pseudonyms) for one in (sorted(answer) if isinstance(answer, set) else answer)]
    return answer


def pseudonyms_here() -> Pseudonyms:
    """Pseudonyms that know this host's and this user's names."""
    host, users = os.uname().nodename, {os.environ.get("USER", "")}
    with suppress(KeyError):
        users.add(pwd.getpwuid(os.getuid()).pw_name)
    users.add(os.path.basename(os.path.expanduser("~")))
    return Pseudonyms(os.urandom(16), (host, host.partition(".")[0]), sorted(users))


def record(
    readers: Readers,
    doing: Callable[[str], None] = lambda text: None,
    *,
    root: Path = Path("/"),
    pseudonyms: Pseudonyms | None = None,
) -> str:
    """The machine of `readers` as a recording: every check is made and discovery done, and what they look at is kept.

    `root` and `pseudonyms` are others than this machine's in tests.
    """
    names, answers = pseudonyms or pseudonyms_here(), dict[str, Any]()
    recorder = Recorder(root, names)
    _keep_answers(readers, answers, names)
    with listening(recorder.hear):
        run_checks(readers, doing)
        doing("discovering devices and links")
        discover(None if root == Path("/") else root)
        network(root)
        rdma_ports(root)
    mpi = readers.mpi
    answers["set-up"] = _plain(
        {"ranks": readers.ranks, "environment": {**settings_of(readers.environment), **_folders(readers.environment)},
         "mpi_problem": readers.mpi_problem,
         "mpi": mpi and {name: str(getattr(mpi, name)) for name in _MPI if getattr(mpi, name) is not None}
                | ({} if mpi.launcher else {"launcher": None})}, names)  # fmt: skip
    more = {}
    nvidia = nvml.read() if root == Path("/") else nvml.recorded(root)
    if nvidia is not None:
        more["nvml.json"] = nvml.without_identities(nvidia, names)
    file = xml_file(None if root == Path("/") else root)
    if file is not None and file.is_file():
        more["hwloc.xml"] = names.of_answer(file.read_text(errors="replace"))
    return recorder.as_json(answers, more)
