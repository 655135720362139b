"""The report: complete, offline, inert to what a stranger's run folder holds, no script error in a browser."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import linkgauge
from drawn_texts import dumped, measured
from linkgauge.errors import DamagedRunWarning, EnvironmentLackingError, UsageError
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.store.run import Run
from linkgauge.view import charts
from linkgauge.view.report import report_html, write_report
from linkgauge.view.results import Results
from synthetic import make_case, make_run
from thorough import most, thorough

IN_A_BROWSER = thorough("every text of a report is measured in a browser below")

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
    order = [text.index(f'id="{name}"') for name in ("answer", "findings", "use", "patterns", "pairs", "cases")]
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
        "requested": {"a": {EVIL: EVIL}, "every_s": 60},
        **{name: {EVIL: EVIL} for name in ("settings", "nodes_left_out", "pairs_left_out", "clock")},
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


@IN_A_BROWSER
def test_a_browser_draws_every_chart_without_an_error(report: Path, tmp_path: Path, rich: Results) -> None:
    page = check_page(report, tmp_path)
    assert page.count("<svg") >= 15
    assert f"{len(rich.rows)} rows" in page


@IN_A_BROWSER
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


@thorough("names of the report are tested as text")
def test_tables_sort_filter_and_copy_in_a_browser(report: Path, tmp_path: Path, rich: Results) -> None:
    page = tmp_path / "used.html"
    body, _, end = report.read_text(encoding="utf-8").rpartition("</body>")
    page.write_text(f"{body}{USE_TABLES}</body>{end}", encoding="utf-8")
    tree, log = dumped(page, tmp_path)
    found = re.search(r'<script type="application/json" id="said">(.*?)</script>', tree, re.DOTALL)
    assert found is not None, log
    said = json.loads(found[1])
    rising = [float(text) for text in said["rising"]]
    expected = sorted(row.median_ns for row in rich.rows)
    assert rising == sorted(rising)
    assert rising[0] == pytest.approx(expected[0] / 1e3, rel=1e-3)
    falling = [float(text) for text in said["falling"]]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] == pytest.approx(expected[-1] / 1e3, rel=1e-3)
    assert said["words"] == sorted(said["words"])
    wanted = [row for row in rich.rows if row.transport == "ccl" and row.pattern == "allreduce"]
    assert len(said["filtered"]) == len(wanted) > 0
    assert all("ccl" in text and "allreduce" in text for text in said["filtered"])
    assert said["count"] == f"{len(wanted)} of {len(rich.rows)} rows"
    copied = [line.split("\t") for line in said["copied"].split("\n")]
    assert copied[0] == said["columns"]
    assert len(copied) == 1 + len(wanted)
    assert {len(line) for line in copied} == {len(said["columns"])}
    assert {line[-1] for line in copied[1:]} == {row.case_key for row in wanted}
    assert said["button"] == f"copied {len(wanted)} rows"
    assert said["none"] == 0


def test_what_measures_a_picture_finds_what_is_wrong_with_it(tmp_path: Path) -> None:
    page = (
        '<html><body><svg width="300" height="100"><text x="10" y="60">one</text><text x="20" y="62">two</text>'
        '<g class="mark-rule role-mark"><line x1="0" x2="300" y1="20" y2="20"/></g><text x="10" y="25">limit: 4</text>'
        '<rect class="box" x="100" y="70" width="20" height="20"/><text class="model" x="68" y="84">H100 HBM3</text>'
        '<text x="280" y="90">over the edge</text></svg></body></html>'
    )
    found = measured(page, tmp_path, 800)
    assert [words[1:] for words in found["overlaps"]] == [["one", "two"]]
    assert [len(found[name]) for name in ("crossed", "wide", "outside")] == [1, 1, 1]


@pytest.mark.parametrize("width", most([500, 1280], [500]))
def test_every_text_of_the_report_can_be_read(known_report: Path, tmp_path: Path, width: int) -> None:
    """No text lies on another, leaves its picture or its box; one limit a chart, and no line through its name."""
    found = measured(known_report.read_text(encoding="utf-8"), tmp_path, width)
    for name in ("overlaps", "outside", "wide", "crossed"):
        assert found[name] == [], name
    assert max(count for _, count in found["limits"]) == 1
    assert found["width"] <= 0


@pytest.fixture(scope="module")
def known_report(known_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(known_run, tmp_path_factory.mktemp("report") / "known.html", findings=[FINDING])


def test_mechanisms_measured_equally_often_stand_in_the_runs_order(known_report: Path, known_machine: Results) -> None:
    # Not in the order of a set, which differs from process to process.
    often = Counter(known_machine.label(row) for row in known_machine.rows if row.pattern == "allreduce")
    pairs = re.findall(r"<figcaption>(\S+) against (\S+)</figcaption>", known_report.read_text(encoding="utf-8"))
    assert pairs == [tuple(label for label, _ in often.most_common(2))]


def test_no_chart_is_of_one_point(report: Path, tmp_path: Path) -> None:
    for spec in embedded(report.read_text(encoding="utf-8"))["charts"]:
        data = embedded(report.read_text(encoding="utf-8"))["datasets"]
        assert charts.points_of({**spec, "datasets": data}) > 1
    cases = [make_case("ccl", name, 4096) for name in ("allreduce", "unidirectional")]
    one = write_report(linkgauge.load(make_run(tmp_path / "run", cases=cases, samples=1)), tmp_path / "r.html")
    assert embedded(one.read_text(encoding="utf-8"))["charts"] == []


def test_curves_of_one_size_a_mechanism_are_boxes_and_folded(tmp_path: Path) -> None:
    cases = [make_case("ccl", "unidirectional", 1 << 20), make_case("mpi", "unidirectional", 1 << 24)]
    cases += [make_case(name, "alltoall", 1 << 20) for name in ("ccl", "mpi")]
    text = write_report(linkgauge.load(make_run(tmp_path / "run", cases=cases, samples=40)), tmp_path / "r.html")
    page = text.read_text(encoding="utf-8")
    assert "over size</figcaption>" not in page
    assert "1 more task at one size a mechanism" in page


def test_the_choices_of_libraries_are_folded_below_the_curves(tmp_path: Path) -> None:
    case = make_case("ccl", "allreduce", 1 << 20)
    path = make_run(tmp_path / "run", cases=[case, make_case("ccl", "allreduce", 4096)], samples=20)
    chosen = [["ccl", "4 KiB to 1 MiB", "NVLS"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("linkgauge.view.report.chosen_ranges", lambda results, rows: chosen)
        text = report_html(linkgauge.load(path), findings=())
    assert (
        text.index('id="patterns"') < text.index('id="spread"') < text.index('id="chosen"') < text.index('id="cases"')
    )
    folded = text[text.index('id="chosen"') : text.index('id="cases"')]
    assert folded.index("<details>") < folded.index("NVLS") < folded.index("</details>")


def test_tables_are_cards_on_a_narrow_page(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    (narrow,) = re.findall(r"@media \(max-width: 600px\) \{(.*?)\n\}", text, re.DOTALL)
    assert ".cards thead { display: none; }" in narrow
    assert "content: attr(data-label)" in narrow
    assert re.findall(r"display: none", narrow.replace(".cards thead { display: none; }", "")) == ["display: none"]
    for table in re.findall(r'<table class="cards.*?</table>', text, re.DOTALL):
        head = re.findall(r"<th class=[^>]*>(.*?)</th>", table)
        for row in re.findall(r"<tr>(<td.*?)</tr>", table):
            assert re.findall(r'data-label="(.*?)"', row) == head


def test_a_damaged_run_says_so_before_its_figures(tmp_path: Path) -> None:
    cases = [make_case("mpi", pattern, 8) for pattern in ("pingpong", "allreduce")]
    path = make_run(tmp_path / "run", cases=cases, samples=20, compact=False)
    journal = path / "journal" / "launch-00000.lgj"
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 0x40
    journal.write_bytes(bytes(content))
    run = linkgauge.load(path)
    with pytest.warns(DamagedRunWarning):
        text = report_html(run, findings=())
    assert "The run folder is damaged; 1 case lost." in text
    assert f"linkgauge run --resume {path}" in text
    assert text.index("is damaged") < text.index('id="answer"')
    assert "is damaged" not in report_html(
        linkgauge.load(make_run(tmp_path / "whole", cases=cases, samples=5)), findings=()
    )


def test_an_imported_run_has_its_sentence_and_its_origin() -> None:
    run = linkgauge.load(Path(__file__).parent.parent / "findings" / "imported_nccl_tests")
    text = report_html(run, findings=())
    assert text.count("&quot;imported&quot;: true") == 1 + text[text.index('id="machine"') :].count(
        "&quot;imported&quot;: true"
    )
    (said,) = re.findall(r'<p class="sentence">(.*?)</p>', text)
    assert "imported" not in said
