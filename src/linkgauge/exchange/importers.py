"""`linkgauge import`: other tools' logs as a run folder. What is not understood is reported, never guessed."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.errors import LinkgaugeError, UsageError
from linkgauge.exchange.imported import MOST_RANKS, Hints, ImportedLog, write_run
from linkgauge.exchange.jobs import join
from linkgauge.exchange.readers import JSON_FORMS, READERS, Reader, parts
from linkgauge.exchange.readers.flight_recorder import is_pickle, unpickled
from linkgauge.files import read_file
from linkgauge.model.log_text import Line, lines_of, log_text
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import as_it_is, checked, one_of, parsed, table, whole
from linkgauge.model.transports import TRANSPORTS
from linkgauge.system import catalog
from linkgauge.system.dump import to_data
from linkgauge.system.named import another_machine, named

__all__ = ["Hints", "Imported", "explain", "import_files", "known_tools", "read_log"]

MAX_BYTES = 1 << 30
_HINTS = {"--ranks": whole(1, MOST_RANKS), "--window": whole(1, MOST_RANKS), "--pattern": one_of(PATTERNS),
          "--transport": one_of(TRANSPORTS)}  # fmt: skip
READ = "a tool that 'linkgauge import --list' has as read"
_PACKED = (
    (b"\x1f\x8b", "gzip", "gunzip"), (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"), (b"\xfd7zXZ\0", "xz", "unxz"),
    (b"BZh", "bzip2", "bunzip2"), (b"PK\3\4", "zip", "unzip"),
)  # fmt: skip
_OPENS = re.compile(r"\s*(?:\{|\[\s*(?:[\[{\"\]]|$))")


@dataclasses.dataclass(frozen=True)
class Imported:
    """How many cases were written and how many lines were left out; why, and what was taken as what, a line each."""

    cases: int
    left_out: int
    problems: list[str]
    notes: list[str]


def import_files(
    files: Sequence[Path], output: Path, hints: Hints, system: Mapping[str, Any] | None = None
) -> Imported:
    """Write the run folder `output` of the logs in `files`, a launch for the tables of a log that are alike.

    `system`: the machine's description as run.json holds it, where the user names one. Else it is that of the one
    described machine that the GPUs' names and number fit.

    UsageError for a file that cannot be read or is of no known tool, where no case was understood, where the hints
    name no pattern or transport, or where `output` exists.
    """
    given = {f"--{name}": value for name, value in dataclasses.asdict(hints).items() if value is not None}
    checked(given, table(_HINTS), "import")
    if output.exists():
        raise UsageError(f"{output} exists already: give --out a folder that does not")
    logs = [read_log(file, hints) for file in files]
    join(logs)
    problems = [problem for log in logs for problem in log.problems]
    if not any(log.cases for log in logs):
        raise UsageError(
            f"nothing was understood: {problems[0]}" if problems else
            f"{files[0]}: holds no results: 'linkgauge import --explain {files[0]}' says what its parts are taken for"
        )  # fmt: skip
    notes = [note for log in logs for note in log.notes]
    origin: dict[str, Any] = {}
    hosts = _hosts(logs)
    if system is not None:
        models = [str(device.get("model") or "") for device in system.get("device", ())]
        if doubt := another_machine(hosts, str(system["name"]), models):
            notes.append(f"Another machine: {doubt}. Its limits judge nothing of this log.")
    elif (machine := named(hosts) if hosts else None) is not None:
        if machine.system:
            system = to_data(catalog.load(machine.system))
            origin["taken_for"] = f"Taken for {machine.system} by {machine.words}; --system names another."
            notes.append(origin["taken_for"])
        elif machine.fitting:
            origin["fitting"] = machine.hint
            notes.append(f"Which machine this is of is not known; name it with --system. {machine.hint}.")
    try:
        return Imported(write_run(output, logs, system, origin), sum(log.left_out for log in logs), problems, notes)
    except LinkgaugeError:
        shutil.rmtree(output, ignore_errors=True)  # made by this call, and half of it is of no use
        raise


def _hosts(logs: Sequence[ImportedLog]) -> list[list[tuple[int, str]]]:
    """What the logs say of their machine: by host the devices of all tables that have cases, by ordinal and name."""
    hosts: dict[str, dict[tuple[int, str], None]] = {}
    for rank in (rank for log in logs for one in log.tables if one.cases for rank in one.ranks):
        device = rank["device"]
        place = (int(device.get("ordinal") or 0), str(device.get("name") or ""))
        hosts.setdefault(str(rank.get("host") or ""), {})[place] = None
    return [list(devices) for devices in hosts.values()]


def read_log(file: Path, hints: Hints, *, own: bool = False) -> ImportedLog:
    """Return what is understood of one log. UsageError where it cannot be read or is of no known tool.

    `own`: Linkgauge started the program itself, so that nobody needs to find out of which ranks its figures are.
    """
    content = _content(file)
    if is_pickle(content):
        return _of_data(file, unpickled(content, str(file)), ImportedLog(file.name, own=own), hints)
    cleaned = log_text(content)
    log = ImportedLog(file.name, own=own, notes=[f"{file.name}: {note}" for note in cleaned.notes])
    found: list[Reader] = []
    others: list[Line] = []
    for stream in cleaned.streams:
        readers = _read_stream(stream, log, hints)
        others += [] if readers else [line for line in stream if line.text.strip()]
        found += readers
    if any(reader.read_text is not None for reader in found):
        if others:
            example = f"such as {others[0].text.strip()[:60]!r}"
            log.note(others[0].number, f"{lines_of(len(others))} of processes that printed no table, {example}")
        return log
    if (json := _json_in(cleaned.lines)) is not None:
        return _of_data(file, _parsed(file, json, log), log, hints)
    if found:
        raise UsageError(f"{file}: this is {found[0].refusal}; expected a log of {READ}")
    raise UsageError(f"{file}: not a log of {READ}")


def _content(file: Path) -> bytes:
    """What a log holds. UsageError where it is packed: what a small file unpacks to has no bound."""
    content = read_file(file, MAX_BYTES, f"a log of {READ}")
    for begins, name, command in _PACKED:
        if content.startswith(begins):
            raise UsageError(
                f"{file}: this is packed by {name}: unpack it ({command}); give a packed trace to 'linkgauge convert'"
            )
    return content


def known_tools() -> list[tuple[str, str]]:
    """Each tool whose output is known, and what is done with it: text, JSON, or why it is not read."""
    found: dict[str, list[str]] = {}
    as_json = {form.tool for form in JSON_FORMS}
    for reader in READERS:
        if reader.read_text is None and reader.tool in as_json:
            continue
        unread = reader.instead.removeprefix("which ").replace("Linkgauge does not read", "not read")
        found.setdefault(reader.tool, []).append("text" if reader.read_text is not None else unread)
    for form in JSON_FORMS:
        found.setdefault(form.tool, []).append(form.listed)
    return [(tool, ", ".join(forms)) for tool, forms in found.items()]


def explain(file: Path) -> list[str]:
    """What a log is taken as, a line each: what is taken off it, and by which lines which tool is known."""
    cleaned = log_text(_content(file))
    said = [f"{file.name}: {note}" for note in cleaned.notes]
    known = False
    for stream in cleaned.streams:
        for reader, part in parts(stream):
            lines = [line for line in part if line.text.strip()]
            if not lines:
                continue
            known = known or reader is not None
            what = "no tool's" if reader is None else f"{reader.tool}, read" if reader.read_text else reader.refusal
            begins = lines[0].text.strip()[:60]
            said.append(f"{file.name}:{lines[0].number}: {lines_of(len(lines))} from {begins!r} on: {what}")
    if not known and (text := _json_in(cleaned.lines)) is not None:
        data = _parsed(file, text, ImportedLog(file.name))
        tool = next((form.tool for one in (data, [data]) for form in JSON_FORMS if form.accepts(one)), "")
        said.append(f"{file.name}: {f'JSON of {tool}, read' if tool else 'JSON of no tool that Linkgauge reads'}")
    return said


def _read_stream(lines: Sequence[Line], log: ImportedLog, hints: Hints) -> list[Reader]:
    """Read what one process printed into `log`, and return whose output that is."""
    found = []
    before: list[Line] = []
    for reader, part in parts(lines):
        if reader is None:
            before = part  # a script's words, which may name the program that comes
            continue
        found.append(reader)
        if reader.read_text is not None:
            reader.read_text([*before, *part], log, hints)
        else:
            count = sum(1 for line in part if line.text.strip())
            log.problem(part[0].number, f"{reader.refusal}: left out", count)
        before = []
    return found


def _json_in(lines: Sequence[Line]) -> str | None:
    """The JSON in a log, with or without lines of a launcher's around it; None where no line begins any."""
    first = next((at for at, line in enumerate(lines) if _OPENS.match(line.text)), None)
    if first is None:
        return None
    ends = (at for at in range(len(lines) - 1, first - 1, -1) if lines[at].text.rstrip()[-1:] in ("}", "]"))
    last = next(ends, len(lines) - 1)
    # Empty lines in place of what is not JSON, so that an error names the line of the file.
    texts = {line.number: line.text for line in lines[first : last + 1]}
    return "\n".join(texts.get(number, "") for number in range(1, lines[last].number + 1))


