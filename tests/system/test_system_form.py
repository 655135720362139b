"""The written forms: what is read is what was meant, what is wrong is named in one line."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

import linkgauge.system as systems
from linkgauge.errors import UsageError
from linkgauge.system import Link, based, form, from_toml, units
from linkgauge.system.dump import to_json
from linkgauge.system.form import from_json
from linkgauge.system.model import LINK_KINDS, TOPOLOGIES, Accepted, most_particular

GOOD = """
name = "small"
source = "test"
[[device]]
name = "gpu0..1"
memory_rate = "100 GB/s"
[[host]]
name = "cpu"
[[link]]
kind = "nvlink"
a = "gpu0"
b = "gpu1"
count = 2
signalling_rate = "200 Gb/s"
data_rate = "200 Gb/s"
[[link]]
kind = "pcie"
from = ["gpu0..1"]
to = ["cpu"]
"""


@pytest.mark.parametrize("name", systems.names())
def test_every_described_system_survives_json(name: str) -> None:
    system = systems.load(name)
    assert system.name == name
    assert from_json(to_json(system)) == system


@pytest.mark.parametrize("name", systems.names())
def test_every_figure_has_a_source_and_devices_are_numbered(name: str) -> None:
    system = systems.load(name)
    assert [device.ordinal for device in system.devices] == list(range(len(system.devices)))
    data = json.loads(to_json(system))
    figures = [table for table in _tables(data) if "provenance" in table]
    assert figures
    for figure in figures:
        assert figure["provenance"] in ("described", "measured")  # measured: what this project saw there
        assert len(figure["source"]) > 10, figure
        assert figure["value"] > 0
    for device in system.devices:
        assert device.at is not None
        assert any(link.data_rate for link in system.links_of(device.name))


def _tables(item: object) -> list[dict[str, object]]:
    if isinstance(item, dict):
        return [item, *(table for value in item.values() for table in _tables(value))]
    if isinstance(item, list):
        return [table for value in item for table in _tables(value)]
    return []


def test_units_agree_with_their_meaning() -> None:
    assert units.parse("400 Gb/s", units.RATE) == 50e9
    assert units.parse("1 GiB/s", units.RATE) == 2**30
    assert units.parse("64 GiB", units.SIZE) == 64 * 2**30
    assert units.parse("8.7 us", units.TIME) == pytest.approx(8700)
    assert units.show_rate(150e9, "Gb/s") == "1200 Gb/s"
    assert units.show_rate(None) == "unknown"


def test_unknown_rates_stay_unknown() -> None:
    system = from_toml(GOOD)
    pcie = next(link for link in system.links if link.kind == "pcie")
    assert pcie.rate("cpu") is None
    assert system.links[0].rate("gpu0") == 50e9


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('b = "gpu1"', 'b = "gpu9"', "machine.toml: link 0 (gpu0 - gpu9): ends at 'gpu9', which no device"),
        (
            'data_rate = "200 Gb/s"',
            'data_rate = "-1 GB/s"',
            "link 0 (gpu0 - gpu1): data_rate: '-1 GB/s' is beyond any machine",
        ),
        (
            'data_rate = "200 Gb/s"',
            'data_rate = "0 GB/s"',
            "data_rate: '0 GB/s' is beyond any machine; expected 1 to 1e+18 B/s, or leave it out",
        ),
        ('data_rate = "200 Gb/s"', 'data_rate = "2 GX/s"', "unknown unit 'GX/s' in '2 GX/s'; use one of B/s"),
        (
            'data_rate = "200 Gb/s"',
            'data_rate = "fast"',
            "data_rate: unknown unit 'fast'|data_rate: 'fast' is no quantity",
        ),
        ('data_rate = "200 Gb/s"', 'data_rate = "201 Gb/s"', "data_rate is above signalling_rate"),
        ('name = "cpu"', 'name = "gpu1"', "host gpu1: a device of this name is there already"),
        ('name = "gpu0..1"', 'name = "gpu0"', "ends at 'gpu1'"),
        ('kind = "nvlink"', 'kind = "rope"', "kind is 'rope': expected one of nvlink"),
        ("count = 2", "count = 0", "count is 0: expected a whole number from 1 to 1000000"),
        ("count = 2", "cuont = 2", "unknown key 'cuont' (did you mean 'count'?)"),
        ('b = "gpu1"', 'b = "gpu0"', "joins a node to itself"),
        ('b = "gpu1"', "", "link 0: needs one of: a and b"),
        ('source = "test"', "", "has no source"),
        ('name = "small"', "", "has no 'name'"),
        ("[[host]]", "[host]", "expected [[host]] tables"),
        ("[[host]]", "[[host", "not valid TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_place(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError) as caught:
        from_toml(GOOD.replace(old, new, 1), "machine.toml")
    text = str(caught.value)
    assert text.startswith("machine.toml: ")
    assert "\n" not in text
    assert any(part in text for part in message.split("|")), text


def test_two_devices_of_one_name() -> None:
    twice = GOOD.replace('[[host]]\nname = "cpu"', '[[device]]\nname = "gpu1"\n[[host]]\nname = "cpu"')
    with pytest.raises(UsageError, match="device gpu1: a device of this name is there already"):
        from_toml(twice)


def test_edited_json_may_use_units(tmp_path: Path) -> None:
    data = json.loads(to_json(from_toml(GOOD)))
    data["link"][0]["data_rate"]["value"] = "24 GB/s"
    data["link"][0]["data_rate"]["provenance"] = "measured"
    file = tmp_path / "edited.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    link = systems.load(file).links[0]
    assert link.rate("gpu0") == 48e9
    assert link.data_rate is not None
    assert link.data_rate.provenance == "measured"
    data["link"][0]["data_rate"]["provenance"] = "guessed"
    with pytest.raises(UsageError, match="provenance is 'guessed': expected one of discovered"):
        from_json(json.dumps(data))


def test_names_and_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'lumi-g'"):
        systems.load("lumig")
    with pytest.raises(UsageError, match="there is no such file"):
        systems.load(tmp_path / "none.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match=r"broken.json: not JSON: truncated or damaged at line 1"):
        systems.load(broken)


def test_loading_imports_neither_scipy_nor_networkx() -> None:
    code = (
        "import sys, linkgauge.system as s; s.to_json(s.load('lumi-g'));"
        "print([m for m in ('scipy', 'networkx', 'pynvml', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_described_degrees() -> None:
    """Link counts that follow from the parts: four slots on a P100, six on a V100, eighteen on an H100."""

    known = {name: systems.load(name) for name in systems.names()}

    def fabric(name: str, device: str) -> int:
        return sum(link.count for link in known[name].links_of(device) if link.kind in ("nvlink", "xgmi"))

    assert [fabric("lumi-g", f"gcd{i}") for i in range(8)] == [7, 6, 7, 6, 7, 6, 7, 6]
    assert {fabric("p100-dgx-1", f"gpu{i}") for i in range(8)} == {4}
    assert {fabric("v100-dgx-1", f"gpu{i}") for i in range(8)} == {6}
    assert {fabric("dgx-2", f"gpu{i}") for i in range(16)} == {6}
    assert {fabric("dgx-2", f"nvswitch{i}") for i in range(12)} == {16}
    assert {fabric("summit", f"gpu{i}") for i in range(6)} == {6}
    assert {fabric("summitdev", f"gpu{i}") for i in range(4)} == {4}
    assert {fabric("sierra-like", f"gpu{i}") for i in range(4)} == {6}
    assert {fabric("alps", f"gpu{i}") for i in range(4)} == {18}
    assert {fabric("leonardo-booster", f"gpu{i}") for i in range(4)} == {12}
    assert {fabric("hgx-h100-8", f"gpu{i}") for i in range(8)} == {18}
    assert {fabric("hgx-h200-4", f"gpu{i}") for i in range(4)} == {18}
    assert {fabric("mi300x-8", f"gpu{i}") for i in range(8)} == {7}
    assert {fabric("gb200-nvl72", f"gpu{i}") for i in range(72)} == {18}


def test_the_page_on_systems_is_true() -> None:
    """Its example loads, and it names every described system, kind of link and key."""
    page = (Path(__file__).parents[2] / "docs/reference/systems.md").read_text(encoding="utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    system = from_toml(example, "pair.toml")
    assert system.links[0].rate("gpu0") == 100e9
    assert system.hosts[0].copy_rate is not None
    assert system.hosts[0].copy_rate.provenance == "measured"
    for word in (*systems.names(), *LINK_KINDS, *TOPOLOGIES, *(f.name for f in dataclasses.fields(Link))):
        assert f"`{word}`" in page, word
    with pytest.raises(UsageError) as caught:
        from_toml(example.replace('b = "gpu1"', 'b = "gpu9"'), "pair.toml")
    assert f"`{caught.value}`" in page


def test_what_is_nearest() -> None:
    lumi = systems.load("lumi-g")
    # The NIC is at the odd die of each package; the even one reaches it over their links.
    assert [lumi.nearest(f"gcd{i}", "nic") for i in range(8)] == [(f"hsn{i // 2}",) for i in range(8)]
    assert lumi.nearest("gcd0", "host", over_fabric=False) == ("numa3",)
    dgx = systems.load("p100-dgx-1")
    assert dgx.nearest("gpu2", "nic") == ("mlx5_1",)
    assert dgx.nearest("gpu6", "host", over_fabric=False) == ("cpu1",)
    assert dgx.nearest("gpu0", "device", over_fabric=False) == ("gpu1",)
    assert systems.load("summitdev").nearest("gpu0", "nic") == ()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("", "needs a share"),
        ('share = 0.5\nshares = { "1 MiB" = 0.5 }', "needs a share"),
        ('size = "1 MiB"\nshares = { "1 MiB" = 0.5 }', "needs a share"),
        ("shares = 3", "shares is 3: expected an object or table"),
        ('shares = { "1 parsec" = 0.5 }', "parsec"),
        ('shares = { "1 MiB" = 1.5 }', "1.5 is beyond any machine; expected 1e-09 to 1"),
        ('share = 0.5\nprovenance = "guessed"', "guessed"),
    ],
)
def test_accepted_shares_that_are_wrong_are_named(entry: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        from_toml(GOOD + f'[[accepted]]\nkind = "nvlink"\n{entry}\n', "f.toml")


def test_shares_by_size_are_one_entry_each() -> None:
    text = '[[accepted]]\nkind = "nvlink"\nprovenance = "measured"\nshares = { "1 MiB" = 0.5, "1 GiB" = 0.9 }\n'
    found = from_toml(GOOD + text, "f.toml").accepted
    assert [(one.size.value, one.share.value, one.share.provenance) for one in found] == [
        (1 << 20, 0.5, "measured"),
        (1 << 30, 0.9, "measured"),
    ]


BASED = """
name = "mine"
source = "my own data sheet"
based_on = "hgx-a100-8"
[[device]]
name = "gpu0..7"
model = "A100 of mine"
memory_rate = "1 TB/s"
"""


def test_every_kind_of_entry_is_taken_from_another_description() -> None:
    assert set(based.ENTRIES) == set(form._ENTRIES)


def test_a_description_may_be_based_on_another() -> None:
    base, mine = systems.load("hgx-a100-8"), from_toml(BASED)
    assert mine.links == base.links
    assert [node.name for node in mine.nodes] == [node.name for node in base.nodes]
    assert (mine.devices[0].model, mine.devices[0].memory_bytes) == ("A100 of mine", base.devices[0].memory_bytes)
    rate = mine.devices[0].memory_rate
    assert rate is not None
    assert (rate.value, rate.source) == (1e12, "my own data sheet")
    assert not mine.accepted  # they are of the other machine, until accepted_of says so
    assert from_toml('accepted_of = "hgx-a100-8"\n' + BASED).accepted == base.accepted
    own = from_toml(BASED + '[[link]]\nkind = "pcie"\na = "gpu0"\nb = "cpu0"\n')
    assert [(link.a, link.b) for link in own.links] == [("gpu0", "cpu0")]
    assert len(own.nodes) == len(base.nodes)
    two_deep = systems.load("mi355x-8")
    assert two_deep.devices[0].cache_bytes == systems.load("mi300x-8").devices[0].cache_bytes
    assert two_deep.links == systems.load("mi350x-8").links  # with the sources of that file, not of its own names
    for wrong in ("nowhere", "mine"):
        with pytest.raises(UsageError) as caught:
            from_toml(BASED.replace("hgx-a100-8", wrong), "mine.toml")
        assert str(caught.value) == f"mine.toml: based_on: '{wrong}' is no other described system"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ('["gpu0"]', "device 1: name is list: expected a text"),
        ("1.5", "device 1: name is 1.5: expected a text"),
        ('"gpu0..7"', "device gpu0: a device of this name is there already"),
    ],
)
def test_a_name_that_is_none_or_comes_twice_is_refused_where_a_description_is_based_on_another(
    name: str, why: str
) -> None:
    with pytest.raises(UsageError) as caught:
        from_toml(BASED + f"[[device]]\nname = {name}\n", "mine.toml")
    assert str(caught.value) == f"mine.toml: {why}"


def test_a_share_of_an_algorithm_is_of_cases_that_ask_for_it() -> None:
    system = systems.load("hgx-h200-8")

    def share(ranks: int, algorithm: str = "") -> float:
        case = ("ccl", "allreduce", 1 << 33, ranks, algorithm)
        found = most_particular(entry for entry in system.accepted if entry.fits(*case))
        assert found is not None
        assert found.origin == "publication"
        return found.share.value

    assert share(8, "RING") == share(8, "ring") > share(8)
    assert share(5) < share(6) < share(7) < share(8)  # NVLink SHARP is used better by more devices


def test_of_two_sources_the_one_that_saw_less_speaks_unless_it_measured_something_else() -> None:
    """Reads of eight H100 reached 370 GB/s at 512 MiB, writes of two 392: what is known of reads is asked of reads."""
    system = systems.load("hgx-h100-8")

    def source(kind: str, pattern: str, size: int, **more: str) -> tuple[str | None, float]:
        found = most_particular(
            one for one in system.accepted if one.kind == kind and one.fits("copy_engine", pattern, size, 2, **more)
        )
        assert found is not None
        return found.origin, found.share.value

    assert source("nvlink", "unidirectional", 1 << 31) == ("here", 0.884)
    assert source("nvlink", "unidirectional", 1 << 29) == ("here", 0.871)
    assert source("nvlink", "unidirectional", 1 << 27) == ("publication", 0.808)  # of this size nothing else is known
    assert source("nvlink", "unidirectional", 1 << 29, initiator="receiver") == ("publication", 0.823)
    assert source("pcie", "host_to_device", 1 << 29) == ("publication", 0.809)  # another host
    small = Accepted("nvlink", dataclasses.replace(system.accepted[0].share, value=0.1, source="small"),
                     dataclasses.replace(system.accepted[0].size, value=1 << 20))  # fmt: skip
    large = dataclasses.replace(small, share=dataclasses.replace(small.share, value=0.8, source="large"),
                                size=dataclasses.replace(small.size, value=1 << 28))  # fmt: skip
    assert most_particular([small, large]) == large  # 1 MiB says nothing of 256 MiB
    assert most_particular([small]) == small
