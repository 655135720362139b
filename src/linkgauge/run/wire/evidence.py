"""What is kept of a launch that went wrong: stacks, the last lines of output, the ranks' state, and how it ended."""

from __future__ import annotations

import contextlib
import enum
import itertools
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.children import NoAnswerError, output_of
from linkgauge.errors import UsageError
from linkgauge.model.shape import read_json, table, text, whole
from linkgauge.run.machine import processes
from linkgauge.run.machine.segments import noted_segments
from linkgauge.run.wire import heartbeat as beat
from linkgauge.run.wire.heartbeat import HeartbeatFile

_NOTE = table({"rank": whole(-1), "kind": text, "case_key": text, "reason": text}, needed=("rank", "kind", "reason"))


class NoteKind(str, enum.Enum):
    """Why a rank that left a note has ended itself."""

    START = "start"  # its MPI library, or who is started, is not as the launch needs it
    JOURNAL = "journal"  # nothing can be recorded any more: the run ends
    ERROR = "error"


MAX_LINES = 40
MAX_STACK_CHARACTERS = 16_000
_STACK_WAIT_S = 1.0
_PYSPY_TIMEOUT_S = 10

ENDS_OTHERS = (signal.SIGKILL, signal.SIGTERM)  # by which launchers end the ranks beside one that has ended
_NUMBERS = {signal.strsignal(one): int(one) for one in signal.Signals}

# A line that says what is wrong: launchers frame it with rules, and others print all of their help after it.
_TELLING = re.compile(
    r"\b(error|invalid|failed|failure|cannot|unable|unknown|unrecognized|not found|no such|could not|denied|refused|"
    r"timed out|timeout|no route|unreachable|closed by|reset by|lost connection|not permitted|no space|read-only)\b",
    re.IGNORECASE,
)


def last_words(lines: Sequence[str]) -> str:
    """The line of an output that says why it ended: the first that speaks of an error, else the last with a word in it.

    Empty where there is none; cut to 200 characters.
    """
    spoken = [line.strip() for line in lines if re.search(r"[^\W\d_]{2}", line)]
    telling = [line for line in spoken if _TELLING.search(line)]
    return next(iter(telling or spoken[-1:]), "")[:200]


def last_lines(path: Path) -> list[str]:
    """The last lines of a file, control characters taken out; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64 * 1024))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    clean = (re.sub(r"[^\x20-\x7e\u00a0-\uffff\t]", "", line)[:500] for line in text.splitlines())
    return [line for line in clean if line.strip()][-MAX_LINES:]


def notes(folder: Path) -> list[dict[str, Any]]:
    """What ranks that ended themselves left word of, by rank."""
    return list(_said(folder, "note-*.json"))


def say_segments(folder: Path) -> None:
    """A rank's word, once its libraries are up, of which files in shared memory it maps: they outlive a killed rank."""
    mapped = sorted(str(path) for path in processes.mapped_files([os.getpid()], shared=True))
    (folder / f"segments-{os.getpid()}.json").write_text(json.dumps(mapped))


def said_segments(folder: Path) -> set[Path]:
    """What the ranks of a launch have said of it."""
    return {Path(name) for path in folder.glob("segments-*.json") for name in noted_segments(path)}


def failure_of(folder: Path, case_key: str) -> dict[str, Any] | None:
    """The word that a rank left when it failed in this case; None where none did."""
    return next((note for note in _said(folder, "failed-*.json") if note.get("case_key") == case_key), None)


def _said(folder: Path, pattern: str) -> Iterator[dict[str, Any]]:
    """What ranks wrote into files, in the order of their names; one that a rank died over says nothing."""
    for path in sorted(folder.glob(pattern)):
        with contextlib.suppress(UsageError):
            yield read_json(path, 1 << 22, "a rank's word", _NOTE)


_STATES = {"T": "stopped", "D": "uninterruptible", "Z": "ended", "": "gone"}


def rank_states(watch: HeartbeatFile) -> list[dict[str, Any]]:
    """Where each rank stands: process id and state, phase, samples completed."""
    states = []
    for rank in range(watch.ranks):
        pid = watch.word(rank, beat.PID)
        state = processes.state_of(pid) if pid else ""
        reported = not pid and watch.word(rank, beat.STATE) != beat.STATE_STARTING
        states.append(
            {
                "rank": rank,
                "pid": pid,
                "state": "on another node" if reported else _STATES.get(state, "running"),
                "phase": watch.phase_name(rank),
                "beats": watch.word(rank, beat.COUNT),
                "waits_in": _kernel_wait(pid),
            }
        )
    return states


def _kernel_wait(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/wchan").read_text().strip("0\n") if pid else ""
    except OSError:
        return ""


def ask_for_stacks(watch: HeartbeatFile, folder: Path) -> str:
    """Stacks of all ranks: native and Python by py-spy where it is installed and may, else Python's by faulthandler.

    faulthandler writes from a signal handler, so a rank that waits in C code answers too; a stopped one does not.
    """
    texts = []
    pyspy = shutil.which("py-spy")
    pids = [pid for pid in watch.pids() if processes.state_of(pid) not in ("", "Z")]
    if pyspy is not None:
        for pid in dict.fromkeys(pids):
            texts.append(_pyspy(pyspy, pid))
    if not any(texts):
        for pid in dict.fromkeys(pids):
            if processes.state_of(pid) != "T":
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGUSR1)
        time.sleep(_STACK_WAIT_S)
    return _joined(texts) if any(texts) else written_stacks(folder)


