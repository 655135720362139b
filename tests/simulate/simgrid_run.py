"""Run by an interpreter that has simgrid: flows of jobs, begun at once, on a zone; prints when each job's last ended.

Standard input: JSON with `kind`, `shape`, `rate` (B/s) and `flows` ([job, node, node, bytes]).
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

request = json.load(sys.stdin)
# SimGrid logs to standard error; its own output is kept off ours.
simgrid: Any = __import__("simgrid")
Engine, NetZone, Comm, Actor = (getattr(simgrid, name) for name in ("Engine", "NetZone", "Comm", "Actor"))

rate = request["rate"]
engine = Engine(
    ["run", "--log=root.thresh:error", "--cfg=network/model:CM02", "--cfg=network/crosstraffic:0",
     "--cfg=network/TCP-gamma:1e18"]
)  # fmt: skip
LATENCY = 0.0  # else shares go by one over the time around, which differs with the hops


def dragonfly(shape: list[int]) -> None:
    groups, rows, columns, nodes = shape
    params = simgrid.DragonflyParams((groups, 1), (rows, 1), (columns, 1), nodes)
    zone = NetZone.create_dragonfly_zone("zone", None, params, callbacks(), rate, LATENCY, shared())
    zone.seal()


def fat_tree(shape: list[int]) -> None:
    leaves, nodes, _ = shape
    params = simgrid.FatTreeParams(2, [nodes, leaves], [1, 1], [1, 1])
    zone = NetZone.create_fatTree_zone("zone", None, params, callbacks(), rate, LATENCY, shared())
    zone.seal()


def shared() -> Any:
    return simgrid.Link.SharingPolicy.SPLITDUPLEX


def callbacks() -> Any:
    def host(zone: Any, coordinates: Any, number: int) -> Any:
        made = zone.create_host(f"node{number}", 1e9)
        made.seal()
        return made.netpoint, None

    return simgrid.ClusterCallbacks(host, None, None)


def full(shape: list[int]) -> None:
    groups, nodes, _ = shape
    zone = NetZone.create_full_zone("zone")
    hosts, out, into = [], [], []
    for number in range(groups * nodes):
        hosts.append(zone.create_host(f"node{number}", 1e9))
        for side, name in ((out, "out"), (into, "in")):
            link = zone.create_link(f"{name}{number}", rate)
            link.set_latency(LATENCY)
            link.seal()
            side.append(link)
    between = {}
    for g in range(groups):
        for h in range(groups):
            if g != h:
                link = zone.create_link(f"{g}to{h}", request["between"])
                link.set_latency(LATENCY)
                link.seal()
                between[g, h] = link
    for s in range(len(hosts)):
        for t in range(len(hosts)):
            if s != t:
                way = [out[s], into[t]]
                if s // nodes != t // nodes:
                    way.insert(1, between[s // nodes, t // nodes])
                links = [simgrid.LinkInRoute(link) for link in way]
                zone.add_route(hosts[s].netpoint, hosts[t].netpoint, None, None, links, False)
    zone.seal()


{"dragonfly": dragonfly, "fat_tree": fat_tree, "full": full}[request["kind"]](request["shape"])
ends: dict[int, float] = {}


def job(number: int, flows: list[list[float]]) -> None:
    """One actor a job: an actor a flow would be a thread each."""
    comms = []
    for _, source, target, size in flows:
        comm = Comm.sendto_init(hosts_by_name[f"node{source:.0f}"], hosts_by_name[f"node{target:.0f}"])
        comms.append(comm.set_payload_size(int(size)))
        comm.start()
    for comm in comms:
        comm.wait()
    ends[number] = Engine.clock


hosts_by_name = {host.name: host for host in engine.all_hosts}
for number in sorted({int(flow[0]) for flow in request["flows"]}):
    own = [flow for flow in request["flows"] if int(flow[0]) == number]
    Actor.create(f"job{number}", engine.all_hosts[0], job, number, own)
before = time.perf_counter()
engine.run()
taken = time.perf_counter() - before
print(json.dumps({"ends": [ends[job] for job in sorted(ends)], "seconds": taken}), flush=True)
os._exit(0)  # its own teardown may crash after Python's