def _parsed(file: Path, text: str, log: ImportedLog) -> Any:
    """The JSON in a text: one value, or an object a line, which are then a list.

    Of objects a line those that are damaged are problems of `log`, as is what stands between them.
    """
    try:
        return parsed(text, as_it_is, str(file))
    except UsageError:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
        if len(lines) < 2 or not all(line.lstrip()[:1] == "{" for _, line in lines[:2]):
            raise
        objects, damaged = [], []
        for number, line in lines:
            try:
                objects.append(parsed(line, as_it_is, str(file)))
            except UsageError:
                damaged.append((number, line))
        # The last one may be cut, as a job was writing it when it ended.
        if len(damaged) - (damaged[-1:] == lines[-1:]) > len(objects):
            raise
        for number, line in damaged[: -1 if damaged[-1:] == lines[-1:] else None]:
            log.problem(number, f"not JSON: {line.strip()[:60]!r}")
        return objects


def _of_data(file: Path, data: Any, log: ImportedLog, hints: Hints) -> ImportedLog:
    for one in (data, [data]):  # a file of records may have a single one
        for form in JSON_FORMS:
            if form.accepts(one):
                form.read(checked(one, form.shape, f"{file}: not as {form.tool} writes it"), log, hints)
                return log
    if unread := next((what for keys, what in _UNREAD_JSON if isinstance(data, dict) and keys <= data.keys()), ""):
        raise UsageError(f"{file}: this is {unread}")
    tools = ", ".join(sorted({form.tool for form in JSON_FORMS}))
    raise UsageError(f"{file}: not JSON of a tool that Linkgauge reads: expected {tools}")


_UNREAD_JSON = (
    ({"lldp"}, "lldpctl's JSON, which describes a network: give it to 'linkgauge run --fabric'"),
    ({"traceEvents"}, "a profile: give it to 'linkgauge convert'"),
    ({"nodes", "schema"}, "an execution trace: give it to 'linkgauge convert'"),
    ({"intervals", "start"}, "iperf3's JSON, which Linkgauge does not read"),
)
"""By the keys of its outermost table what JSON is that has no results."""
