"""The first screen: alike things as one row, what each link reached, and the pictures' figures and words."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import linkgauge
from linkgauge.store.run import Run
from linkgauge.view.answer import MOST_TASKS, FirstLook, first_answers
from linkgauge.view.node_picture import color_class, node_svg
from linkgauge.view.node_words import summary_text, texts
from linkgauge.view.page import Page
from linkgauge.view.report_charts import first_screen
from linkgauge.view.task_table import apart_lines, task_words
from node_run import LARGE, node_cases, node_run
from synthetic import make_case, make_run, usual_cases


def look_at(path: Path) -> FirstLook:
    return FirstLook.of(linkgauge.load(path))


def drawn(look: FirstLook) -> ElementTree.Element:
    assert look.node is not None
    return ElementTree.fromstring(node_svg(look.limits.system, look.node, "GB/s"))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> FirstLook:
    """Eight devices behind switches: what enters the fourth is slow, and the seventh's host link."""
    into = {(device, 3): 0.7 for device in range(8) if device != 3}
    return look_at(
        node_run(tmp_path_factory.mktemp("slow") / "run", "hgx-h200-8", slow=into, host={6: 0.7}, cases=node_cases(8))
    )


def test_alike_things_are_one_row_with_its_range(slow: FirstLook) -> None:
    rows = {one.name: task_words(one, "GB/s") for one in slow.answers}
    assert set(rows) == {
        "one way · all pairs", "both ways · all pairs", "allreduce · 8 GPUs",
        "alltoall · 8 GPUs", "host_to_device · each of GPUs 0-7", "device_to_host · each of GPUs 0-7",
    }  # fmt: skip
    host = rows["host_to_device · each of GPUs 0-7"]
    assert (host.peak_mechanism, host.peak_size, host.share, host.limit) == ("copy_engine", "256 MiB", "87 %", "63.0")
    ends = [float(end) for end in host.peak.split(" to ")]
    assert all(54 < end < 56 for end in ends)  # not the seventh's 38
    told = list(apart_lines(slow.answers, "GB/s"))
    assert any(line.startswith("host_to_device · each of GPUs 0-7 differs on: GPU 6") for line in told)
    assert any("GPU 0 - GPU 3 27" in line and "one way" in line for line in told)


def test_time_is_of_the_pingpong_and_goodput_of_the_stream(slow: FirstLook) -> None:
    one_way = next(one for one in slow.answers if one.name.startswith("one way"))
    assert (one_way.fastest.row.pattern, one_way.fastest.row.size) == ("pingpong", 8)
    assert one_way.widest is not None
    assert (one_way.widest.row.pattern, one_way.widest.row.size) == ("unidirectional", LARGE)
    assert len(one_way.fastest.rows) == len(one_way.widest.rows) == 56


def test_of_figures_as_good_the_one_of_more_pairs_is_told(tmp_path: Path) -> None:
    """A pair's curve goes on beyond the matrix: the matrix's figure stands for all, where it is as good."""
    cases = [*node_cases(4), make_case("copy_engine", "unidirectional", 1 << 30, (0, 1))]
    look = look_at(node_run(tmp_path / "run", "hgx-h200-4", cases=cases))
    words = task_words(look.answers[0], "GB/s")
    assert words.peak_size == "256 MiB"
    cases = [make_case("copy_engine", "unidirectional", size, (0, 1)) for size in (1 << 10, 1 << 30)]
    cases += [make_case("copy_engine", "unidirectional", 1 << 10, (1, 0))]
    words = task_words(look_at(node_run(tmp_path / "two", "hgx-h200-4", cases=cases)).answers[0], "GB/s")
    assert (words.peak.endswith(" (0-1)"), words.peak_size) == (True, "1 GiB")


