"""The report: complete, offline, inert to what a stranger's run folder holds, no script error in a browser."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import linkgauge
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.store.run import Run
from linkgauge.view.report import write_report
from linkgauge.view.results import Results
from synthetic import make_case, make_run

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

FINDING = Finding("slow_link", "fault", "link 0-3", "Link 0 to 3 is <half> as fast as its siblings",
                  (Evidence("185 GB/s against 370"),), 0.97, "Reseat the bridge")  # fmt: skip


@pytest.fixture(scope="module")
def report(rich_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(rich_run, tmp_path_factory.mktemp("report") / "report.html", findings=[FINDING])


def embedded(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_report_starts_with_the_answer_and_holds_everything(report: Path, rich: Results) -> None:
    text = report.read_text(encoding="utf-8")
    data = embedded(text)
    for section in ("answer", "findings", "wrong", "use", "patterns", "pairs", "spread", "cases", "skipped", "machine"):
        assert text.index(f'id="{section}"') > 0
    order = [
        text.index(f'id="{name}"') for name in ("answer", "findings", "use", "patterns", "cases", "skipped", "machine")
    ]
    assert order == sorted(order)
    assert "Link 0 to 3 is &lt;half&gt; as fast" in text
    cases = next(table for table in data["tables"] if table["columns"][0]["name"] == "mechanism")
    assert len(cases["rows"]) == len(rich.rows)
    skipped = next(
        table for table in data["tables"] if table["columns"][-1]["name"] == "reason" and len(table["columns"]) == 5
    )
    assert "no peer access between device 0 and 1" in skipped["words"]
    assert text.count('class="chart"') == len(data["charts"]) > 15


def test_nothing_is_fetched(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert "connect-src 'none'" in text
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"(?:src|href|action)\s*=\s*[\"']?(?:https?:)?//", own)
    specs = json.dumps(embedded(text)["charts"])
    assert not [url for url in re.findall(r"https?://[^\"]+", specs) if "vega.github.io/schema" not in url]
    assert '"url"' not in specs


def test_a_missing_altair_is_one_line_that_says_what_to_do(
    rich_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(EnvironmentLackingError, match=r"pip install 'linkgauge\[report\]'"):
        write_report(rich_run, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_an_unknown_unit_is_named(rich_run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown unit"):
        write_report(rich_run, tmp_path / "report.html", unit="parsec")


def test_a_link_of_the_reports_name_is_replaced_not_followed(rich_run: Run, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "report.html").symlink_to(tmp_path / "precious")
    write_report(rich_run, tmp_path / "report.html", findings=())
    assert (tmp_path / "precious").read_text() == "mine"


PWN = "document.documentElement.dataset.pwned=1"
EVIL = f"</script><script>{PWN}</script><img src=x onerror='{PWN}'>\"'&"

EVIL_WORD = "'><script>document.documentElement.dataset.pwned=1</script>"  # words have no blanks and 64 letters at most


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder whose every text is a script."""
    path = tmp_path_factory.mktemp("hostile") / "run"
    words = dict.fromkeys(("variant", "path", "algorithm"), EVIL_WORD)
    cases = [make_case("mpi", "pingpong", size, **words) for size in (8, 1024)]
    cases.append(make_case("kernel", "allreduce", 1024, variant=EVIL_WORD))
    info = {
        "machine": {EVIL: EVIL, "host": EVIL},
        "versions": {"x": EVIL},
        "origin": EVIL,
        **dict.fromkeys(("start", "end"), EVIL),
        "asked": {"a": {EVIL: EVIL}, "every_s": 60},
        **{name: {EVIL: EVIL} for name in ("settings", "nodes_left_out", "clock")},
        "mpi": {EVIL: {"library": EVIL}},
        "mpi_fallbacks": [dict.fromkeys(("mpi", "title", "reason", "taken", "when"), EVIL)],
        "switches": {"source": EVIL, "above": {one: [EVIL] for one in (EVIL, EVIL + "2")}, "rates": {EVIL: 1e9}},
        "devices": {"kind": "cuda", "ordinals": [0, 1], "infos": [{"uuid": EVIL, "name": EVIL}] * 2},
    }
    seen = {"subject": EVIL, "moment": EVIL, "unit": EVIL, "when_ns": 5, "value": 1.0}
    observed = [{**seen, "rank": rank, "name": name} for rank in (0, 1) for name in (EVIL, "posting_time", "power")]
    launch = {"launch_key": EVIL, "mpi": {"name": EVIL, "version": EVIL}, "env": {EVIL: EVIL}}
    skipped = [(make_case("staging", "alltoall", 32, variant=EVIL_WORD), EVIL)]
    make_run(path, cases=cases, samples=40, host=EVIL, hosts=[EVIL, EVIL + "2"] * 8, info=info, launches=[launch],
             skipped=skipped, observations=observed)  # fmt: skip
    ratios = [dict.fromkeys(("peer", "test", "figure", "verdict"), EVIL) | {"memory": [EVIL, EVIL + "2"]}
              | dict.fromkeys(("ranks", "size", "pairs", "ours_ns", "peer_ns", "ratio", "low", "high"), 2)]  # fmt: skip
    (path / "with").mkdir()
    (path / "with" / "ratios.json").write_text(json.dumps(ratios))
    return write_report(
        linkgauge.load(path),
        path / "report.html",
        findings=[dataclasses.replace(FINDING, sentence=EVIL, severity=EVIL)],
    )


