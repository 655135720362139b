"""What lldpctl printed on several nodes: which switch each node's fastest interface hears by LLDP.

Read with lldpd's manual (lldpcli(8), -f json, json0 and keyvalue). The output of a node does not name the node: pdsh,
clush or ssh in a loop put its name before each line, `node1: lldp.eth2.chassis.name=leaf3`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from linkgauge.errors import UsageError
from linkgauge.model.names import MOST_HOSTS
from linkgauge.model.shape import anything, parsed
from linkgauge.system.lldp import with_group

TOOL = "lldpctl"
UNNAMED = (f"{TOOL}'s output of a node that is not named: put its name before each line, as "
           f"'pdsh -w NODES {TOOL} -f keyvalue' does")  # fmt: skip
_KEY = re.compile(r"lldp\.(?P<port>[\w.:@-]{1,64}?)\.(?P<key>chassis\.(?:mac|name|local|ip|ifname)|"
                  r"port\.auto-negotiation\.current)=(?P<value>.*)$")  # fmt: skip
_PREFIXED = re.compile(r"(?P<node>[A-Za-z0-9_][\w.-]{0,200}):\s(?P<rest>.*)$")
_SPEED = re.compile(r"(\d{1,4})(G?)base", re.IGNORECASE)
_IS = re.compile(
    r"^(?:[\w.-]+:\s)?\s*(?:lldp\.[^\s=]+\.(?:chassis|port)\.[\w.-]+=|\{?\s*\"lldp\":\s*[{\[])", re.MULTILINE
)

Above = dict[str, tuple[str, ...]]
_Port = dict[str, str]
"""Of an interface: `switch` by name, `id` of its chassis and `speed` in words."""


def is_lldp(text: str) -> bool:
    """Whether a text is what lldpctl prints as keyvalue or JSON, with or without nodes' names before the lines."""
    return _IS.search(text) is not None


def above_by_lldp(text: str, source: str) -> tuple[Above, str]:
    """Of each node the switch above it and that one's group; and of which interfaces that is, in a few words.

    UsageError where a line has no node's name, JSON is damaged, or no node hears a switch.
    """
    lines: dict[str, list[str]] = {}
    for line in text.splitlines():
        match = _PREFIXED.match(line)
        if match is None and line.strip():
            raise UsageError(f"{source}: this is {UNNAMED}")
        if match is not None:
            lines.setdefault(match["node"], []).append(match["rest"])
            if len(lines) > MOST_HOSTS:
                raise UsageError(f"{source}: more than {MOST_HOSTS} nodes: expected a network's")
    above: Above = {}
    used: set[str] = set()
    for node, said in lines.items():
        heard = [(port, facts) for port, facts in _ports(said, node, source).items() if _switch(facts)]
        if heard:
            # Of as fast ones the first by name: of a rail-optimized node every card hears another switch.
            port, facts = min(heard, key=lambda one: (-_mbits(one[1]), one[0]))
            above[node] = with_group(_switch(facts))
            used.add(port)
    if not above:
        raise UsageError(f"{source}: no node hears a switch by LLDP: expected output of '{TOOL} -f keyvalue'")
    names = sorted(used)
    return above, f"LLDP of {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"


def _switch(facts: Mapping[str, str]) -> str:
    """A neighbor by its name, else by its chassis; empty where it says neither in a word."""
    named = (facts.get(key, "").strip() for key in ("switch", "id"))
    return next((name[:200] for name in named if name and " " not in name and name.isprintable()), "")


def _mbits(facts: Mapping[str, str]) -> int:
    match = _SPEED.match(facts.get("speed", ""))
    return int(match[1]) * (1000 if match[2] else 1) if match else 0


def _ports(said: list[str], node: str, source: str) -> dict[str, _Port]:
    if any(line.lstrip().startswith("{") for line in said[:3]):
        return dict(_of_json(parsed("\n".join(said), anything, f"{source}: {node[:60]}'s lines")))
    found: dict[str, _Port] = {}
    for line in said:
        if match := _KEY.match(line.strip()):
            kind = match["key"].rpartition(".")[2]
            key = {"name": "switch", "current": "speed"}.get(kind, "id")
            found.setdefault(match["port"], {}).setdefault(key, match["value"])
    return found


def _of_json(data: Any) -> Iterator[tuple[str, _Port]]:
    """Each interface of -f json, where a single one is a table and several are a list of tables, and of json0."""
    lldp = _first(data.get("lldp") if isinstance(data, dict) else None)
    for one in _each(lldp.get("interface")):
        if isinstance(one.get("name"), str):  # json0
            yield one["name"][:64], _port(_first(one.get("chassis")), _first(one.get("port")))
            continue
        for name, facts in one.items():
            if isinstance(facts, dict):
                yield str(name)[:64], _port(facts.get("chassis"), facts.get("port"))


def _port(chassis: Any, port: Any) -> _Port:
    """An interface by its neighbor's chassis, which is below its name where it has one."""
    chassis = chassis if isinstance(chassis, dict) else {}
    name = _value(chassis.get("name"))
    if "id" not in chassis and len(chassis) == 1:
        name, inner = next(iter(chassis.items()))
        chassis = inner if isinstance(inner, dict) else {}
    negotiated = _first(port.get("auto-negotiation") if isinstance(port, dict) else None)
    return {"switch": str(name), "id": _value(_first(chassis.get("id"))), "speed": _value(negotiated.get("current"))}


def _each(value: Any) -> list[dict[str, Any]]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def _first(value: Any) -> dict[str, Any]:
    found = _each(value)
    return found[0] if found else {}


def _value(value: Any) -> str:
    """A text, as it stands or as json0's `[{"value": ...}]`."""
    if isinstance(value, str):
        return value[:200]
    inner = _first(value).get("value")
    return inner[:200] if isinstance(inner, str) else ""
