"""Texts that tell of networks and machines: Slurm's YAML, and by name what --fabric or --system does not read."""

from __future__ import annotations

import re

from linkgauge.errors import UsageError
from linkgauge.system.lldp_printed import UNNAMED

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_NOT_READ = {
    r".*(?:ROCm System Management|(?:Weight|Hops|Link Type) between two GPUs)": (
        "rocm-smi's matrix of one node (rocm-smi --showtopo): give it to --system"
    ),
    r"\s*(?:<\?xml[^>]*>\s*)?<(?:system|topology)\b": "a topology of one node (NCCL's or hwloc's): give it to --system",
    r"\s*GPU0\s+(?:GPU\d|NIC\d|CPU Affinity)|GPU\d+\s+(?:X|NV\d+|SYS|NODE|PHB|PXB|PIX)\s": (
        "nvidia-smi's matrix of one node (nvidia-smi topo -m): give it to --system"
    ),
    r"(?:SW|CA|RT)\s+\d+\s+\d+\s+0x": "ibnetdiscover's list of ports (-p): give its output without -p",
    r"(?:Switch|CA):\s+\S.*:\s*$": "iblinkinfo's output: give ibnetdiscover's",
    r'\{?\s*"lldp":|lldp\.\S+=': UNNAMED,
    r"\A\s*[{\[<]": "JSON or XML",
}
"""By how a line begins what a text is that describes no network, or in a form that is not read."""


_NETWORK = "a network's switches: give it to --fabric"
_NOT_A_SYSTEM = {
    r"Switch\s+\d+\s+\"S-|\s*(?:Switch|Block)Name=|\s*(?:-\s*)?(?:topology|tree|switches):": _NETWORK,
    r"(?:[\w.-]+:\s)?\s*(?:lldp\.\S+=|\{?\s*\"lldp\":)": _NETWORK,
    r".*(?:ROCm System Management|(?:Weight|Hops) between two GPUs)": (
        "rocm-smi's output without its link types: give that of 'rocm-smi --showtopo'"
    ),
    r"\s*<graphs\b": "NCCL's graphs, which name no machine: give the file of NCCL_TOPO_DUMP_FILE",
    r"\s*GPU0\s+(?:X|GPU\d)": "nvidia-smi's matrix, but not that of 'nvidia-smi topo -m' or '-mp', which are read",
    r"#?\s*(?:nThread \d|OSU |Collective test|nvbandwidth Version)": "a benchmark's log: give it to 'linkgauge import'",
}


def not_a_system(text: str) -> str:
    """What a text is that describes no machine, or in a form that is not read; empty where it is none of these."""
    found = (what for begins, what in _NOT_A_SYSTEM.items() if re.search(f"^(?:{begins})", text, re.MULTILINE))
    return next(found, "")


def not_read(text: str) -> str:
    """What a text is that describes no network, or in a form that is not read; empty where it is none of these.

    nvidia-smi underlines its headings, so terminal codes are looked through.
    """
    bare = _ANSI.sub("", text)
    found = (what for begins, what in _NOT_READ.items() if re.search(f"^(?:{begins})", bare, re.MULTILINE))
    return next(found, "")


def is_yaml(text: str) -> bool:
    """Whether it is a topology.yaml of Slurm's."""
    return (
        re.search(r"^\s*(?:-\s*)?(?:topology|tree|switches|block|blocks|block_sizes):", text, re.MULTILINE) is not None
    )


_YAML_LINE = re.compile(r"""(\s*)(-\s+)?([a-z_]+):\s*(?:["']?([^"'#\s]*)["']?|(\[[\d\s,]*\]))\s*(?:#.*)?$""")
_YAML_ITEM = re.compile(r"\s*-\s+(\d{1,9})\s*(?:#.*)?$")
_YAML_KEYS = {"switch": "SwitchName", "children": "Switches", "nodes": "Nodes", "block": "BlockName"}
_YAML_WORDS = ("tree", "switches", "flat", "block", "blocks", "block_sizes")


def rows_of_yaml(text: str, source: str) -> str:
    """Slurm's topology.yaml (25.05) as the lines of a topology.conf: what is the default, or the first of all."""
    found: list[list[dict[str, str]]] = []
    sizes: list[list[str]] = []
    default: int | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.partition("#")[0].strip() or line.strip() in ("---", "..."):
            continue
        match, item = _YAML_LINE.match(line), _YAML_ITEM.match(line)
        key, value = (match[3], match[4] or match[5] or "") if match else ("", "")
        if key == "topology":
            found.append([])
            sizes.append([])
        elif key == "cluster_default":
            default = len(found) - 1 if default is None and value.lower() in ("true", "yes") else default
        elif key == "block_sizes" and sizes:
            sizes[-1] += re.findall(r"\d+", value)
        elif item and sizes:
            sizes[-1].append(item[1])
        elif key in _YAML_KEYS and found and value:
            if match and match[2]:  # the keys of an entry come in any order
                found[-1].append({})
            if found[-1]:
                found[-1][-1][_YAML_KEYS[key]] = value
        elif key not in _YAML_WORDS:
            raise UsageError(f"{source}: line {number} of this topology.yaml is not read: '{line.strip()[:60]}'")
    if not found:
        return ""
    rows = [" ".join(f"{key}={value}" for key, value in row.items()) for row in found[default or 0]]
    if sizes[default or 0]:
        rows.append(f"BlockSizes={','.join(sizes[default or 0])}")
    return "\n".join(rows)
