"""A run with its report, a page for a ticket, versions, and what the doctor finds, in one archive."""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from linkgauge.collector import uncollected
from linkgauge.doctor.check import as_row, run_checks
from linkgauge.doctor.readers import Readers
from linkgauge.doctor.since import counters_here, snapshot
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.exchange.anonymous_run import pseudonyms_of, write_anonymous
from linkgauge.judge.check import check
from linkgauge.judge.subjects import load_subjects
from linkgauge.store.run import Run, load
from linkgauge.view.answer import FirstLook
from linkgauge.view.page import escape
from linkgauge.view.ticket import ticket

_NOT_TAKEN = shutil.ignore_patterns(".held*", "report.html", ".*")
_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{border:1px solid #999;padding:.2em .6em;text-align:left}"
)


def write_bundle(
    run: Run, output: Path, readers: Readers, doing: Callable[[str], None], *, anonymous: bool
) -> list[str]:
    """Write the archive, and return what it lacks, a line each.

    `anonymous`: hosts, users, UUIDs, serial numbers, addresses and paths are replaced, alike everywhere in it.
    UsageError where the file is there already, its folder is not, or its name is another format's.
    """
    if output.suffixes[-2:] != [".tar", ".gz"] and output.suffix != ".tgz":
        raise UsageError(f"-o '{output}': expected a name that ends in .tar.gz")
    if not output.parent.is_dir():
        raise UsageError(f"-o '{output}': no such folder: {output.parent}")
    if os.path.lexists(output):
        raise UsageError(f"{output} exists already: name another file with -o")
    lacking: list[str] = []
    names = pseudonyms_of(run) if anonymous else None
    hide: Callable[[str], str] = names.of_run if names is not None else str
    name = "bundle" if anonymous else run.path.resolve().name
    with tempfile.TemporaryDirectory(prefix="linkgauge-bundle-") as scratch:
        root = Path(scratch) / name
        doing("copying the run")
        if anonymous:
            write_anonymous(run, root / "run", hide)
        else:
            shutil.copytree(run.path, root / "run", ignore=_NOT_TAKEN)
        copied = load(root / "run")
        doing("making the report")
        try:
            from linkgauge.view.report import write_report

            write_report(copied, root / "report.html")
        except (ImportError, EnvironmentLackingError) as error:
            lacking.append(f"no report.html: {error}")
        doing("making the page")
        with uncollected():
            (subject,) = load_subjects([root / "run"])
            text = ticket(FirstLook.of(copied), subject.facts, check([subject], ""))
        text = text.replace(str(root / "run"), "run")
        (root / "index.html").write_text(as_html(text))
        versions = {"versions": copied.info.get("versions"), "build": copied.info.get("build"),
                    "mpi": copied.info.get("mpi"), "launches": [one.versions for one in copied.launched]}  # fmt: skip
        (root / "versions.json").write_text(json.dumps(versions, indent=1, default=str) + "\n")
        here = os.uname().nodename
        hosts = {rank.host for launch in run.launched for rank in launch.ranks} - {None, ""}
        if here in hosts:
            doing("checking this node")
            rows = [as_row(one, result) for one, result in run_checks(readers, doing)]
            (root / "doctor.json").write_text(hide(json.dumps(rows, indent=1, ensure_ascii=False)) + "\n")
            (root / "counters.json").write_text(hide(snapshot({here: counters_here()})))
        else:
            lacking.append("no doctor.json, no counters.json: this is no node of the run; run the command there")
        doing("packing")
        _packed(root, output, anonymous)
    return lacking


def _packed(root: Path, output: Path, anonymous: bool) -> None:
    def entry(info: tarfile.TarInfo) -> tarfile.TarInfo:
        if anonymous:  # owners and times show whose it is
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
        return info

    half = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with tarfile.open(half, "w:gz") as archive:
            archive.add(root, root.name, filter=entry)
        os.replace(half, output)
    finally:
        half.unlink(missing_ok=True)


def as_html(text: str) -> str:
    """Return a ticket as one HTML page. Of Markdown it knows what `ticket` writes."""
    body: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(("- ", "| ")):
            mark = line[:2]
            block = []
            while at < len(lines) and lines[at][:1] == mark[0]:
                block.append(lines[at])
                at += 1
            body.append(_list(block) if mark == "- " else _table(block))
            continue
        if heading := re.match(r"(#+) (.*)", line):
            body.append(f"<h{len(heading[1])}>{_inline(heading[2])}</h{len(heading[1])}>")
        elif line:
            body.append(f"<p>{_inline(line)}</p>")
        at += 1
    title = re.sub(r"^#+ ", "", lines[0]) if lines else ""
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return "\n".join([head, *body, "</html>", ""])


def _list(lines: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in lines) + "</ul>"


def _table(lines: list[str]) -> str:
    rows = [re.split(r"(?<!\\) *\| *", line.strip())[1:-1] for line in lines if not line.startswith("| --- ")]
    made = ["<tr>" + "".join(f"<{cell}>{_inline(text)}</{cell}>" for text in row) + "</tr>"
            for number, row in enumerate(rows) for cell in (("th",) if not number else ("td",))]  # fmt: skip
    return f"<table>{''.join(made)}</table>"


def _inline(text: str) -> str:
    """Return a line's bold, code and escaped signs as HTML."""
    found = re.sub(r"(?<!\\)\*\*(.+?)(?<!\\)\*\*", r"\0b\1\0/b", text)
    found = re.sub(r"(?<!\\)`(.+?)(?<!\\)`", r"\0c\1\0/c", found)
    found = escape(re.sub(r"\\([\\`*\[\]<|#_])", r"\1", found))
    for sign, tag in (("b", "strong"), ("c", "code")):
        found = found.replace(f"\0{sign}", f"<{tag}>").replace(f"\0/{sign}", f"</{tag}>")
    return found
