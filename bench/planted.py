"""How often planted causes are found, what clean runs raise, and how sure findings are against how often right.

    PYTHONPATH=src python bench/planted.py --seeds 0:100 [--causes slow_link,clean] [--processes 2] [--out found.jsonl]

The causes and their worlds are those of tests/findings. With --out each variant's findings are kept, one line of JSON a
variant, from which the tables can be printed again (--of found.jsonl).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "tests" / "findings")]


def judge(task: tuple[str, int, float]) -> dict[str, Any]:
    """Plant one variant and apply the rules. A `loudest` above 1 draws each variant's noise from 1 to so many times."""
    import causes
    import numpy as np

    from linkgauge.findings import rules

    name, seed, loudest = task
    loudness = float(np.exp(np.random.default_rng([seed, 7]).uniform(0, np.log(loudest))))
    planted = causes.clean(seed, loudness) if name == "clean" else causes.CAUSES[name](seed, loudness)
    found = rules.apply(causes.facts_of(planted.world))
    return {
        "cause": name,
        "seed": seed,
        "loudness": loudness,
        "what": planted.what,
        "found": [
            {
                "rule": f.rule, "severity": f.severity, "subject": f.subject, "confidence": f.confidence,
                "effect": f.effect, "right": name != "clean" and bool(planted.right(f)),
                "true": name != "clean" and (planted.right(f) or f.rule in causes.CONSEQUENCES.get(name, ())),
            }
            for f in found if f.severity != "note" or planted.right(f)
        ],
    }  # fmt: skip


def told(variants: Iterable[dict[str, Any]]) -> None:
    """Print how many variants of each cause have the right finding first, and every miss."""
    by_cause: dict[str, list[dict[str, Any]]] = {}
    for variant in variants:
        by_cause.setdefault(variant["cause"], []).append(variant)
    for cause, items in by_cause.items():
        alarms = [[f for f in item["found"] if f["severity"] != "note"] for item in items]
        if cause == "clean":
            wrong = [(item, a) for item, a in zip(items, alarms, strict=True) if a]
            print(f"clean: alarms in {len(wrong)} of {len(items)}")
        else:
            wrong = [(item, a) for item, a in zip(items, alarms, strict=True) if not item["found"][:1]
                     or not item["found"][0]["right"]]  # fmt: skip
            print(f"{cause}: right first in {len(items) - len(wrong)} of {len(items)}")
        for item, found in wrong:
            words = [f"{f['rule']} [{f['subject']}] {f['confidence']:.2f}" for f in found[:3]]
            print(f"    {item['seed']} {item['what']}: {'; '.join(words) or 'nothing'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:100", help="FIRST:END")
    parser.add_argument("--causes", default="")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--loudest", type=float, default=1.0, help="draw noise up to so many times the usual")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--of", type=Path, nargs="*", help="print the tables of kept findings")
    asked = parser.parse_args()
    if asked.of:
        told(json.loads(line) for path in asked.of for line in path.read_text().splitlines())
        return
    import causes

    first, end = map(int, asked.seeds.split(":"))
    names = asked.causes.split(",") if asked.causes else [*causes.CAUSES, "clean"]
    tasks = [(name, seed, asked.loudest) for name in names for seed in range(first, end)]
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        variants = pool.map(judge, tasks, chunksize=10)
    if asked.out:
        asked.out.write_text("".join(json.dumps(variant) + "\n" for variant in variants))
    told(variants)


if __name__ == "__main__":
    main()