def _pyspy(program: str, pid: int) -> str:
    command = [program, "dump", "--native", "--pid", str(pid)]
    try:
        done = output_of(command, _PYSPY_TIMEOUT_S)
    except NoAnswerError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def written_stacks(folder: Path) -> str:
    """What faulthandler has written so far, of all processes of the launch."""
    texts = []
    for path in sorted(folder.glob("stacks-*.txt")):
        with contextlib.suppress(OSError):
            text = path.read_text(errors="replace").strip()
            if text:
                texts.append(f"process {path.stem.removeprefix('stacks-')}:\n{text}")
    return _joined(texts)


def _joined(texts: list[str]) -> str:
    return "\n\n".join(text for text in texts if text)[:MAX_STACK_CHARACTERS]


def how_it_ended(return_code: int, output: list[str], stacks: str) -> dict[str, Any]:
    """Signal and exit status of the rank that died first, as far as the launcher, the stacks or the code tell.

    `by` says who told it: the launcher's message, the rank's own fatal handler, or the return code.
    """
    from linkgauge.run.launchers import FAMILIES  # workers, which import this module, know none

    text = "\n".join(output)
    found: dict[str, Any] = {"launcher_status": return_code}

    def died(number: int, by: str) -> dict[str, Any]:
        return found | {"signal": number, "signal_name": signal_name(number), "by": by}

    patterns = [pattern for one in FAMILIES for pattern in one.signal_patterns]
    numbers = [int(number) for pattern in patterns for number in re.findall(pattern, text)]
    by_name = [one.signal_names_pattern for one in FAMILIES if one.signal_names_pattern]
    named = [name for pattern in by_name for name in re.findall(pattern, text, flags=re.MULTILINE)]
    numbers += [number for name in named if (number := _NUMBERS.get(name)) is not None]
    if numbers:
        return died(next((one for one in numbers if one not in ENDS_OTHERS), numbers[0]), "launcher")
    match = re.search(r"Fatal Python error: (.+)", stacks)
    number = _NUMBERS.get(match[1].strip()) if match else None
    if number is not None:
        return died(number, "rank")
    if return_code < 0:
        return died(-return_code, "launcher itself")
    for pattern in (pattern for one in FAMILIES for pattern in one.status_patterns):
        match = re.search(pattern, text)
        if match:
            status = int(match[1])
            # Hydra gives a signal as such or as 128 + number, by its version.
            if _is_signal(status - 128):
                return died(status - 128, "launcher")
            return found | {"exit_status": status, "by": "launcher"}
    if _is_signal(return_code - 128):
        return died(return_code - 128, "return code")
    return found | {"exit_status": return_code, "by": "return code"}


def _is_signal(number: int) -> bool:
    return number in {int(one) for one in signal.Signals}


def told_rank(output: list[str], ranks: Sequence[Mapping[str, Any]]) -> int | None:
    """The rank of whose end the launcher's message tells, by the process id that some print; else None.

    Intel's Hydra tells of every rank, those that it ended itself too: of several the one whose end is not such.
    """
    from linkgauge.run.launchers import FAMILIES

    text = "\n".join(output)
    told: list[tuple[int, bool]] = []  # process, whether the launcher may have ended it
    for one in FAMILIES:
        starts = list(re.finditer(one.pid_pattern, text)) if one.pid_pattern else []
        for this, after in itertools.zip_longest(starts, starts[1:]):
            words = text[this.start() : after.start() if after else None]
            signals = (re.search(pattern, words) for pattern in one.signal_patterns)
            told.append((int(this[1]), any(int(match[1]) in ENDS_OTHERS for match in signals if match)))
    pid = told[0][0] if len(told) == 1 else next((one for one, ended in told if not ended), 0)
    return next((int(rank["rank"]) for rank in ranks if pid and rank["pid"] == pid), None)


_DOES = {"prepare": "preparing", "check": "checking", "warm up": "warming up", "align": "meeting the others",
         "time": "measuring", "record": "recording", "verify": "verifying", "release": "releasing buffers",
         "compile": "compiling kernels"}  # fmt: skip


def named_rank(rank: int, record: Mapping[str, Any] | None, noun: str) -> str:
    """A rank with its node and device, as the launch's record has them: `rank 3 on n2 (GPU 1)`."""
    told = _of_record(rank, record)
    if told is None:
        return f"rank {rank}"
    return f"rank {rank} on {told['host']} ({noun} {told['device']['ordinal']})"


def host_of(rank: int, record: Mapping[str, Any] | None) -> str:
    """The node of a rank, as the launch's record has it."""
    told = _of_record(rank, record)
    return "a node" if told is None else str(told["host"])


def _of_record(rank: int, record: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return next((one for one in (record or {}).get("ranks", ()) if one.get("rank") == rank), None)


def rank_told_of(output: Sequence[str], record: Mapping[str, Any] | None) -> int | None:
    """The rank of whose end a launcher tells by its number, or by node and process id; None where it tells of none."""
    from linkgauge.run.launchers import FAMILIES

    text = "\n".join(output)
    for pattern in (one.rank_pattern for one in FAMILIES if one.rank_pattern):
        if match := re.search(pattern, text):
            return int(match[1])
    pids = [(int(pid), host) for pid, host in re.findall(r"PID (\d+) RUNNING AT (\S+)", text)]
    ranks = (record or {}).get("ranks", ())
    found = [int(one["rank"]) for one in ranks for pid, host in pids if one["pid"] == pid and one["host"] == host]
    return found[0] if len(found) == 1 else None


def doing(phase: str) -> str:
    """What a rank was at, as the end of a sentence; empty where it was between cases."""
    return f" while {_DOES[phase]}" if phase in _DOES else ""


def signal_name(number: int) -> str:
    """SIGSEGV for 11, and so on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
