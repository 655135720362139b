"""Files of other tools that describe a machine, a row each: how one is known, and what reads it.

A new form is a row of FORMS. What tells of something else is named in `fabric_forms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from linkgauge.model.log_text import Line
from linkgauge.system import pci_xml, rocm_topology, topo_matrix
from linkgauge.system.model import System


class Form(NamedTuple):
    """One tool's description of a machine."""

    tool: str
    accepts: Callable[[Sequence[Line]], bool]
    read: Callable[[Sequence[Line], str], System]


FORMS = (
    Form(rocm_topology.TOOL, rocm_topology.is_topology, rocm_topology.of_topology),
    Form(topo_matrix.TOOL, topo_matrix.is_matrix, topo_matrix.of_matrix),
    Form("NCCL_TOPO_DUMP_FILE", pci_xml.is_nccl, pci_xml.of_nccl),
    Form("lstopo FILE.xml", pci_xml.is_hwloc, pci_xml.of_hwloc),
)


def printed(lines: Sequence[Line], place: str) -> System | None:
    """The system that lines of some tool describe; None where they are none of these forms."""
    form = next((one for one in FORMS if one.accepts(lines)), None)
    return None if form is None else form.read(lines, place)
