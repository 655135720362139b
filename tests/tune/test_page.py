"""What a search says and hands out: how much was checked, what is called the default, what was not tried."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from approved import approve
from approved import plain as plain_text
from linkgauge.stats.checked import checks_for, missed_rate
from linkgauge.stats.compare import Shift
from linkgauge.tune.choice import Choice, preset_in
from linkgauge.tune.confirm import CHECKS, LEAST_PAIRS, RAREST, Confirmed, Found, tune
from linkgauge.tune.exports import hand_out, withdraw
from linkgauge.tune.factor import Factor
from linkgauge.tune.known import Known, asked_of_itself, under
from linkgauge.tune.page import page, plain, sentence, with_proof
from linkgauge.tune.record import Config, Outcome, Record
from linkgauge.tune.table import Setting
from tune.planted import FACTORS, PlantedBench, one_optimum
from tune.test_search import TWO, Fixed

A: Config = (("UCX_TLS", "2"),)
CHOICE = Choice(
    {"UCX_TLS": Known(Setting("UCX_TLS", "ucx", "names", ("1", "2"), "A."), ("1", "2"), {"2": "A 1 -> 2"}, {})}, {}
)


def found_with(checked: Mapping[str, int], config: Config = A) -> Found:
    record = Record(Fixed(A))
    record.launch(())
    gain = Shift(-0.2, -0.22, -0.18)
    one = Confirmed(config, gain, {"8 B": gain}, {}, {}, 15, 0.001, "", checked)
    return Found([one], [config], record, [])


@pytest.mark.parametrize("rate", [0.02, 0.002, RAREST])
def test_so_many_checks_find_a_fault_of_that_rate(rate: float) -> None:
    count = checks_for(rate)
    assert (1 - rate) ** count <= 0.05 < (1 - rate) ** (count - 1)
    assert missed_rate(count) <= rate < missed_rate(count - 1)
    assert (1 - RAREST) ** (CHECKS * LEAST_PAIRS) <= 0.05  # by the fewest launches that can prove something


def test_the_page_says_how_many_operations_were_checked_and_what_they_may_have_missed() -> None:
    text = page(found_with({"8 B": 30_000, "64 KiB": 14_978}), CHOICE, "this")
    assert "right in 44,978 of 44,978 operations checked, 14,978 or more of each case" in text
    assert "a fault in 0.0002 of a case's operations would have been found with a probability of 95 %" in text
    assert "verified" not in text
    few = page(found_with({"8 B": 300}), CHOICE, "this")
    assert "a fault in 0.0099 of" in few
    assert "--max-time" in few
    told = json.loads(plain(found_with({"8 B": 300}), CHOICE, "this"))["confirmed"][0]
    assert told["checked"] == {"8 B": 300}
    assert told["missed_rate"] == pytest.approx(0.0099, abs=1e-4)


class Checking(Fixed):
    """A launch that confirms checks `each` operations of its case; from the `bad`-th on one is wrong."""

    def __init__(self, each: int, bad: int = 0) -> None:
        super().__init__(A)
        self.each, self.wrong_at, self.confirming = each, bad, 0

    def measure(self, config: Config, *, confirms: bool) -> Outcome | None:
        one = super().measure(config, confirms=confirms)
        assert one is not None
        if not confirms:
            return one
        self.confirming += bool(config)
        if config and self.confirming == self.wrong_at:
            return Outcome({}, bad="corrupt: 1 wrong bytes the untimed operation 7")
        return Outcome(one.times, one.guards, checked={"8 B": self.each, "big": self.each + 3})


FACTOR = (Factor("UCX_TLS", ("1", "2")),)


def test_what_was_proved_is_checked_until_rare_faults_are_found() -> None:
    bench = Checking(700)
    best = tune(FACTOR, bench).best
    assert best is not None
    assert checks_for(RAREST) <= best.checked["8 B"] < checks_for(RAREST) + 700
    assert bench.confirming * 700 == best.checked["8 B"]  # none is counted that was not made, and none left out
    assert tune(FACTOR, Checking(20)).best is not None  # and none where that would take for ever
    late = tune(FACTOR, Checking(700, bad=19))
    assert late.best is None
    assert "untimed operation 7" in late.confirmed[0].problem


def test_what_went_wrong_in_a_part_of_it_rules_out_what_was_proved() -> None:
    found = found_with({"8 B": 20_000})
    assert with_proof(found, CHOICE).best is not None
    found.record.rule_out(A, "corrupt: late")
    assert with_proof(found, CHOICE).best is None


def test_a_guard_of_which_too_little_is_known_is_not_passed() -> None:
    class Loud(Fixed):
        """A guard case that takes from half to thrice as long."""

        def measure(self, config: Config, *, confirms: bool) -> Outcome | None:
            one = super().measure(config, confirms=confirms)
            assert one is not None
            return Outcome(one.times, {"big": 5e3 * (1 + self.count * 7 % 13 / 6)})

    found = tune(TWO, Loud((("A", "2"),)))
    assert found.best is None
    assert "whether big becomes slower is not known" in found.confirmed[0].problem
    assert "longer --time-limit" in found.confirmed[0].problem


def test_an_unfinished_search_says_what_it_did_not_try() -> None:
    short = tune(FACTORS, PlantedBench(one_optimum, 1, 12), 1)
    assert short.unfinished
    tried = {item for config in short.record.tried for item in config}
    left = {(name, value) for name, values in short.untried.items() for value in values}
    assert left == {(one.name, value) for one in FACTORS for value in one.values} - tried
    assert left
    text = page(short, Choice({}, {}), "this")
    assert "a longer --time-limit" in text.splitlines()[0]
    assert "Not tried; a longer --time-limit tries them:" in text
    (name, value), *_ = sorted(left)
    assert f"  {name}=" in text
    assert value in text.partition("Not tried;")[2]
    whole = tune(FACTOR, Fixed(A))
    assert not whole.unfinished
    assert not whole.untried
    assert "--time-limit" not in sentence(whole, "this")


def test_the_users_own_environment_is_named_and_the_librarys_default_is_among_the_values() -> None:
    others = {"HOME": "/root", "CUDA_VISIBLE_DEVICES": "0", "NCCL_VERSION": "2.18"}
    preset = preset_in({"UCX_TLS": "2", **others}, {"UCX_ZCOPY_THRESH": "7"})
    assert preset == {"UCX_TLS": "2", "UCX_ZCOPY_THRESH": "7"}
    setting = Setting("UCX_TLS", "ucx", "names", ("1", "2", "3"), "A.", default="auto")
    assert setting.beside("2").values == ("1", "3", "auto")
    ordered = Setting("UCX_ZCOPY_THRESH", "ucx", "log2", ("1", "2", "8"), "B.", default="4")
    assert ordered.beside("8").values == ("1", "2", "4")

    def library(environment: Mapping[str, str]) -> tuple[Mapping[str, str], str]:
        return {"UCX_TLS": environment.get("UCX_TLS", "auto")}, ""

    (known,) = asked_of_itself([setting.beside("2")], under(preset, library), "UCX", "its table")
    assert known.usual == "2"
    assert known.told["auto"] == "UCX_TLS 2 -> auto (its table)"
    choice = Choice({"UCX_TLS": known}, {}, preset, {"UCX_TLS": "auto"})
    text = page(found_with({}, (("UCX_TLS", "auto"),)), choice, "this")
    assert "less time (18.0 % to 22.0 %) than your environment" in text
    assert "Your environment is the baseline, called the default here: UCX_TLS=2 UCX_ZCOPY_THRESH=7." in text
    assert "The library's own default is among the values: UCX_TLS=auto." in text
    assert "export UCX_TLS=auto UCX_ZCOPY_THRESH=7" in text  # it was proved with UCX_ZCOPY_THRESH=7
    told = json.loads(plain(found_with({}, (("UCX_TLS", "auto"),)), choice, "this"))
    assert told["environment"] == preset
    assert told["confirmed"][0]["environment"] == {"UCX_TLS": "auto", "UCX_ZCOPY_THRESH": "7"}


def test_what_is_handed_out_does_not_outlive_its_proof(tmp_path: Path) -> None:
    folder = tmp_path / "tuned"
    hand_out(folder, {"page.txt": "1", "tuned.json": "1", "export.sh": "1", "launcher.txt": "1", "ucx.conf": "1"})
    (folder / "notes.txt").write_text("mine")
    hand_out(folder, {"page.txt": "2", "tuned.json": "2"})
    assert {one.name: one.read_text() for one in folder.iterdir()} == {
        "page.txt": "2", "tuned.json": "2", "notes.txt": "mine"
    }  # fmt: skip
    withdraw(folder)
    assert [one.name for one in folder.iterdir()] == ["notes.txt"]
    withdraw(tmp_path / "nothing")


def test_the_screen_of_a_search_is_as_approved() -> None:
    """A whole search over planted times: what proved to be faster, how that is known, and what was tried."""
    bench = PlantedBench(one_optimum, 1, 150)
    found = tune(FACTORS, bench, 1)
    known = {one.name: Known(Setting(one.name, "planted", "names", one.values, "A planted setting."), one.values,
                             {value: f"read as {value}" for value in one.values}, {}) for one in FACTORS}  # fmt: skip
    choice = Choice(known, {})
    assert found.best is not None
    text = page(with_proof(found, choice), choice, "mpi allreduce of 4 MiB on 2 ranks")
    approve(Path(__file__).parents[1] / "findings" / "screens" / "tune.txt", plain_text(text))


def test_what_was_left_out_has_a_line_for_each_reason() -> None:
    off = "your environment has NCCL_NVLS_ENABLE=0"
    refused = {"NCCL_ALGO=NVLS": off, "NCCL_NVLS_NCHANNELS=1": off, "NCCL_NVLS_NCHANNELS=2": off,
               "NCCL_NVLS_ENABLE=1": "your environment switches it off by NCCL_NVLS_ENABLE=0",
               "NCCL_X": "NCCL 2.28 does not read it"}  # fmt: skip
    text = page(found_with({"8 B": 300}), Choice(CHOICE.known, refused), "this")
    assert text.rpartition("Not tried:\n")[2].splitlines() == [
        f"  NCCL_ALGO=NVLS NCCL_NVLS_NCHANNELS=1,2: {off}",
        "  NCCL_NVLS_ENABLE=1: your environment switches it off by NCCL_NVLS_ENABLE=0",
        "  NCCL 2.28 does not read it",
    ]


def test_where_nothing_was_compared_no_table_is_announced() -> None:
    none = Found([], [], Record(Fixed(A)), [])
    assert "No setting was compared with the default, of which no launch counts." in page(none, CHOICE, "this")
    record = Record(Fixed(A))
    record.launch(())
    text = page(Found([], [], record, []), CHOICE, "this")
    assert "No setting was compared with the default." in text
    assert "Tried, time" not in text
