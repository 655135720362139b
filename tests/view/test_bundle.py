"""`bundle`: all that a vendor needs in one archive, which names nobody where that is wanted."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from html.parser import HTMLParser
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.judge.check import check
from linkgauge.judge.subjects import load_subjects
from linkgauge.view.bundle import as_html
from synthetic import link_model, make_run, pair_cases

PARTS = {"run", "report.html", "index.html", "versions.json"}
UUID = "GPU-6a3f9c1e-77d2-4b0a-9c55-0123456789ab"


def made(path: Path, host: str) -> Path:
    cases = [case for case in pair_cases("unidirectional", 1 << 26) if len(set(case.devices)) == 2]
    info = {
        "id": "0123456789abcdef0123456789abcdef",
        "requested": {
            "command": ["run", "--out", "runs/evelinas-test", "--mpi", "/home/evelina/mpi"],
            "plan": "default",
        },
        "machine": {"host": host, "cpu": "Synthetic CPU", "note": f"{UUID} at /scratch/evelina/data"},
        "mpi": {"mpich": {"library": "/home/evelina/mpi/lib/libmpi.so.12", "launcher": "/usr/bin/mpiexec"}},
        "user": "evelina",
        "addresses": ["10.1.2.3", "aa:bb:cc:dd:ee:01"],
    }
    return make_run(path, cases=cases, samples=10, host=host, time_ns=link_model({(0, 2): 0.6, (2, 0): 0.6}), info=info)


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as file:
        assert all(not one.name.startswith(("/", "..")) for one in file.getmembers())
        file.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    return root


def test_what_a_user_named_is_not_in_an_anonymous_bundle(tmp_path: Path) -> None:
    mark = "zqxmark"
    run = made(tmp_path / f"{mark}-run", f"{mark}1.{mark}.example.org")
    info = json.loads((run / "run.json").read_text())
    info |= {
        "requested": {
            "command": ["run", "--out", mark, "--hosts", f"{mark}[1-3]", f"--history=s3://{mark}", "--plan",
                        f"{mark}.toml", "--transport", "copy_engine", "--env", f"{mark.upper()}_A={mark} and {mark}",
                        "--env", f"NCCL_TOPO_FILE={mark}.xml,{mark}2.xml", "--env", "NCCL_ALGO=Ring"],
            "plan": f"{mark}-plan",
        },
        "nodes_left_out": {f"{mark}7": f"ssh: connect to host {mark}7 port 22: timed out"},
        "pairs_left_out": {f"{mark}8 {mark}9": "it loses packets"},
        "settings": {"NCCL_COMM_ID": f"{mark}5:4000", "NCCL_PROTO": "LL", "SLURM_JOB_PARTITION": mark,
                     "SLURM_JOB_ID": "77"},
        "versions": {"host runtime": "Linux 6.18.44"},
        "warnings": [f"1.9 of 2 cores are busy by pid 17 (python, user {mark}), pid 18 (user {mark}2) and 1 more",
                     f"NCCL_COMM_ID={mark}5:4000 is set; no space is left on /{mark}; {mark.upper()}_A={mark},{mark}"],
    }  # fmt: skip
    (run / "run.json").write_text(json.dumps(info))
    out = tmp_path / "out.tar.gz"
    assert run_command(["bundle", str(run), "--anonymous", "-o", str(out)]) == 0
    root = unpacked(out, tmp_path / "there")
    for one in root.rglob("*"):
        assert not one.is_file() or mark not in one.read_bytes().decode("latin-1").lower(), one
    tables = load_subjects([root / "run"])[0].facts
    assert mark not in repr([tables.info, tables.devices, tables.launches]).lower()
    kept = json.loads((root / "run" / "run.json").read_text())
    assert kept["requested"]["command"][8:10] == ["--transport", "copy_engine"]
    assert kept["requested"]["command"][-1] == "NCCL_ALGO=Ring"
    assert kept["versions"]["host runtime"] == "Linux 6.18.44"
    assert {"NCCL_PROTO": "LL", "SLURM_JOB_ID": "77"}.items() <= kept["settings"].items()


@pytest.mark.parametrize("name", ["missing/case.tar.gz", "case.html", "case"])
def test_a_file_that_cannot_be_the_archive_is_refused_before_the_work(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "case-1", os.uname().nodename)
    assert run_command(["bundle", str(run), "-o", str(tmp_path / name)]) == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert ("no such folder" if "/" in name else ".tar.gz") in line
    assert not said.out


def test_a_bundle_holds_run_report_page_versions_and_the_state_of_the_runs_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "case", os.uname().nodename)
    out = tmp_path / "case.tar.gz"
    assert run_command(["bundle", str(run), "-o", str(out)]) == 0
    root = unpacked(out, tmp_path / "there")
    assert root.name == "case"
    assert {one.name for one in root.iterdir()} == PARTS | {"doctor.json", "counters.json"}
    assert {one["check"] for one in json.loads((root / "doctor.json").read_text())} > {"mpi_library"}
    assert json.loads((root / "counters.json").read_text())["format"] == "linkgauge-counters"
    assert (root / "run" / "run.json").read_bytes() == (run / "run.json").read_bytes()
    page = (root / "index.html").read_text()
    assert "FAIL: 2 of 2 checks failed" in page
    assert "16500" in page  # serial numbers, by which a vendor knows its parts
    assert run_command(["bundle", str(run), "-o", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_an_anonymous_bundle_names_nobody_and_is_judged_as_the_run_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "evelinas-run", "gpu-node17.example.org")
    out = tmp_path / "out.tar.gz"
    assert run_command(["bundle", str(run), "--anonymous", "-o", str(out)]) == 0
    said = capsys.readouterr()
    assert "this is no node of the run" in said.err
    root = unpacked(out, tmp_path / "there")
    assert {one.name for one in root.iterdir()} == PARTS
    secrets = ["gpu-node17", "example.org", "evelina", "GPU-gpu", UUID[4:], "1650000000", "10.1.2.3", str(tmp_path),
               "aa:bb:cc:dd:ee:01"]  # fmt: skip
    content = gzip.decompress(out.read_bytes()) + b"".join(
        one.read_bytes() for one in root.rglob("*") if one.is_file() and one.suffix != ".html"
    )
    tables = load_subjects([root / "run"])[0].facts
    texts = [content.decode("latin-1"), (root / "index.html").read_text(), repr(tables.devices), repr(tables.info),
             *(repr(launch) for launch in tables.launches)]  # fmt: skip
    for secret in secrets:
        assert not any(secret in text for text in texts), secret
    (mine,), (theirs,) = load_subjects([run]), load_subjects([root / "run"])
    of = [[(one.outcome, one.case_key, one.measured) for one in check([subject], "").checked.verdicts]
          for subject in (mine, theirs)]  # fmt: skip
    assert of[0] == of[1]
    assert "/path/libmpi.so.12" in (root / "run" / "run.json").read_text()  # which library it was stays known


class Shown(HTMLParser):
    """The text of a page, and how its elements nest."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.open = "", [""]

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_a_tickets_markdown_and_runs_nothing_of_it() -> None:
    text = ("# FAIL: 1 of 2\n\n- a \\| **b** `c d`\n- \\<script>x\\</script>\n\n| k | v |\n| --- | --- |\n"
            "| x\\|y | - |\n\nplain \\*text\\*\n")  # fmt: skip
    page = as_html(text)
    shown = Shown()
    shown.feed(page)
    assert shown.open == [""]
    assert "<script>" not in page
    assert "<script>x</script>" in shown.text
    assert "<li>a | <strong>b</strong> <code>c d</code></li>" in page
    assert "<th>k</th><th>v</th>" in page
    assert "<td>x|y</td><td>-</td>" in page
    assert "plain *text*" in shown.text
