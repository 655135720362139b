"""What to cite for a run, and what pictures say of how they were made."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from linkgauge import built
from linkgauge.app.cli import run_command
from linkgauge.built import Build, this_build
from linkgauge.plan.papers import papers
from linkgauge.run.parent.devices import find_devices
from linkgauge.run.parent.info import run_info
from linkgauge.store.parts import write_parts
from linkgauge.store.run import load
from linkgauge.view.cite import AUTHORS, TITLE, as_bibtex, as_text, citations
from linkgauge.view.paper_points import drawings
from linkgauge.view.picture_facts import facts_of, png_with, svg_with
from linkgauge.view.reproduce import chosen, pictures
from synthetic import make_case, make_run
from thorough import thorough

ROOT = Path(__file__).parents[2]
BUILD = {"version": "0.1.0", "commit": "0123456789abcdef" * 2 + "01234567", "dirty": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cases = [make_case("mpi", "pingpong", size, (0, 1)) for size in (8, 1 << 20)]
    info = {"requested": {"command": ["run"], "plan": "sc24-3"}, "build": BUILD}
    return make_run(tmp_path / "run", cases=cases, samples=3, warmup=0, info=info)


def facts_in_png(png: bytes) -> dict[str, str]:
    """Return the facts of a PNG file that `png_with` wrote."""
    found, at = {}, 8
    while at + 12 <= len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"iTXt":
            name, _, rest = png[at + 8 : at + 8 + length].partition(b"\0")
            found[name.decode("latin-1")] = rest[4:].decode()
        at += 12 + length
    return found


def test_the_program_and_the_papers_of_a_runs_figures_are_cited(folder: Path) -> None:
    program, paper = citations(load(folder))
    assert program.reference.where == f"Version 0.1.0, commit {BUILD['commit']}"
    assert paper.reference.doi == "10.1109/SC41406.2024.00039"
    assert paper.used == "figures sc24:3"
    write_parts(folder, {"tartan:5": [], "tartan:14": [], "infinity-fabric:7": []})
    assert [(one.reference.key, one.used) for one in citations(load(folder))[1:]] == [
        ("infinity-fabric", "figures infinity-fabric:7"), ("tartan", "figures tartan:5, tartan:14"),
    ]  # fmt: skip


def test_papers_whose_formulas_bound_the_run_are_cited() -> None:
    found = {one.reference.key: one.used for one in citations(load(ROOT / "src" / "linkgauge" / "demo"))}
    assert "patarasuk2009" in found
    assert found["patarasuk2009"].startswith("limits ")


def test_references_are_text_and_bibtex(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["cite", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "doi:10.1109/SC41406.2024.00039" in said
    assert "used for: figures sc24:3" in said
    assert run_command(["cite", str(folder), "--bibtex"]) == 0
    entries = capsys.readouterr().out.strip().split("\n\n")
    assert [entry.split("{")[0] for entry in entries] == ["@misc", "@inproceedings"]
    for entry in entries:
        assert entry.count("{") == entry.count("}")
    assert "author = {{The Linkgauge authors}}" in entries[0]
    for paper in papers():
        assert paper.reference.title in as_text(paper.reference)
        assert " and ".join(paper.reference.authors) in as_bibtex(paper.reference)


def test_citation_cff_has_the_program_and_the_papers_as_the_plans_have_them() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    own, _, references = text.partition("references:")
    assert f'title: "{TITLE}"' in own
    assert all(f'name: "{name}"' in own for name in AUTHORS)
    assert f"version: {this_build().version}" in own
    parts = references.split("  - type: ")[1:]
    assert len(parts) == len(papers())
    for paper, part in zip(papers(), parts, strict=True):
        one = paper.reference
        assert f'title: "{one.title}"' in part
        assert f"year: {one.year}" in part
        assert re.findall(r'family-names: "(.*)"', part) == [name.partition(", ")[0] for name in one.authors]
        assert re.findall(r'doi: "(.*)"', part) == ([one.doi] if one.doi else [])


@thorough("what is cited is tested as text")
def test_pictures_say_version_commit_date_run_and_machine(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    run = load(folder)
    facts = facts_of(run)
    assert facts["Software"] == "Linkgauge 0.1.0"
    assert facts["Commit"] == f"{BUILD['commit']} with changes"
    assert facts["Source"] == f"run {run.info['id']}"
    assert "synthetic" in facts["Machine"]
    assert facts["Creation Time"] == run.info["start"]
    (figure,) = chosen("sc24:3")
    for suffix in (".svg", ".png", ".json"):
        (path, _), *_ = pictures(run, figure, drawings(run, figure), tmp_path, suffix)
        assert path is not None
        if suffix == ".png":
            assert facts_in_png(path.read_bytes()) == facts
        elif suffix == ".json":
            assert json.loads(path.read_text())["usermeta"] == facts
        else:
            svg = path.read_text(encoding="utf-8")
            assert all(value in svg.partition("</metadata>")[0] for value in facts.values())


@thorough("what is cited is tested as text, and charts are drawn in other tests")
def test_a_picture_for_a_column_is_3_3_inches_wide_with_its_caption_beside(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    run = load(folder)
    (figure,) = chosen("sc24:3")
    (path, _), *_ = pictures(run, figure, drawings(run, figure), tmp_path, ".svg", column=True)
    assert path is not None
    svg = path.read_text(encoding="utf-8")
    assert 'width="3.3in"' in svg[:400]
    assert figure.title not in svg.partition("</metadata>")[2]
    assert figure.title in path.with_suffix(".txt").read_text(encoding="utf-8")
    (path, _), *_ = pictures(run, figure, drawings(run, figure), tmp_path, ".png", column=True)
    assert path is not None
    png = path.read_bytes()
    dots = int.from_bytes(png[16:20], "big")
    assert dots == pytest.approx(3.3 * 300, rel=0.01)


def test_facts_do_not_harm_what_they_are_put_into() -> None:
    assert svg_with("no picture", {"Source": "run"}) == "no picture"
    evil = svg_with('<svg width="10" height="20"><g/></svg>', {"Machine": '<script>"&'}, 3.3)
    assert "<script>" not in evil
    assert 'viewBox="0 0 10 20"' in evil
    assert 'height="6.6in"' in evil
    head = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + bytes(17)
    assert facts_in_png(png_with(head, {"Machine": "2 x GPÜ"})) == {"Machine": "2 x GPÜ"}


def test_run_json_has_the_build_and_no_identity() -> None:
    devices = find_devices("host:2")
    info = run_info(arguments=[], plan_name="quick", asked={}, devices=devices, mpis=[], seed=1, absent={})
    assert set(info["build"]) == {"version", "commit", "dirty", "build_type", "compiler"}
    assert info["build"]["version"] == this_build().version


def test_a_checkout_is_known_by_its_commit_and_whether_it_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone with one commit, then with a changed file; a folder that is no clone has what its build stored."""
    package = tmp_path / "src" / "linkgauge"
    package.mkdir(parents=True)
    (package / "built.py").write_text("one")
    monkeypatch.setattr(built, "__file__", str(package / "built.py"))
    monkeypatch.setattr(built, "_stored", lambda: {"commit": "c" * 40, "dirty": False, "build_type": "Release"})
    this_build.cache_clear()
    try:
        assert this_build() == Build(built.__version__, "c" * 40, False, "Release")
        git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
            subprocess.run([*git, *words], check=True, capture_output=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        this_build.cache_clear()
        assert this_build() == Build(built.__version__, head, False, "Release")
        (package / "built.py").write_text("two")
        this_build.cache_clear()
        assert this_build().dirty
        assert this_build().words.endswith(f"commit {head[:12]}, with changes")
        assert "example.org" not in json.dumps(this_build().__dict__)
    finally:
        this_build.cache_clear()


def test_a_module_of_the_program_imports_no_drawing_to_know_its_build() -> None:
    code = "import linkgauge.built, sys; print([m for m in sys.modules if m.split('.')[0] in ('altair', 'pyarrow')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
