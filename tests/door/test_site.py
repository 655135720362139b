"""The documentation's pages show all of the program, what they run is stored with them, and its build finds faults."""

from __future__ import annotations

import ast
import doctest
import importlib
import pydoc
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import tomli
from _site import commands, links, outputs, packed, pages, reading, reference

import linkgauge
from door.syntax import nodes
from linkgauge.app.demo import copy_stored
from linkgauge.apps.step_file import step_file_of
from linkgauge.doctor import check as doctor
from linkgauge.errors import Exit
from linkgauge.expect.rules import RULES as LIMITS
from linkgauge.findings.rules import RULES as FINDING_RULES
from linkgauge.judge.requirements import read_rules
from linkgauge.model.case import DIMENSIONS, STATUSES
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.transports import TRANSPORTS
from linkgauge.plan import builtin, plan_file
from linkgauge.stats.summary import summary_schema
from linkgauge.store import schema
from linkgauge.system import from_toml, shipped
from thorough import most

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Set by Linkgauge for its own processes, or asked of other programs' environments: no user sets them.
OWN_VARIABLES = {"MPI4PY_LIBMPI", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}


def reference_text() -> dict[str, str]:
    return {path.stem: pages.expand(path.stem, path.read_text(), None) for path in (DOCS / "reference").glob("*.md")}


def lacking(text: str, names: object) -> list[str]:
    """Those of the names that no code of a text has."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    marked = set(re.findall(r"`([^`]+)`", text)) | set(re.findall(r"^#+ (\S+)$", text, re.MULTILINE))
    words = {word for code in marked for word in re.split(r"[\s,/|\\]+", code)} | marked
    return [name for name in names if name not in words]  # type: ignore[attr-defined]


def test_everything_that_the_program_has_is_on_a_page_of_the_reference() -> None:
    on = reference_text()
    assert not lacking(on["dimensions"], [*DIMENSIONS, *(one.flag for one in DIMENSIONS.values())])
    assert not lacking(on["patterns"], PATTERNS)
    assert not lacking(on["transports"], TRANSPORTS)
    findings = [name for rule in FINDING_RULES for name in (rule.name, *rule.tells)]
    assert not lacking(on["finding-rules"], findings)
    doctor.load()
    assert not lacking(on["doctor"], doctor.CHECKS)
    assert not lacking(on["limit-rules"], LIMITS)
    assert not lacking(on["statuses"], STATUSES)
    assert not [one for one in Exit if f"| {one.value} |" not in on["statuses"]]
    keys = {*plan_file.PLAN, *plan_file.CASE, *plan_file.JOB, *plan_file.LAUNCH} - {*DIMENSIONS}
    assert not lacking(on["plan-files"], [*keys, *builtin.names()])
    columns = {name for table in schema.TABLES for name in schema.schema(table).names}
    assert not lacking(on["run-tables"], columns | {*summary_schema().names})
    assert not lacking(on["described-systems"], shipped.names())


def test_every_command_and_option_is_on_the_page_of_commands() -> None:
    text = reference_text()["commands"]
    for words, command in commands.walk():
        name = " ".join(words)
        section = text.split(f"({'command-' + '-'.join(words)})=")[1].split("(command-")[0]
        for one in command.get_params(click.Context(command)):
            if not getattr(one, "hidden", False):
                assert not lacking(section, [flag for flag in one.opts if flag.startswith("--")]), name
                assert not getattr(one, "advanced", False) or "*(advanced)*" in section, name


def variables() -> Iterator[str]:
    """The environment variables that the sources look up by name."""
    for path in sorted((ROOT / "src" / "linkgauge").rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "environ" in text or "getenv" in text else ():
            call = isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.environ.get", "os.getenv")
            if call or (isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ"):
                name = node.args[0] if isinstance(node, ast.Call) else node.slice  # type: ignore[attr-defined]
                if isinstance(name, ast.Constant):
                    yield str(name.value)
    for path in sorted((ROOT / "core").rglob("*.cpp")):
        yield from re.findall(r'getenv\("([A-Z_0-9]+)"', path.read_text())


def test_every_variable_that_is_read_is_on_its_page() -> None:
    text = (DOCS / "reference" / "environment.md").read_text()
    groups = [word.rstrip("*") for word in re.findall(r"`([A-Z_]+\*)`", text)]
    found = [name for name in variables() if name not in OWN_VARIABLES and not name.startswith(tuple(groups))]
    assert found
    assert not lacking(text, found)


# Of other programs: their settings, calls, tests and files; and names that the program joins from parts.
OTHERS_NAMES = {
    "MPI_THREAD_MULTIPLE", "MPI_Sendrecv", "PCI_BUS_ID", "device_to_device_bidirectional_memcpy_write_ce", "xgmi_error",
    "to_pandas", "posting_time", "message_time", "nic_sent_priority_3", "make_NAME_transport", "endpoint_override",
    "DCGM_LIMIT_MAX_PCIREPLAY_RATE", "DCGM_LIMIT_MAX_NVLINK_CRC_ERROR", "DCGM_LIMIT_MAX_NVLINK_ERROR",
    "experimental_config", "enable_cuda_sync_events", "also_of", "NCCL_CTA_POLICY_EFFICIENCY", "NCCL_CTA_POLICY_ZERO",
}  # fmt: skip
NAME = re.compile(r"(?<![\w./-])[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+(?![\w/.])")


def vocabulary() -> set[str]:
    """The words of the program's texts but docstrings, of its files, and the names that it gives fields and functions.

    Those of the tests' own tools too, for contributors.
    """
    found: set[str] = set()
    for path in [*(ROOT / "src" / "linkgauge").rglob("*.py"), *(ROOT / "tests").glob("*.py")]:
        tree = nodes(path)
        described = {id(node.value) for node in tree if isinstance(node, ast.Expr)}
        for node in tree:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
                found.update(re.findall(r"\w+", node.value))
            elif isinstance(node, ast.keyword):
                found.add(node.arg or "")
            elif isinstance(node, ast.AnnAssign):
                found.add(ast.unparse(node.target))
            elif isinstance(node, ast.FunctionDef):
                found.add(node.name)
    for path in (ROOT / "src" / "linkgauge").rglob("*.toml"):
        found.update(re.findall(r"\w+", path.read_text()))
    for path in [*(ROOT / "core").rglob("*.cpp"), *(ROOT / "core").rglob("*.h")]:
        text = re.sub(r"//.*", "", path.read_text())
        found.update(re.findall(r"\w+", text if path.suffix == ".h" else " ".join(re.findall(r'"[^"\n]*"', text))))
    return found


def spans(path: Path) -> list[str]:
    """What a page marks as code within its text."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL))


