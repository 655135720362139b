"""Whole clusters from a described fabric: what each routing rule would let a pattern reach, and what binds it.

What others call:

- `of_system(system, assumed)`: a described system's fabric; or one of the generators of `fabric`
  (`dragonfly`, `dragonfly_plus`, `fat_tree`, `torus`);
- `study(fabric, Request(pattern, size), counts, parse_rules("minimal,best", fabric), placement)`: curves by rule;
- `laid_out`, `answers`: one job, placed.

    from linkgauge import system
    from linkgauge.simulate import Request, of_system, parse_rules, study

    fabric = of_system(system.load("lumi-g"))
    found = study(fabric, Request("alltoall", 2 << 20), [64, 4096], parse_rules("minimal,best", fabric))
    for row in found.curves:
        print([(one.rule, one.goodput) for one in row])
"""

from __future__ import annotations

from linkgauge.simulate.answer import Answer, answers, laid_out
from linkgauge.simulate.described import of_system
from linkgauge.simulate.fabric import Fabric, dragonfly, dragonfly_plus, endpoints, fat_tree, torus
from linkgauge.simulate.placement import Placement, parse_placement
from linkgauge.simulate.routes import Rule, parse_rules
from linkgauge.simulate.stage import Request
from linkgauge.simulate.study import Study, study

__all__ = [
    "Answer",
    "Fabric",
    "Placement",
    "Request",
    "Rule",
    "Study",
    "answers",
    "dragonfly",
    "dragonfly_plus",
    "endpoints",
    "fat_tree",
    "laid_out",
    "of_system",
    "parse_placement",
    "parse_rules",
    "study",
    "torus",
]