def test_at_most_so_many_tasks_at_first_sight_and_none_lost(tmp_path: Path) -> None:
    patterns = ("pingpong", "alltoall", "allreduce", "allgather", "reduce_scatter", "broadcast", "reduce", "gather",
                "scatter", "one_to_all", "all_to_one", "ring_shift")  # fmt: skip
    cases = usual_cases(("ccl",), patterns, (1 << 10,))
    cases += usual_cases(("ccl",), ("allreduce", "alltoall", "gather", "scatter", "reduce"), (1 << 10,), (0, 1))
    found = look_at(make_run(tmp_path / "run", cases=cases, samples=20)).answers
    shown, more = first_answers(found)
    assert len(shown) == MOST_TASKS < len(found)
    assert len(shown) + len(more) == len(found)
    assert {one.fastest.row.pattern for one in more} <= {"gather", "scatter", "reduce"}
    assert [one for one in found if one in shown] == shown  # in the order of patterns


def test_ports_and_host_links_carry_what_their_cases_reached(slow: FirstLook) -> None:
    node = slow.node
    assert node is not None
    odd = {(part, key, way) for part in ("ports", "host") for key, ends in getattr(node, part).items()
           for way, end in enumerate(ends) if end.apart}  # fmt: skip
    assert odd == {("ports", 3, 1), ("host", 6, 0), ("host", 6, 1)}
    assert all(end.share == pytest.approx(0.87, abs=0.01) for end in node.told if not end.apart)
    assert node.ports[3][1].share == pytest.approx(0.87 * 0.7, abs=0.01)
    assert node.ports[3][1].limit == pytest.approx(450e9)
    assert not node.links


def test_links_between_devices_are_told_each_way(tmp_path: Path) -> None:
    look = look_at(node_run(tmp_path / "run", "lumi-g", slow={(0, 2): 0.7}))
    node = look.node
    assert node is not None
    assert len(node.links) == 12
    assert {key for key, ends in node.links.items() if ends[0].apart} == {(0, 2)}
    assert not any(ends[1].apart for ends in node.links.values())
    assert {round((ends[0].limit or 0) / 1e9) for ends in node.links.values()} == {50, 100, 200}


def test_what_is_not_known_is_gray_and_says_why(tmp_path: Path) -> None:
    cases = [make_case("copy_engine", "unidirectional", LARGE, (0, 1))]
    look = look_at(node_run(tmp_path / "run", "hgx-h200-8", cases=cases))
    assert look.node is not None
    assert "Gray: not measured (30)." in summary_text(look.node)
    small = [case for case in node_cases(8, 1 << 20) if case.pattern == "unidirectional"]
    look = look_at(node_run(tmp_path / "small", "hgx-h200-8", cases=small))
    assert look.node is not None
    assert "1 MiB does not fill it (16)" in summary_text(look.node)
    assert all(end.rate and end.share is None for ends in look.node.ports.values() for end in ends)
    assert {element.get("class") for element in drawn(look).iter() if element.get("class", "").startswith("s")} <= {
        "su", "share"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["hgx-h200-4", "hgx-h200-8", "dgx-2", "lumi-g", "summit", "v100-dgx-1"])
def test_the_picture_holds_every_figure_in_words_and_nothing_overlaps_a_box(tmp_path: Path, name: str) -> None:
    look = look_at(node_run(tmp_path / "run", name, samples=12))
    assert look.node is not None
    picture = drawn(look)
    words = " ".join("".join(element.itertext()) for element in picture.iter())
    for device in look.limits.system.devices:
        assert f"GPU {device.ordinal}" in words
    described = next(element.text or "" for element in picture.iter() if element.tag == "desc")
    assert described.count("%") == len([end for end in look.node.told if end.share is not None])
    assert len(list(texts(look.node, "GB/s"))) == described.count(";") + 1
    boxes = [_rectangle(one) for one in picture.iter("rect") if one.get("class") == "box"]
    assert len(boxes) == len(look.limits.system.devices)
    for place, one in enumerate(boxes):
        for other in boxes[:place]:
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    halos = [_rectangle(one) for one in picture.iter("rect") if one.get("class") == "halo"]
    hidden = [(a, b) for i, a in enumerate(halos) for b in (*halos[:i], *boxes) if _overlap(a, b) > 0.3 * _area(a)]
    assert not hidden
    _, _, width, height = (float(word) for word in (picture.get("viewBox") or "").split())
    assert all(left >= 0 and right <= width and top >= 0 and bottom <= height for left, top, right, bottom in boxes)