def test_every_name_on_a_page_is_one_of_the_program() -> None:
    """Keys, columns, rules, findings, variables and metrics; flags and commands are of test_named_commands."""
    known = vocabulary() | OTHERS_NAMES
    unknown = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in [ROOT / "README.md", *DOCS.rglob("*.md")]
        if "results" not in path.parts
        for span in spans(path)
        for name in NAME.findall(span)
        if name not in known
    ]
    assert not unknown, "\n".join(unknown)


def first_column(page: str, heading: str) -> set[str]:
    """The names in the first column of a page's tables with this heading, each on its own."""
    text = (DOCS / "reference" / page).read_text()
    tables = re.findall(rf"^\| {heading} \|.*\n\|[ -:|]*\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert tables
    rows = [row.split("|")[1] for table in tables for row in table.splitlines()]
    return {name for row in rows for name in re.findall(r"`([^`]+)`|(\d+)", row) for name in name if name}


def test_pages_written_by_hand_name_no_status_or_variable_that_there_is_not() -> None:
    assert first_column("statuses.md", "status") == {*STATUSES}
    assert first_column("statuses.md", "exit status") == {str(one.value) for one in Exit}
    words: set[str] = set()
    for path in [*(ROOT / "src" / "linkgauge").rglob("*.*"), *(ROOT / "core").rglob("*.*")]:
        if path.suffix in (".py", ".toml", ".cpp", ".h"):
            words.update(re.findall("[A-Z][A-Z0-9_]+", path.read_text()))
    named = first_column("environment.md", "variable")
    assert len(named) > 20
    groups = {name for name in named if name.endswith("*") and any(map(re.compile(name).match, words))}
    assert named - groups <= words


def fences(kind: str) -> list[tuple[str, str]]:
    """The page and the text of each listing of a kind, but of the results, which are of their day."""
    return [
        (path.stem, text)
        for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
        if "results" not in path.parts
        for text in re.findall(rf"^```{kind}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    ]


READERS: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("[[rule]]", lambda text: read_rules(written(text))),
    ("[[step]]", lambda text: step_file_of(tomli.loads(text), "example")),
    ("[[device]]", lambda text: from_toml(text, "example")),
    ("[figure.", lambda text: None),  # of tests/plan/test_plan_file.py
    ("[[case]]", lambda text: plan_file.parse_plan(text, "example", "example")),
)


def written(text: str) -> Path:
    Path("example.toml").write_text(text)
    return Path("example.toml")


@pytest.mark.parametrize(("page", "text"), fences("toml"))
def test_every_file_that_a_page_shows_is_read(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    next(read for table, read in READERS if table in text)(text)


def test_every_query_that_a_page_shows_runs() -> None:
    query = r'(?:linkgauge|\./lg) query (\S+) ("[^"]+")'
    asked = [found for _, text in fences("(?:console|sh)") for found in re.findall(query, text)]
    assert len(asked) >= 3
    with outputs.workplace():
        copy_stored(Path("linkgauge-demo"))
        assert outputs.of_command("history fleet linkgauge-demo")[1] == 0
        for source, sql in asked:
            where = "fleet" if source.endswith("fleet") else "linkgauge-demo"
            text, status = outputs.of_command(f"query {where} {sql}")
            assert status == 0, text


def test_every_path_that_a_page_names_is_there() -> None:
    """Paths of sources stand as from the checkout, the package, the core, or the page's own folder."""
    pages_with_paths = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "core").rglob("*.md")]
    lost = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in pages_with_paths
        if path.name != "CHANGELOG.md"
        for name in re.findall(r"`([\w.-]+(?:/[\w.-]+)+(?:\.(?:py|h|cpp|sh|toml|md)|/))`", path.read_text())
        if not any((room / name).exists() for room in (ROOT, ROOT / "src/linkgauge", ROOT / "core", path.parent))
        and not re.search("NAME|PAGE|TARGET", name)
    ]
    assert not lost, "\n".join(lost)


