"""Figures of SC'24 that end at thousands of GPUs, simulated from the described systems beside what the paper says.

De Sensi et al., "Exploring GPU-to-GPU Communication", SC'24: Figs. 9 and 10. The paper's curves are not in its text, so
what stands beside ours are the figures that its prose states. What the model cannot show is refused and named.
"""

from __future__ import annotations

import dataclasses

from linkgauge.errors import UsageError, not_one_of
from linkgauge.simulate.calibrate import Calibration
from linkgauge.simulate.described import of_system
from linkgauge.simulate.placement import Placement
from linkgauge.simulate.routes import parse_rules
from linkgauge.simulate.stage import Request
from linkgauge.simulate.study import Study, study
from linkgauge.system import load

_GBIT = 1e9 / 8
# Nodes of the paper's sweeps: 2 to 512; GPUs are 4 of a node (Alps, Leonardo) or 8 dies (LUMI).
_NODES = (2, 4, 8, 16, 32, 64, 128, 256, 512)
_BEFORE_THE_FALL = 256  # GPUs


@dataclasses.dataclass(frozen=True)
class Curves:
    """A system's curves and what the paper states of them: words, and where it has a rate, bytes per second."""

    study: Study
    statements: tuple[tuple[str, float], ...]
    prose: tuple[str, ...] = ()


FIGURES = {
    "sc24:9": "alltoall of 2 MiB a peer, 2 to 512 nodes of Alps, Leonardo and LUMI",
    "sc24:10": "allreduce of 1 GiB, 2 to 512 nodes of Leonardo, to 256 GPUs of Alps and LUMI",
}
REFUSED = {
    "sc24:12": "an incast holds back other traffic by queues that fill, and this model has no queues: measure it by "
    "'linkgauge reproduce sc24:12'",
    "sc24:13": "the noise of other jobs is delay in queues, and this model has no queues: measure it by "
    "'linkgauge reproduce sc24:13'",
}


def known(figure: str) -> str:
    """The figure's name; UsageError naming those there are, or why it cannot be simulated."""
    if figure in REFUSED:
        raise UsageError(f"{figure} is not simulated: {REFUSED[figure]}")
    if figure not in FIGURES:
        raise UsageError(f"no figure '{figure[:40]}' is simulated{not_one_of(figure, FIGURES)}")
    return figure


def curves(figure: str, seed: int = 0, factor: Calibration | None = None) -> list[Curves]:
    """The curves of Figs. 9 or 10. Nodes are drawn, as allocations of a busy machine are.

    `factor`: what a library makes of what the fabric allows, as curves of their own.
    """
    found = []
    for name, asymptote in (("alps", 200), ("leonardo-booster", 100), ("lumi-g", 100)):
        fabric = of_system(load(name))
        counts = [nodes * fabric.gpus for nodes in _NODES]
        if figure == "sc24:9":
            request = Request("alltoall", 2 << 20)
            said = [(f"paper: asymptote {asymptote} Gb/s", asymptote * _GBIT)]
            if name != "lumi-g":
                said.append(("paper: *CCL about 75 % of it, to 1,024 GPUs", 0.75 * asymptote * _GBIT))
            prose: tuple[str, ...] = () if name != "lumi-g" else ("The paper: *CCL slightly below 75 % of it.",)
        else:
            request = Request("allreduce", 1 << 30)
            said, prose = [], ()
            if name != "leonardo-booster":
                counts = [count for count in counts if count <= _BEFORE_THE_FALL]
                prose = ("Left out beyond 256 GPUs: the paper's *CCL falls sharply there, by what this model lacks.",)
        where = Placement("random", "", seed)
        made = study(fabric, request, counts, parse_rules("", fabric), where, factor=factor, what_if=False)
        found.append(Curves(made, tuple(said), prose))
    return found
