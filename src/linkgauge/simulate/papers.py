"""Figures of SC'24 that end at thousands of GPUs, simulated from the described systems beside what the paper says.

De Sensi et al., "Exploring GPU-to-GPU Communication", SC'24: Figs. 9, 10, 12, 13. The paper's curves are not in its
text, so what stands beside ours are the figures that its prose states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from linkgauge.errors import UsageError, nearest
from linkgauge.simulate.beside import beside, job_and_loads
from linkgauge.simulate.described import of_system
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.others import Others, Share, parse_load
from linkgauge.simulate.placement import Placement
from linkgauge.simulate.routes import Rule, parse_rules
from linkgauge.simulate.study import Study, study
from linkgauge.simulate.traffic import Request
from linkgauge.system import load

_GBIT = 1e9 / 8
# Nodes of the paper's sweeps: 2 to 512; GPUs are 4 of a node (Alps, Leonardo) or 8 dies (LUMI).
_NODES = (2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclasses.dataclass(frozen=True)
class Curves:
    """A system's curves and what the paper states of them: words, and where it has a rate, bytes per second."""

    study: Study
    statements: tuple[tuple[str, float], ...]
    prose: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Mix:
    """A line of Fig. 12: a placement, an aggressor, and shares by rule, with perfect and pessimistic control."""

    placement: str
    load: str
    perfect: tuple[Share, ...]
    pessimistic: tuple[Share, ...]


FIGURES = {
    "sc24:9": "alltoall of 2 MiB a peer, 2 to 512 nodes of Alps, Leonardo and LUMI",
    "sc24:10": "allreduce of 1 GiB, 2 to 512 nodes of Alps, Leonardo and LUMI",
    "sc24:12": "allreduce of 1 GiB on 128 GPUs of Leonardo beside an alltoall or an incast on 128 others",
    "sc24:13": "alltoall and allreduce, 2 to 256 nodes of Leonardo, alone and beside other jobs",
}


def known(figure: str) -> str:
    """The figure's name; UsageError naming those there are."""
    if figure not in FIGURES:
        raise UsageError(
            f"no figure '{figure[:40]}' is simulated{nearest(figure, list(FIGURES))}: expected one of "
            f"{', '.join(FIGURES)}"
        )
    return figure


def curves(figure: str, seed: int = 0) -> list[Curves]:
    """The curves of Figs. 9, 10 or 13. Nodes are drawn, as allocations of a busy machine are."""
    if figure == "sc24:13":
        return _noise(seed)
    found = []
    for name, asymptote in (("alps", 200), ("leonardo-booster", 100), ("lumi-g", 100)):
        fabric = of_system(load(name))
        counts = [nodes * fabric.gpus for nodes in _NODES]
        rules = parse_rules("", fabric)
        if figure == "sc24:9":
            request = Request("alltoall", 2 << 20)
            said = [(f"paper: asymptote {asymptote} Gb/s", asymptote * _GBIT)]
            if name != "lumi-g":
                said.append(("paper: *CCL about 75 % of it, to 1,024 GPUs", 0.75 * asymptote * _GBIT))
            prose: tuple[str, ...] = () if name != "lumi-g" else ("The paper: *CCL slightly below 75 % of it.",)
        else:
            request = Request("allreduce", 1 << 30)
            said = []
            prose = {
                "alps": ("The paper: NCCL falls from 256 to 512 GPUs.",),
                "lumi-g": ("The paper: RCCL falls from 256 to 512 GPUs.",),
                "leonardo-booster": (),
            }[name]
        made = study(fabric, request, counts, rules, Placement("random", "", seed), what_if=False)
        found.append(Curves(made, tuple(said), prose))
    return found


def _noise(seed: int) -> list[Curves]:
    fabric = of_system(load("leonardo-booster"))
    counts = [nodes * fabric.gpus for nodes in _NODES if nodes <= 256]
    rules = [Rule("minimal"), Rule("third_group")]
    found = []
    for request, loss in ((Request("alltoall", 2 << 20), 20), (Request("allreduce", 1 << 30), 50)):
        made = study(
            fabric, request, counts, rules, Placement("random", "", seed), what_if=False,
            others=Others(share=0.7, draws=10),
        )  # fmt: skip
        prose = (
            f"The paper: at 1,024 GPUs other jobs on its service level cost a further {loss} %; none on few GPUs.",
        )
        found.append(Curves(made, (), prose))
    return found


def mixes(seed: int = 0) -> list[Mix]:
    """Fig. 12's mixes: aggressors of 128 KiB without end, by placement, with perfect and with pessimistic control."""
    fabric = of_system(load("leonardo-booster"))
    request = Request("allreduce", 1 << 30)
    rules = [Rule("minimal"), Rule("third_group")]
    found = []
    for name in ("packed", "interleaved", "random"):
        for text in ("alltoall:128:128KiB", "all_to_one:128:128KiB"):
            shares = [_mix(fabric, request, text, Placement(name, "", seed), rules, how) for how in (False, True)]
            found.append(Mix(name, text.split(":")[0], shares[0], shares[1]))
    return found


def _mix(
    fabric: Fabric, request: Request, text: str, placement: Placement, rules: Sequence[Rule], pessimistic: bool
) -> tuple[Share, ...]:
    one = parse_load(text)
    layout, (other,) = job_and_loads(fabric, 128, [one], placement)
    return tuple(beside(layout, request, [(other, one.request)], rule, pessimistic=pessimistic) for rule in rules)