def _rectangle(element: ElementTree.Element) -> tuple[float, float, float, float]:
    x, y, width, height = (float(element.get(key, "0")) for key in ("x", "y", "width", "height"))
    return (x, y, x + width, y + height)


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _area(a: tuple[float, ...]) -> float:
    return (a[2] - a[0]) * (a[3] - a[1])


def test_a_rack_is_drawn_as_tiles(tmp_path: Path) -> None:
    cases = [make_case("copy_engine", "unidirectional", LARGE, (device, (device + 1) % 72)) for device in range(72)]
    look = look_at(node_run(tmp_path / "run", "gb200-nvl72", cases=cases, samples=10))
    boxes = [one for one in drawn(look).iter("rect") if one.get("class") == "box"]
    assert len(boxes) == 72


def test_colors_rise_with_the_share() -> None:
    assert [color_class(share) for share in (None, 0.0, 0.41, 0.6, 0.79, 0.88, 1.02)] == [
        "su", "s0", "s1", "s2", "s3", "s4", "s5"
    ]  # fmt: skip


def test_the_screen_has_table_picture_and_matrices_in_this_order(slow: FirstLook) -> None:
    page = Page()
    first_screen(page, slow, "GB/s")
    text = "".join(page._parts)
    order = [text.index(part) for part in ('id="answer"', '<svg class="node"', "Pairs one way", "Pairs both ways")]
    assert order == sorted(order)
    matrix = text[order[2] : order[3]]
    assert len(re.findall(r'<td class="s4"', matrix)) == 49
    assert len(re.findall(r'<td class="s2 odd"', matrix)) == 7
    assert "share of 450" in matrix
    assert "share of 900" in text[order[3] :]


def test_a_run_without_a_system_has_a_matrix_and_no_colors(rich_run: Run) -> None:
    page = Page()
    first_screen(page, FirstLook.of(rich_run), "GB/s")
    text = "".join(page._parts)
    assert "<svg" not in text
    assert "No color: what the links carry is not known." in text
    assert 'class="su odd" title="0 to 3: ' in text


def test_alike_devices_are_one_panel_and_different_ones_their_own(tmp_path: Path) -> None:
    sizes = (1 << 20, LARGE)
    cases = [make_case("copy_engine", "local_copy", size, (device,)) for device in range(4) for size in sizes]
    cases.append(make_case("copy_engine", "local_copy", 1 << 24, (2,)))
    panels = look_at(node_run(tmp_path / "run", "hgx-h200-4", cases=cases)).results.panels
    assert [first.devices for first, _ in panels] == [(2,)]  # the one with the most sizes
    # Without a system devices are told apart by their memory nodes, two on each here.
    assert len(look_at(make_run(tmp_path / "bare", cases=cases, samples=10)).results.panels) == 2


def test_show_and_run_begin_with_the_same_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from linkgauge.app.cli import run_command
    from linkgauge.view.report import report_html
    from linkgauge.view.summary import print_summary

    path = node_run(tmp_path / "run", "hgx-h200-4")
    print_summary(linkgauge.load(path), Console(width=200))
    said = capsys.readouterr().out.splitlines()[0].strip()
    assert said.startswith("4x Synthetic GPU: all GPU pairs within 1 %, 130 GB/s = 87 % of NVLink (150 GB/s); host")
    assert run_command(["show", str(path)]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert run_command(["show", str(path), "--pattern", "unidirectional"]) == 0
    assert "all GPU pairs within" not in capsys.readouterr().out  # a part is not the run
    assert f'<p class="sentence">{said}</p>' in report_html(linkgauge.load(path))


def test_rules_are_asked_once_for_summary_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from linkgauge.view.judged import findings_of

    asked: list[Run] = []

    def judge(run: Run) -> list[object]:
        asked.append(run)
        return []

    monkeypatch.setattr("linkgauge.findings.judge", judge)
    path = make_run(tmp_path / "run", cases=[make_case("ccl", "allreduce", 8)], samples=10)
    loaded = linkgauge.load(path)
    assert findings_of(loaded) == findings_of(loaded) == []
    assert len(asked) == 1
    findings_of(linkgauge.load(path))
    assert len(asked) == 2