def test_hostile_texts_stay_texts(hostile: Path) -> None:
    text = hostile.read_text(encoding="utf-8")
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert "<img" not in own
    assert PWN in own  # as text
    assert f"<script>{PWN}" not in text
    assert html.escape(EVIL, quote=True) in text


def browser() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("no chromium on this machine: apt-get install chromium")


def dumped(path: Path, tmp_path: Path, width: int = 1400) -> tuple[str, str]:
    """Return the page's tree once all charts are drawn, and what the browser said of scripts."""
    arguments = [
        browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},2000",
        "--virtual-time-budget=60000",
        "--dump-dom",
        f"{path.as_uri()}#all",
    ]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=240, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def check_page(path: Path, tmp_path: Path) -> str:
    page, said = dumped(path, tmp_path)
    root = re.search(r"<html[^>]*>", page)
    assert root is not None
    assert 'data-ready="1"' in root[0], said
    assert "data-errors" not in root[0], said
    assert "data-pwned" not in root[0]
    assert not re.search(r"Uncaught|Refused|SyntaxError", said), said
    charts = len(embedded(path.read_text(encoding="utf-8"))["charts"])
    assert page.count('data-done="1"') == charts
    return page


def test_a_browser_draws_every_chart_without_an_error(report: Path, tmp_path: Path, rich: Results) -> None:
    page = check_page(report, tmp_path)
    assert page.count("<svg") >= 15
    assert f"{len(rich.rows)} rows" in page


def test_a_hostile_run_runs_no_script_in_a_browser(hostile: Path, tmp_path: Path) -> None:
    check_page(hostile, tmp_path)


USE_TABLES = """
<script>
const boxes = Array.from(document.querySelectorAll(".table"));
const box = boxes.find((one) => one.querySelector("thead").textContent.includes("mechanism"));
const columns = Array.from(box.querySelectorAll("th")).map((cell) => cell.textContent);
const column = (name) => Array.from(box.querySelectorAll("tbody tr")).map(
  (row) => row.cells[columns.indexOf(name)].textContent);
const click = (name) => box.querySelectorAll("th button")[columns.indexOf(name)].click();
const said = { columns };
click("median, µs"); said.rising = column("median, µs");
click("median, µs"); said.falling = column("median, µs");
click("mechanism"); said.words = column("mechanism");
const filter = box.querySelector("input");
filter.value = "CCL allreduce"; filter.dispatchEvent(new Event("input"));
said.filtered = Array.from(box.querySelectorAll("tbody tr")).map((row) => row.textContent);
said.count = box.querySelector(".tools .dim").textContent;
document.execCommand = () => { said.copied = document.querySelector("body > textarea").value; return true; };
Object.defineProperty(navigator, "clipboard", { value: { writeText: () => Promise.reject(new Error("no")) } });
box.querySelector(".tools button").click();
setTimeout(() => {
  said.button = box.querySelector(".tools button").textContent;
  filter.value = "nothing has this"; filter.dispatchEvent(new Event("input"));
  said.none = box.querySelectorAll("tbody tr").length;
  const holder = document.createElement("script");
  holder.type = "application/json"; holder.id = "said";
  holder.textContent = JSON.stringify(said).replaceAll("<", "\\u003c");
  document.body.append(holder);
}, 500);
</script>"""


def test_tables_sort_filter_and_copy_in_a_browser(report: Path, tmp_path: Path, rich: Results) -> None:
    page = tmp_path / "used.html"
    body, _, end = report.read_text(encoding="utf-8").rpartition("</body>")
    page.write_text(f"{body}{USE_TABLES}</body>{end}", encoding="utf-8")
    tree, log = dumped(page, tmp_path)
    found = re.search(r'<script type="application/json" id="said">(.*?)</script>', tree, re.DOTALL)
    assert found is not None, log
    said = json.loads(found[1])
    rising = [float(text) for text in said["rising"]]
    expected = sorted(row["median_ns"] for row in rich.rows)
    assert rising == sorted(rising)
    assert rising[0] == pytest.approx(expected[0] / 1e3, rel=1e-3)
    falling = [float(text) for text in said["falling"]]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] == pytest.approx(expected[-1] / 1e3, rel=1e-3)
    assert said["words"] == sorted(said["words"])
    wanted = [row for row in rich.rows if row["transport"] == "ccl" and row["pattern"] == "allreduce"]
    assert len(said["filtered"]) == len(wanted) > 0
    assert all("ccl" in text and "allreduce" in text for text in said["filtered"])
    assert said["count"] == f"{len(wanted)} of {len(rich.rows)} rows"
    copied = [line.split("\t") for line in said["copied"].split("\n")]
    assert copied[0] == said["columns"]
    assert len(copied) == 1 + len(wanted)
    assert {len(line) for line in copied} == {len(said["columns"])}
    assert {line[-1] for line in copied[1:]} == {row["case_key"] for row in wanted}
    assert said["button"] == f"copied {len(wanted)} rows"
    assert said["none"] == 0
