"""How often planted causes are found, what clean runs raise, and how sure findings are against how often right.

    PYTHONPATH=src python bench/planted.py --seeds 0:100 [--causes slow_link,clean] [--processes 2] [--out found.jsonl]

The causes and their worlds are those of tests/findings. With --out each variant's findings are kept, one line of JSON
a variant, from which the tables can be printed again (--of found.jsonl). What bench/real_planted.py kept of real runs
may be given beside it: then confidences are counted on both.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benching import options, read_lines, seeds, write_lines

# isort: split
from causes import CAUSES, CONSEQUENCES, clean, facts_of

from linkgauge.findings import rules
from linkgauge.findings.confidence import SLOW, calibrated


def judge(task: tuple[str, int, float]) -> dict[str, Any]:
    """Plant one variant and apply the rules. A `loudest` above 1 draws each variant's noise from 1 to so many times."""
    name, seed, loudest = task
    loudness = float(np.exp(np.random.default_rng([seed, 7]).uniform(0, np.log(loudest))))
    planted = clean(seed, loudness) if name == "clean" else CAUSES[name](seed, loudness)
    found = rules.apply(facts_of(planted.world))
    return {
        "cause": name,
        "seed": seed,
        "loudness": loudness,
        "what": planted.what,
        "found": [
            {
                "rule": f.rule, "severity": f.severity, "subject": f.subject, "confidence": f.confidence,
                "strength": f.strength,
                "effect": f.effect, "unsure": f.unsure, "right": name != "clean" and bool(planted.right(f)),
                "true": name != "clean" and (planted.right(f) or f.rule in CONSEQUENCES.get(name, ())),
            }
            for f in found if f.severity != "note" or f.unsure or planted.right(f)
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


def _claims(variants: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Faults and losses by rule, the rules of slow elements as one; those too unsure for an alarm are among them."""
    claims: dict[str, list[dict[str, Any]]] = {}
    for variant in variants:
        for one in variant["found"]:
            if one["severity"] != "note" or one["unsure"]:
                claims.setdefault("slow" if one["rule"] in SLOW else one["rule"], []).append(one)
    return claims


def reliability(variants: Iterable[dict[str, Any]]) -> None:
    """Print how sure findings said to be, beside the share of them that was true of what was planted."""
    said = [one for claims in _claims(variants).values() for one in claims if calibrated(one["rule"])]
    print("stated       findings  mean stated  share right")
    for low, high in itertools.pairwise((0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.001)):
        mine = [one for one in said if low <= one["confidence"] < high]
        if mine:
            mean, share = (sum(one[name] for one in mine) / len(mine) for name in ("confidence", "true"))
            print(f"{low:.2f} to {min(high, 1):.2f} {len(mine):8} {mean:12.2f} {share:12.2f}")


def calibrate(variants: Iterable[dict[str, Any]], least: int = 15) -> None:
    """Print the table of findings/confidence.py: an isotonic fit (pooled adjacent violators) in blocks of `least`.

    A share is (right + 1/2) / (findings + 1), so that no count, however good, makes a rule quite sure.
    """
    for rule, claims in sorted(_claims(variants).items()):
        claims.sort(key=lambda one: one["strength"])
        blocks: list[list[dict[str, Any]]] = []
        start = 0
        while start < len(claims):
            end = min(len(claims), start + least)
            while end < len(claims) and claims[end]["strength"] == claims[end - 1]["strength"]:
                end += 1
            end = len(claims) if len(claims) - end < least else end
            blocks.append(claims[start:end])
            start = end
            while len(blocks) > 1 and _share(blocks[-2]) > _share(blocks[-1]) - 0.015:
                blocks[-2:] = [blocks[-2] + blocks[-1]]
        middle = [sorted(one["strength"] for one in block)[len(block) // 2] for block in blocks]
        points = ", ".join(
            f"({at:.3f}, {min(0.99, _share(block)):.2f})" for at, block in zip(middle, blocks, strict=True)
        )
        print(f'    "{rule}": ({points},),  # {" + ".join(str(len(block)) for block in blocks)} findings')


def _share(block: list[dict[str, Any]]) -> float:
    return (sum(one["true"] for one in block) + 0.5) / (len(block) + 1)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seeds", type=seeds, default="0:100", help="FIRST:END")
    parser.add_argument("--causes", default="")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--loudest", type=float, default=1.0, help="draw noise up to so many times the usual")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--of", type=Path, nargs="*", help="print the tables of kept findings")
    parser.add_argument("--calibrate", action="store_true", help="with --of: print the table of findings/confidence.py")
    asked = parser.parse_args()
    if asked.of:
        kept = read_lines(asked.of)
        if asked.calibrate:
            calibrate(kept)
            return
        told(kept)
        reliability(kept)
        return
    names = asked.causes.split(",") if asked.causes else [*CAUSES, "clean"]
    tasks = [(name, seed, asked.loudest) for name in names for seed in asked.seeds]
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        variants = pool.map(judge, tasks, chunksize=10)
    write_lines(asked.out, variants)
    told(variants)
    reliability(variants)


if __name__ == "__main__":
    main()