def test_every_finding_says_what_to_do() -> None:
    text = reference.PARTS["finding-rules"]()
    for rule in FINDING_RULES:
        section = text.split(f"## {rule.name}\n")[1].split("\n## ")[0]
        assert section.count("- **fix**: ") >= len(rule.tells), rule.name


def test_a_formula_that_no_pattern_is_known_to_have_is_an_error() -> None:
    assert reference.formula(PATTERNS["allreduce"].bytes_total) == "2 (n - 1) m"
    with pytest.raises(ValueError, match="follows no formula"):
        reference.formula(lambda m, n, w: PATTERNS["pingpong"].bytes_total(m, n, w) + 1)


API = re.findall(r"auto(?:function|class):: ([\w.]+)", (DOCS / "reference" / "python.md").read_text())


@pytest.mark.parametrize("name", most(API, API[::5]))
def test_the_examples_of_the_python_api_are_true(name: str) -> None:
    """Each function and class of the page has one, which runs on what `linkgauge demo` writes."""
    shown = pydoc.locate(name)
    tests = doctest.DocTestFinder(recurse=False).find(shown, name, importlib.import_module(shown.__module__))
    with outputs.workplace():
        copy_stored(Path("linkgauge-demo"))
        results = [doctest.DocTestRunner().run(one) for one in tests]
    assert sum(one.attempted for one in results) > 0
    assert sum(one.failed for one in results) == 0


def test_stored_runs_are_small_and_name_nobody() -> None:
    runs = sorted(outputs.RUNS.glob("*.tar.xz"))
    assert runs
    for path in runs:
        assert path.stat().st_size < 300 * 1024
        with tarfile.open(path) as archive:
            for member in archive.getmembers():
                assert (member.uname, member.gname) == ("", "")
                file = archive.extractfile(member)
                assert file is None or not re.search(rb"/(tmp|home|root|work)/", file.read()), member.name


def test_what_a_page_runs_is_held_against_what_was_approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "APPROVED", tmp_path)
    asked = "```{linkgauge} query first 'SELECT 6 * 7 AS answer'\nlines: 1\n```\n\n```{python}\nprint(6 * 7)\n```\n"
    page = outputs.Page("here")
    with outputs.workplace():
        text = pages.expand("here", asked, page)
    assert "```console\n$ linkgauge query first 'SELECT 6 * 7 AS answer'\nanswer\n...\n```" in text
    assert "```python\nprint(6 * 7)\n```\n\n```text\n42\n```" in text
    assert "+42" in page.difference()
    page.approve()
    assert page.difference() == ""
    page.add("more", "output")
    assert "+$ more" in page.difference()


def test_a_file_of_a_stored_run_is_on_the_page() -> None:
    asked = "```{stored} tuned/tuned/page.txt\nfrom: Settings\nlines: 1\n```\n"
    with outputs.workplace():
        text = pages.expand("here", asked, outputs.Page("here"))
        with pytest.raises(pages.PageError, match="no stored run has 'lost'"):
            pages.expand("here", "```{stored} lost\n```\n", outputs.Page("here"))
    assert "$ cat tuned/tuned/page.txt\n...\nSettings that change the time: none found\n...\n```" in text


