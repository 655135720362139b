"""The documentation's pages show all of the program, what they run is stored with them, and its build finds faults."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from _site import commands, links, outputs, pages, reference

import linkgauge
from linkgauge.doctor import check as doctor
from linkgauge.errors import Exit
from linkgauge.expect.rules import RULES as LIMITS
from linkgauge.findings.rules import RULES as FINDING_RULES
from linkgauge.model.case import DIMENSIONS, STATUSES
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.transports import TRANSPORTS
from linkgauge.plan import builtin, plan_file
from linkgauge.stats.summary import summary_schema
from linkgauge.store import schema
from linkgauge.system import shipped

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Set by Linkgauge for its own processes, or asked of other programs' environments: no user sets them.
OWN_VARIABLES = {"MPI4PY_LIBMPI", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}
EXAMPLES = (
    "linkgauge", "linkgauge.store.run", "linkgauge.model.case", "linkgauge.stats.summary", "linkgauge.expect.of_case",
    "linkgauge.findings", "linkgauge.plan.plan_file", "linkgauge.plan.builtin", "linkgauge.system.catalog",
)  # fmt: skip


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
        for node in ast.walk(ast.parse(path.read_text())):
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


def test_every_finding_says_what_to_do() -> None:
    text = reference.PARTS["finding-rules"]()
    for rule in FINDING_RULES:
        section = text.split(f"## {rule.name}\n")[1].split("\n## ")[0]
        assert section.count("- **fix**: ") >= len(rule.tells), rule.name


def test_a_formula_that_no_pattern_is_known_to_have_is_an_error() -> None:
    assert reference.formula(PATTERNS["allreduce"].bytes_total) == "2 (n - 1) m"
    with pytest.raises(ValueError, match="follows no formula"):
        reference.formula(lambda m, n, w: PATTERNS["pingpong"].bytes_total(m, n, w) + 1)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_the_python_api_are_true(name: str) -> None:
    module: ModuleType = importlib.import_module(name)
    with outputs.workplace():
        result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_stored_runs_are_small_and_name_nobody() -> None:
    runs = sorted(outputs.RUNS.glob("*.tar.xz"))
    assert runs
    for path in runs:
        assert path.stat().st_size < 200 * 1024
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
