"""The rules by name: what each computes, of which kind it is, where it comes from and where it stops holding.

docs/reference/limits.md shows this table to users; a test keeps the two together. As
one table it is long.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("upper bound", "achievable schedule", "published", "typical", "measured")


@dataclass(frozen=True)
class Rule:
    """A named rule. `kind` is its usual kind; a limit carries the kind that holds for its case."""

    name: str
    kind: str
    patterns: str
    formula: str
    source: str
    limits: str


@dataclass(frozen=True)
class Limit:
    """What one rule allows a case: a goodput in bytes per second as docs/definitions.md counts it, or a latency in ns.

    `basis` says in words what the value rests on (links, path, cut), `source` where the rule comes from. `without` is
    what must not be used for it to hold, where the case may use that; None: it holds anyway.

    >>> from linkgauge.expect import limits
    >>> from linkgauge.system import load
    >>> one = limits(load("hgx-h100-8"), {"pattern": "allreduce"})[0]
    >>> one.rule, one.kind, one.without
    ('allreduce_bytes', 'upper bound', 'in-network reduction')
    """

    rule: str
    kind: str
    value_bytes_per_s: float | None
    basis: str
    source: str
    latency_ns: float | None = None
    without: str | None = None


_DEFINITIONS = "docs/definitions.md, Limits"
_SC24 = "De Sensi et al., SC'24"

_TABLE = (
    Rule(
        "max_flow",
        "upper bound",
        "point to point; pairs_pingpong: the slowest pair alone",
        "max flow from source to target over all links in scope",
        "Ford and Fulkerson 1956",
        "Counts every relay, also those that only a program can use; wide of the mark where one path is taken.",
    ),
    Rule(
        "widest_path",
        "achievable schedule",
        "point to point",
        "capacity of the narrowest bundle on the widest single path; pingpong: harmonic mean of both ways",
        f"{_SC24}, Section III-D and Fig. 4",
        "Reached only if the hardware or a program routes along that path. A fabric's planes are one way.",
    ),
    Rule(
        "shortest_path",
        "achievable schedule",
        "point to point",
        "capacity of the narrowest bundle on the widest of the paths with fewest hops; pingpong: as widest_path",
        "Schieffer et al., Fig. 6a",
        "Reached if the hardware takes the fewest hops; on MI250X differs from the widest for 1-7 and 3-5.",
    ),
    Rule(
        "relay",
        "achievable schedule",
        "point to point and ring_shift via a device",
        "1 / (1/r1 + 1/r2): two whole copies, one after the other; flows that share a link share its rate",
        "Li et al., Section 3.1.3 (routed copies: 9.18 of 18.41 GB/s)",
        "A pipelined relay does better, up to the narrower leg.",
    ),
    Rule(
        "relay_pipelined",
        "achievable schedule",
        "point to point and ring_shift via a device",
        "the least of rate / legs over the links of both legs, which flow at once",
        _DEFINITIONS,
        "Each leg on its path of fewest hops; filling and draining the pipeline costs nothing.",
    ),
    Rule(
        "striped",
        "achievable schedule",
        "point to point, variant striped",
        "parts times the least of rate / legs over the links of all legs, which flow at once",
        _DEFINITIONS,
        "Parts are equal: where the direct link is wider than a relay, fewer bytes through relays would be faster.",
    ),
    Rule(
        "local_copy",
        "upper bound",
        "same device",
        "memory rate / 2 for each device: every payload byte is read and written",
        _DEFINITIONS,
        "Beyond twice the last-level cache.",
    ),
    Rule(
        "memory",
        "upper bound",
        "all",
        "memory rate over the bytes that a device must at least read and write for one byte of goodput",
        _DEFINITIONS,
        "Beyond twice the last-level cache; no limit is given below it.",
    ),
    Rule(
        "host_links",
        "upper bound",
        "host and device",
        "largest equal rate to all devices at once over the host links, times devices",
        _DEFINITIONS,
        "Host memory may be anywhere unless the case says where.",
    ),
    Rule(
        "staging_pipelined",
        "upper bound",
        "all, staging",
        "the slowest leg: device to host, between hosts, host to device, all at once; pingpong: mean of both ways",
        _DEFINITIONS,
        "Legs overlap perfectly; the host copies for nothing.",
    ),
    Rule(
        "staging_legs",
        "achievable schedule",
        "all, staging",
        "1 / (1/D2H + 1/H2D): the device legs one after the other, the host leg free",
        _DEFINITIONS,
        "Store and forward, as in SC'24's baseline.",
    ),
    Rule(
        "staging_two_legs",
        "published",
        "point to point, staging",
        "1 / (1/D2H + 1/host copy): the receiving leg is not counted",
        f"{_SC24}, Section III-A; host copy rates inferred from Fig. 3",
        "Above what three legs allow one after the other.",
    ),
    Rule(
        "staging_three_legs",
        "achievable schedule",
        "point to point, staging",
        "1 / (1/D2H + 1/host copy + 1/H2D)",
        f"{_SC24}, Section III-A, with the receiving leg counted",
        "Store and forward; needs a host copy rate.",
    ),
    Rule(
        "engine_cap",
        "published",
        "point to point",
        "the rate that one engine of this machine is known to stay below",
        "the system's description",
        "Holds for the engine named; other transports and settings exceed it.",
    ),
    Rule(
        "payload_share",
        "typical",
        "all",
        "the limit of links times payload over data rate: as described or accepted; PCIe: MPS / (MPS + 24)",
        "PCI Express Base Specification (4-word header 16 B, framing 4 B, LCRC 4 B); NVLink as described",
        "Never a bound: packets may be larger, and acknowledgements cost more.",
    ),
    Rule(
        "payload_counted",
        "typical",
        "all but local copies",
        "the limit of links times payload over raw bytes, as NVML's byte counters saw them in a case of this run",
        "the run's observations: NVLink's data and raw bytes; PCIe's bytes and what the case's copies moved",
        "Needs a run with counters; of the same transport, in one direction or both at once, nearest in size.",
    ),
    Rule(
        "concurrent_flow",
        "upper bound",
        "ring_shift, bidirectional, pairs side by side, alltoall, alltoallv, halo",
        "linear program: the largest rate at which all pairs flow at once over any routing",
        "Shahrokhi and Matula 1990, maximum concurrent flow",
        "Any routing and split; of pairs_pingpong twice the rate of both ways. Too large: the least of cuts.",
    ),
    Rule(
        "injection",
        "upper bound",
        "alltoall, one_to_all, all_to_one",
        "the least of the devices' total outgoing and incoming rates",
        f"{_SC24}, Section IV-A",
        "Ignores what lies between the ports.",
    ),
    Rule(
        "forwarding_index",
        "achievable schedule",
        "alltoall",
        "(n - 1) x least of capacity / load, loads from even shares over the paths of fewest hops",
        f"{_SC24}, Section IV-A, with the factor n - 1 of its artifact",
        "Reached if the hardware splits evenly over those paths.",
    ),
    Rule(
        "sc24_forwarding_index",
        "published",
        "alltoall",
        "link rate / forwarding index x least number of links of a device (at most n - 1)",
        f"{_SC24}, Section IV-A (LUMI: 400 / 4 x 6 = 600 Gb/s)",
        "As printed; the artifact's own factor is n - 1 = 7.",
    ),
    Rule(
        "tree_packing",
        "upper bound",
        "allgather, reduce_scatter",
        "n x min over sets S of capacity leaving S / ranks in S (bottleneck cut); unbalanced switches: linear program",
        "Edmonds 1973; Frank 1978 (branchings with many roots); Bang-Jensen, Frank and Jackson 1995 (splitting off)",
        "Reached by packed trees; a bound of multicast where the library may use it.",
    ),
    Rule(
        "rooted_cut",
        "upper bound",
        "broadcast, reduce",
        "min over v of max flow between root and v; unbalanced switches: as tree_packing",
        "Edmonds 1973, edge-disjoint branchings",
        "Reached by packed trees; a bound of multicast where the library may use it.",
    ),
    Rule(
        "scatter_cut",
        "upper bound",
        "scatter, gather, one_to_all, all_to_one",
        "min over sets S without the root of n cut(S) / ranks in S, in m / t; (n - 1) cut(S) / ranks in (n-1) m / t",
        _DEFINITIONS,
        "Any routing.",
    ),
    Rule(
        "allreduce_bytes",
        "upper bound",
        "allreduce",
        "sum of B_v / (2 (n - 1)): 2 (n - 1) m bytes must be sent in all",
        "Patarasuk and Yuan 2009; docs/definitions.md, Limits",
        "Without in-network reduction and multicast; where no transport is named and switches can, its basis says so.",
    ),
    Rule(
        "allreduce_cut",
        "upper bound",
        "allreduce",
        "the smallest cut between any two devices, in either direction",
        _DEFINITIONS,
        "Holds with in-network reduction too.",
    ),
    Rule(
        "allreduce_trees",
        "achievable schedule",
        "allreduce",
        "linear program: sum of lambda_v over roots, each link split into a reducing and a broadcasting part",
        _DEFINITIONS,
        "Without in-network reduction. Too large: what both phases reach, said so.",
    ),
    Rule(
        "allreduce_in_network",
        "achievable schedule",
        "allreduce",
        "the same program, summed over the sets of switches in which trees repeat and add",
        _DEFINITIONS,
        "Only where the library uses multicast and reduction (NVLS); beyond 4 such switches not the best.",
    ),
    Rule(
        "allreduce_nvls",
        "achievable schedule",
        "allreduce",
        "B n / (n + 1), B the least port: each device takes its block's sum from the switches and gives it to all",
        "NVIDIA NVLink SHARP (multimem reads and writes): m (1 + 1 / n) bytes leave and enter each of n ports",
        "One rank a device, and links to switches alone that repeat and add, as NVLS uses them.",
    ),
    Rule(
        "allreduce_nvls_seen",
        "typical",
        "allreduce",
        "0.68 (NVLink 4) or 0.60 (NVLink 5) of allreduce_nvls",
        "stas00/ml-engineering 744d01e, network/README.md: 5 to 8 H200 and 6 to 8 B200, 8 GiB, within 2 %",
        "Large messages, up to 8 devices; racks reach less. Of few devices the library takes its ring instead.",
    ),
    Rule(
        "reduce_scatter_allgather",
        "achievable schedule",
        "allreduce",
        "1 / (1/reduce_scatter + 1/allgather)",
        "Rabenseifner 2004",
        "One phase after the other; at most what trees reach.",
    ),
    Rule(
        "rings",
        "achievable schedule",
        "allgather, reduce_scatter, allreduce",
        "R r n / (n - 1), halved for allreduce; R directed edge-disjoint rings of link rate r (integer program)",
        "Patarasuk and Yuan 2009",
        "Direct links of one rate, up to 8 devices.",
    ),
    Rule(
        "ring_in_order",
        "achievable schedule",
        "allgather, reduce_scatter, allreduce",
        "x n / (n - 1), halved for allreduce; x = the linear program for the ring in the order of ranks",
        "Patarasuk and Yuan 2009",
        "One logical ring, split over all routings.",
    ),
    Rule(
        "sc24_direct_trees",
        "published",
        "allreduce",
        "sum of a device's outgoing links on a full mesh",
        f"{_SC24}, Section IV-C (Alps 3600, Leonardo 2400 Gb/s)",
        "Above allreduce_bytes: no schedule reaches it.",
    ),
    Rule(
        "sc24_rings",
        "published",
        "allreduce",
        "R r / 2, R directed edge-disjoint rings of link rate r",
        f"{_SC24}, Section IV-C (LUMI: 4 x 400 / 2 = 800 Gb/s)",
        "Takes 2m bytes a rank where 2 (n - 1) / n m suffice.",
    ),
    Rule(
        "nic_bundle",
        "upper bound",
        "several nodes",
        "max flow between devices and a node's NICs over ports and links, over the share of traffic that must pass",
        f"{_SC24}, Sections V-A and V-C",
        "Every NIC may serve every device; of ring_shift one flow leaves a node. For nodes: the smallest domain.",
    ),
    Rule(
        "nic_nearest",
        "achievable schedule",
        "point to point, ring_shift, several nodes",
        "linear program: each device by the NICs nearest to it, all at the same rate over the node's links",
        f"{_SC24}, Section V-A",
        "Where each device uses its own NIC; of ring_shift the last and the first device of a node do.",
    ),
    Rule(
        "nic_share_asymptotic",
        "published",
        "alltoall, several nodes",
        "rate of all NICs / devices of a node",
        f"{_SC24}, Section V-C and Fig. 9",
        "For many nodes; below what few nodes reach, since part of the traffic stays inside.",
    ),
    Rule(
        "allreduce_node_bytes",
        "upper bound",
        "allreduce, several nodes",
        "N C / (2 (U - 1)), C the rate of a node's NICs by ports and links, U the domains (else nodes)",
        "allreduce_bytes with nodes for devices",
        "Without in-network reduction.",
    ),
    Rule(
        "allreduce_hierarchical",
        "achievable schedule",
        "allreduce, several nodes",
        "linear program: both phases inside and 2 (N - 1) / N m out and in at once; at most reduce_scatter_allgather",
        "Jia et al. 2018, hierarchical allreduce",
        "Shards go out by all NICs, as much of each rank's.",
    ),
    Rule(
        "fabric_links",
        "upper bound",
        "messages between named ranks, several nodes",
        "the payload over the time that the fullest link between the nodes takes for its bytes",
        "rates stated by --fabric, Slurm's LinkSpeed or ibnetdiscover",
        "Of links whose rate is stated. Of collectives that repeat or add up, the library's algorithm is not known.",
    ),
    Rule(
        "network_global",
        "upper bound",
        "alltoall, several nodes",
        "global links of all groups, or a fat tree's uplinks of a leaf, over what must leave it at best",
        "Kim et al. 2008, dragonfly; Leiserson 1985, fat trees",
        "Holds for any placement. Counts the links that join groups of nodes where a source states them, else every "
        "global port as cabled; a fat tree with all uplinks is bound by its NICs alone.",
    ),
    Rule(
        "network_bisection",
        "upper bound",
        "alltoall, whole machine",
        "least over k full groups: their links to the others, over what they send these",
        "Kim et al. 2008, dragonfly",
        "Only when every node takes part; groups joined evenly. Holds for any routing.",
    ),
    Rule(
        "port",
        "measured",
        "point to point and collectives",
        "the bound's rule on links that carry what the lowest-level primitives reached on each port in this run",
        _DEFINITIONS,
        "Needs a run; says what was reached, not what could be.",
    ),
    Rule(
        "host_copy",
        "measured",
        "point to point between host memories, host_stream",
        "the run's largest median goodput between two ranks' host buffers, or of a node's cores on these memories",
        _DEFINITIONS,
        "Needs a run; the best by any transport: no lower-level primitive is between two ranks' buffers.",
    ),
    Rule(
        "latency",
        "measured",
        "all",
        "the largest one-way latency (half a flag ping-pong) among pairs that must exchange, one pass",
        _DEFINITIONS,
        "Needs a run.",
    ),
    Rule(
        "wire_time",
        "upper bound",
        "pointer_chase, flag_pingpong, empty_op",
        "bytes that must cross / max flow: a pointer or a flag 8; a launch 1 there and 1 back",
        "Ford and Fulkerson 1956; a byte that has not crossed has not arrived",
        "A least time, far below what controllers and protocols take.",
    ),
    Rule(
        "cycle",
        "upper bound",
        "pointer_chase, flag_pingpong and empty_op inside one device",
        "one cycle of the device's highest clock: a load that the next one needs, a flag, a kernel",
        "the device's clock, as NVML, KFD or a data sheet states it",
        "A least time, far below what memory takes; unknown where no source states the clock.",
    ),
    Rule(
        "seen_latency",
        "typical",
        "pointer_chase, flag_pingpong; small messages of copy_engine",
        "the least that a paper (published) or a tool (typical) saw on devices of the model joined in the same way",
        "Li et al., Figs. 7 and 10; Schieffer et al., Fig. 6b; docs/results/; each entry names its own",
        "Another machine's figure; own-memory chases were of lines in the last-level cache.",
    ),
    Rule(
        "fastest_load",
        "measured",
        "pointer_chase",
        "the fastest chase of this size through memory of this kind, joined in the same way, in this run",
        _DEFINITIONS,
        "Needs a run; a chase is itself the lowest-level primitive.",
    ),
    Rule(
        "flag_crossing",
        "measured",
        "flag_pingpong",
        "half of the fastest load through the other's memory, plus the fastest load of the memory where it is seen",
        "a load crosses the link twice, a flag once; both as chases of this run",
        "Needs chases between the same devices in the run.",
    ),
    Rule(
        "fastest_empty_op",
        "measured",
        "empty_op",
        "the lowest floor of the same transport, cadence and clock among the devices of this run",
        _DEFINITIONS,
        "Needs a run; a floor is itself the lowest-level primitive.",
    ),
)

RULES: dict[str, Rule] = {rule.name: rule for rule in _TABLE}


def limit(rule: str, value: float | None, basis: str, *, kind: str | None = None, source: str | None = None) -> Limit:
    """Return a limit of a rule in the table, with its usual kind and source unless others are given."""
    known = RULES[rule]
    return Limit(rule, kind or known.kind, value, basis, source or known.source)