def test_a_picture_that_a_command_makes_is_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MADE", tmp_path)
    asked = "```{linkgauge} plot first --figure goodput --pattern allreduce -o one.svg\n```\n"
    with outputs.workplace():
        text = pages.expand("folder/page", asked, outputs.Page("folder/page"))
    assert '<img class="picture" src="../_static/made/folder-page-0.svg"' in text
    assert (tmp_path / "folder-page-0.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("fence", "said"),
    [
        ("{linkgauge} show none", "ended with status 2"),
        ("{linkgauge} query first 'SELECT 1'\nstatus: 1", "ended with status 0"),
        ("{linkgauge} show first\nfrom: no such words", "prints no line with 'no such words'"),
        ("{made} nothing", "no part 'nothing' of the reference"),
    ],
)
def test_a_fence_that_cannot_be_replaced_is_an_error(fence: str, said: str) -> None:
    with outputs.workplace(), pytest.raises(pages.PageError, match=said):
        pages.expand("here", f"```{fence}\n```\n", outputs.Page("here"))


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="here">A</h1><a href="b.html#there">b</a> <a href="https://x.org">x</a>')
    (tmp_path / "b.html").write_text('<a href="a.html#here">a</a> <p id="there">b</p>')
    assert links.broken(tmp_path) == []
    (tmp_path / "b.html").write_text('<a href="a.html#gone">a</a> <img src="c.png"> <script src="https://x.org/a.js">')
    assert links.broken(tmp_path) == [
        "a.html: no place b.html#there",
        "b.html: loads https://x.org/a.js from another site",
        "b.html: no place a.html#gone",
        "b.html: no file c.png",
    ]


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {linkgauge.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_clicks_and_words_up_to_an_answer_are_counted(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<nav>not read</nav><article><p>one <b>tw</b>o</p><p>three <a href="b.html#here">four</a> five</p></article>'
    )
    (tmp_path / "b.html").write_text(
        '<article><p>not read</p><h1 id="here">six<a class="headerlink" href="#here">sign</a></h1>'
        "<pre><b>seven</b> eight</pre><p>nine</p></article>"
    )
    assert reading.read(tmp_path, "index b#here", "seven eight") == (1, 4 + 3)
    with pytest.raises(ValueError, match=r"no link to c on index\.html"):
        reading.read(tmp_path, "index c", "nine")
    with pytest.raises(ValueError, match="no 'not read' on b#here"):
        reading.read(tmp_path, "index b#here", "not read")


def test_four_readers_ask_and_each_answer_is_within_the_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = reading.questions()
    by_reader = {row["reader"]: [row for row in rows if row["path"].startswith("index")] for row in rows}
    assert len(by_reader) == 4
    assert min(map(len, by_reader.values())) >= 3
    assert [row for row in rows if int(row["clicks"]) > 3 or int(row["words"]) > 600] == []
    monkeypatch.setattr(reading, "QUESTIONS", tmp_path / "asked.csv")
    reading.QUESTIONS.write_text("question,path,answer\nnear?,index,end\nfar?,index,far end\nnone?,index,lost\n")
    (tmp_path / "index.html").write_text(f"<article><p>end</p><p>{'word ' * 600} far end</p></article>")
    assert reading.too_far(tmp_path) == [
        "far?: 0 clicks and 603 words; at most 3, 600",
        "none?: no 'lost' on index",
    ]


def test_the_packed_site_has_every_file_in_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "html" / "how-to").mkdir(parents=True)
    for name in ("index.html", "how-to/a.html", "objects.inv"):
        (tmp_path / "html" / name).write_text(name)
    made = packed.pack(tmp_path / "html", tmp_path / "wheelhouse")
    name = f"linkgauge-docs-{linkgauge.__version__}"
    assert made.name == f"{name}.zip"
    with zipfile.ZipFile(made) as archive:
        assert archive.namelist() == [f"{name}/how-to/a.html", f"{name}/index.html"]


def test_a_page_can_be_a_file_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "DOCS", tmp_path / "docs")
    (tmp_path / "FILE.md").write_text("# Title\n\n[a](docs/how-to/a.md#b), [c](lg), [d](docs/data/d.json)\n")
    text = pages.expand("folder/page", "```{source} FILE.md\n```\n", None)
    assert text == "\n[a](../how-to/a.md#b), c, d\n\n"
