"""Causes planted into real run folders: what is named rightly, what else is accused, where nothing is said.

    PYTHONPATH=src python bench/real_planted.py RUN... [--causes port_10,clean] [--seeds 0:10] [--out found.jsonl]
    PYTHONPATH=src python bench/real_planted.py --of found.jsonl
    PYTHONPATH=src python bench/real_planted.py RUN --causes pair_10 --seeds 3:4 --keep FOLDER

Each variant draws the run's samples again and plants one cause into them (tests/findings/run_planting.py), then asks
`findings`. A finding is right where its rule and its devices are the cause's. Every other fault or loss is a wrong
alarm, and where its rule names parts (PARTS) it accuses a healthy one. With --keep the planted run folders stay; with
--out findings are kept, a line of JSON a variant.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benching import options, read_lines, seeds, write_lines

# isort: split
from run_planting import planted, possible_causes

from linkgauge.findings import rules
from linkgauge.findings.read import facts_of
from linkgauge.store.run import load

Found = dict[str, Any]
Task = tuple[str, str, int, str]

RULES = {
    "port": ("slow_port", "slow_link", "slow_device"),
    "pair": ("slow_pair", "slow_link"),
    "host": ("slow_host_link",),
    "late": ("straggler",),
    "slow_from": ("slow_from",),
    "throttled": ("throttled", "slow_from"),
    "periodic": ("periodic_spikes",),
    "all_slow": ("below_known",),
}
"""Rules that name a kind of cause, as `findings --json` calls them."""
PARTS = {rule for rules in RULES.values() for rule in rules} | {"slow_nic", "slow_node", "noisy", "drifting"}


def is_right(kind: str, devices: Sequence[int], found: Found, of: int) -> bool:
    """Whether a finding names the cause: its rule, and just its devices.

    Of two devices (`of`) what joins them is all that can be named, what is slow both ways has no sibling, and a moment
    is seen only as the device that is slow by it.
    """
    if of == 2 and kind == "slow_from" and found["rule"] == "slow_device":
        return sorted(devices) == sorted(found["devices"])
    if of == 2 and kind in ("port", "pair"):
        return found["rule"] in ("slow_pair", "slow_link") or (
            found["rule"] == "below_known" and found["subject"] in ("NVLink", "collectives")
        )
    if found["rule"] not in RULES.get(kind, ()):
        return False
    if kind == "throttled" and found["subject"] in {f"cuda:{device}" for device in devices}:
        return True
    return not devices or sorted(found["devices"]) == sorted(devices)


def judge(task: Task) -> dict[str, Any]:
    """Plant one variant and apply the rules."""
    path, name, seed, keep = task
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(keep or scratch) / f"{Path(path).name}-{name}-{seed}"
        made = planted(Path(path), out, name, seed)
        facts = facts_of(load(out))
        found = [one.as_json() for one in rules.apply(facts)]
    for one in found:
        one["right"] = one["true"] = is_right(made.kind, made.devices, one, len(facts.devices))
    kept = [
        {k: one[k] for k in ("rule", "severity", "subject", "devices", "confidence", "strength", "effect", "unsure",
                             "right", "true")}
        for one in found if one["severity"] != "note" or one["unsure"] or one["right"]
    ]  # fmt: skip
    return {"run": Path(path).name, "cause": name, "seed": seed, "kind": made.kind, "what": made.what, "found": kept}


def told(variants: Iterable[dict[str, Any]], words: bool) -> None:
    """Print for each run and cause how often it was named, what else was accused, how often nothing was said."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for variant in variants:
        groups.setdefault((variant["run"], variant["cause"]), []).append(variant)
    print(f"{'run':24} {'cause':10} variants  named  named first  parts accused  other alarms  nothing said")
    for (run, cause), items in groups.items():
        alarms = [[one for one in item["found"] if one["severity"] != "note"] for item in items]
        named = sum(any(one["right"] for one in mine) for mine in alarms)
        first = sum(bool(mine) and mine[0]["right"] for mine in alarms)
        wrong = [[one for one in mine if not one["right"]] for mine in alarms]
        parts = sum(any(one["rule"] in PARTS for one in mine) for mine in wrong)
        others = sum(any(one["rule"] not in PARTS for one in mine) for mine in wrong)
        silent = sum(not mine for mine in alarms)
        print(f"{run:24} {cause:10} {len(items):8} {named:6} {first:12} {parts:14} {others:13} {silent:13}")
        for item, mine in zip(items, alarms, strict=True):
            if words and (cause == "clean" or len(mine) != 1 or not mine[0]["right"]):
                for one in mine or [{"rule": "nothing", "subject": "", "confidence": 0.0, "right": False}]:
                    sign = "+" if one["right"] else "-"
                    print(f"    {sign} {item['seed']} {item['what']}: {one['rule']} [{one['subject']}] "
                          f"{one['confidence']:.2f}")  # fmt: skip


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN")
    parser.add_argument("--seeds", type=seeds, default="0:10", help="FIRST:END")
    parser.add_argument("--causes", default="", help="names separated by commas, clean among them; all by default")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--words", action="store_true", help="print every alarm of a variant that is not as it should be"
    )
    parser.add_argument("--keep", default="", metavar="FOLDER", help="leave the planted run folders there")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--of", type=Path, nargs="*", help="print the table of kept findings")
    asked = parser.parse_args()
    if asked.of:
        told(read_lines(asked.of), asked.words)
        return
    tasks: list[Task] = []
    for path in asked.runs:
        possible = possible_causes(load(path))
        wanted = asked.causes.split(",") if asked.causes else [*possible, "clean"]
        for name in wanted:
            if name in (*possible, "clean"):
                tasks += [(str(path), name, seed, asked.keep) for seed in asked.seeds]
            else:
                print(f"{path}: nothing to plant {name} into", file=sys.stderr)
    if asked.processes > 1:
        with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
            variants = pool.map(judge, tasks, chunksize=5)
    else:
        variants = [judge(task) for task in tasks]
    write_lines(asked.out, variants)
    told(variants, asked.words)


if __name__ == "__main__":
    main()
