"""Which node hangs on which switch: read in every form, and inferred from what pairs took."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random

import pytest

from cluster.layout import Layout
from linkgauge.errors import UsageError
from linkgauge.system.switches import Switches, inferred, of_addresses, of_ibnetdiscover, of_text

LAYOUT = Layout(((2, 2), (2, 2)))


def classes(found: Switches, nodes: tuple[str, ...]) -> dict[tuple[str, str], str]:
    return {(a, b): found.distance(a, b) for a, b in itertools.product(nodes, repeat=2)}


def true_classes(layout: Layout) -> dict[tuple[str, str], str]:
    return {(a, b): layout.distance(a, b) for a, b in itertools.product(layout.nodes, repeat=2)}


SCONTROL = """SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[0-1]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[2-3]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[4-5]
SwitchName=s3 Level=0 LinkSpeed=1 Nodes=n[6-7]
SwitchName=g0 Level=1 LinkSpeed=1 Nodes=n[0-3] Switches=s[0-1]
SwitchName=g1 Level=1 LinkSpeed=1 Nodes=n[4-7] Switches=s[2-3]
SwitchName=core Level=2 LinkSpeed=1 Nodes=n[0-7] Switches=g[0-1]
"""  # as Slurm 22.05 printed it on the emulated cluster


@pytest.mark.parametrize("text", [SCONTROL, LAYOUT.topology_conf()], ids=["scontrol", "topology.conf"])
def test_slurms_words_give_the_layout(text: str) -> None:
    found = of_text(text, "there")
    assert classes(found, LAYOUT.nodes) == true_classes(LAYOUT)
    assert found.source == "there"


def test_addresses_of_ranks_and_a_file_by_hand_give_the_layout() -> None:
    places = {node: LAYOUT.place(node) for node in LAYOUT.nodes}
    by_rank = of_addresses({node: f"core.g{g}.s{s}.{node}" for node, (g, s) in places.items()})
    assert by_rank is not None
    by_hand = of_text("\n".join(f"{node}  s{s} g{g}  # rack {g}" for node, (g, s) in places.items()), "by hand")
    assert classes(by_rank, LAYOUT.nodes) == classes(by_hand, LAYOUT.nodes) == true_classes(LAYOUT)
    assert by_rank.farthest(["n0", "n1"]) == "switch"
    assert by_rank.farthest(["n0", "n1", "n2"]) == "group"
    assert by_rank.farthest(["n0"]) == "node"
    assert by_rank.farthest(["n0", "elsewhere"]) == by_rank.distance("n0", "elsewhere") == ""
    assert of_addresses({"a": "a", "b": "b"}) is None  # no topology plug-in


def test_ways_go_up_to_the_first_switch_above_both_and_rates_are_of_links_upwards() -> None:
    layout = Layout(((2, 2), (1,)), rate=80e6, switch_rate=40e6, group_rate=20e6)
    found = of_text(layout.fabric_file(), "by hand")
    assert classes(found, layout.nodes) == true_classes(layout)
    assert found.way("n0", "n1") == (("n0", "s0"), ("s0", "n1"))
    assert found.way("n1", "n2") == (("n1", "s0"), ("s0", "g0"), ("g0", "s1"), ("s1", "n2"))
    rates = {link.name: link.rate / 8 for link in layout.links()}
    for a, b in itertools.permutations(layout.nodes, 2):
        way = found.way(a, b)
        assert way is not None
        assert (way[0][0], way[-1][1]) == (a, b)
        assert all(up == down for (_, up), (down, _) in itertools.pairwise(way))
        assert [found.rate(*link) for link in way] == [
            rates[low] for link in way for low in [max(link, key=lambda name: "cgsn".index(name[0]))]
        ]
    assert Switches(**found.plain()) == dataclasses.replace(found, above={n: list(s) for n, s in found.above.items()})  # type: ignore[arg-type]
    assert found.way("n0", "elsewhere") is None
    assert of_text("a s0\nb s1", "by hand").way("a", "b") is None  # nothing above both
    assert of_text(SCONTROL.replace("=1", "=40Gb/s"), "there").rate("core", "g0") == 5e9
    assert of_text(SCONTROL, "there").rates == {}  # a number alone


@pytest.mark.parametrize(
    ("text", "words"),
    [("n0=fast s0", "no quantity"), ("n0=0Gb/s s0", "beyond any machine"), ("n0 =1Gb/s", "expected NAME=RATE"),
     ("a s0=1Gb/s\nb s0=2Gb/s", "s0 has two rates"), ("a s0=5", "unknown unit")],
)  # fmt: skip
def test_rates_that_are_none_are_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        of_text(text, "by hand")


CHAIN = "".join(f"SwitchName=s{level + 1} Switches=s{level}\n" for level in range(30_000))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n0 " + " ".join(f"s{level}" for level in range(100_000)), "100000 switches above n0: expected 32"),
        ("SwitchName=s0 Nodes=n0\n" + CHAIN, "33 switches above n0"),
        ("SwitchName=s0 Switches=s1\nSwitchName=s1 Switches=s0\nSwitchName=s1 Nodes=n0\n", "switches above n0"),
        ("n0 s0\nn1 s0 s1 s0", "3 switches above n1: .* each once"), ("n0 n0", "above n0"),
        ("SwitchName=s0 Nodes=n[0-131071]\n" * 100_000, "more than 131072 nodes"),
        ("".join(f"SwitchName=s{part} Nodes=n{part}x[0-131071]\n" for part in range(1000)), "more than 131072 nodes"),
        ("SwitchName=s0 Nodes=n" + "[0-999999999]" * 100_000, "x.txt: .* more than 131072 hosts"),
        ("SwitchName=s0 Nodes=n" + "[9-0][0-999999999]" * 100_000, "x.txt: .* no range"),
        ("\n".join(f"n{number} s{number % 9}" for number in range(200_000)), "more than 131072 nodes"),
        ("n0 \x1b[31ms0", "control characters"), ("n0 s0\x00", "control characters"),
        ("n0 \u202es0", "control characters"),
        ('Switch 36 "S-1"\n[1] "H-1"[1](1) # " "\n', "names no host"),
    ],
    ids=range(14),
)  # fmt: skip
def test_a_strangers_network_ends_at_once_in_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        of_text(text, "x.txt")
    assert len(str(raised.value)) < 400


def test_a_large_fabric_of_leaves_joined_at_random_is_read_at_once() -> None:
    draw = random.Random(1)
    lines = []
    for leaf in range(20_000):
        spines = [f'[{port}] "S-{draw.randrange(20_000):x}"[1] # "y"' for port in (2, 3, 4)]
        lines += [f'Switch 36 "S-{leaf:x}" # "x"', f'[1] "H-{leaf:x}"[1](1) # "n{leaf} mlx5_0"', *spines]
    assert len(of_text("\n".join(lines), "ib.txt").above) == 20_000


def ib(layout: Layout) -> str:
    """An ibnetdiscover file of leaf switches, two spines a group that join them, and one way between the groups."""
    lines: list[str] = []
    leaves = sorted({layout.place(node) for node in layout.nodes})
    for group, switch in leaves:
        lines += ["", "vendid=0x2c9", f'Switch\t36 "S-00{switch:02x}"\t\t# "leaf {switch}" enhanced port 0 lid 3 lmc 0']
        on = [node for node in layout.nodes if layout.place(node) == (group, switch)]
        lines += [f'[{port}]\t"H-00{node[1:]}"[1](2c903) \t\t# "{node} mlx5_0" lid 5 4xHDR'
                  for port, node in enumerate(on, 1)]  # fmt: skip
        lines += [f'[{30 + spine}]\t"S-f{group}{spine}"[{switch}]\t\t# "spine" lid 9 4xHDR' for spine in range(2)]
    for group in sorted({group for group, _ in leaves}):
        for spine in range(2):
            lines += ["", f'Switch\t36 "S-f{group}{spine}"\t\t# "spine" port 0 lid 7 lmc 0']
            lines += [f'[{s}]\t"S-00{s:02x}"[{30 + spine}]\t\t# "leaf" lid 3 4xHDR' for g, s in leaves if g == group]
            lines += [f'[35]\t"S-f{1 - group}{spine}"[35]\t\t# "spine" lid 8 4xHDR']
    lines += ["", 'Ca\t1 "H-000"\t\t# "n0 mlx5_0"', '[1](2c903) \t"S-0000"[1]\t\t# lid 5 lmc 0 "leaf 0" lid 3 4xHDR']
    return "\n".join(lines) + "\n"


def test_ibnetdiscover_gives_leaf_switches_and_groups_of_leaves_with_common_spines() -> None:
    found = of_ibnetdiscover(ib(LAYOUT), "ib.txt")
    assert classes(found, LAYOUT.nodes) == true_classes(LAYOUT)
    assert classes(of_text(ib(LAYOUT), "ib.txt"), LAYOUT.nodes) == true_classes(LAYOUT)


@pytest.mark.parametrize("text", ["", "# nothing\n", "n0\n", "SwitchName=s0\n", 'Switch\t36 "S-00"\t# "x"\n'])
def test_what_is_none_of_them_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected topology\.conf"):
        of_text(text, "x.txt")


def measured(layout: Layout, seed: int, *, noise: float, levels: dict[str, float]) -> dict[tuple[str, str], float]:
    """Times of all ordered pairs: the level of their class, with noise of so large a standard deviation."""
    chance = random.Random(seed)
    return {
        (a, b): levels[layout.distance(a, b)] * chance.lognormvariate(0, noise)
        for a, b in itertools.permutations(layout.nodes, 2)
    }


def shuffled(layout: Layout, seed: int) -> dict[str, str]:
    """Other names for the nodes, so that their order says nothing."""
    names = [f"host{number:03}" for number in range(len(layout.nodes))]
    random.Random(seed).shuffle(names)
    return dict(zip(layout.nodes, names, strict=True))


@pytest.mark.parametrize("levels", [{"switch": 1.0, "group": 2.0, "other group": 4.0},
                                    {"switch": 1.0, "group": 1.25, "other group": 1.6}])  # fmt: skip
@pytest.mark.parametrize("seed", range(20))
def test_classes_are_inferred_right_in_random_layouts(seed: int, levels: dict[str, float]) -> None:
    chance = random.Random(seed)
    counts = [chance.randint(2, 3) for _ in range(chance.randint(2, 4))]
    layout = Layout(tuple(tuple(chance.randint(2, 4) for _ in range(count)) for count in counts))
    names = shuffled(layout, seed)
    times = measured(layout, seed, noise=0.03, levels=levels)
    found = inferred({(names[a], names[b]): time for (a, b), time in times.items()}, "latency")
    assert found is not None
    assert found.source == "inferred from latency of all pairs"
    assert {pair: found.distance(names[pair[0]], names[pair[1]]) for pair in times} == {
        pair: layout.distance(*pair) for pair in times
    }


def added_to(layout: Layout, seed: int, levels: dict[str, float], mean: float) -> dict[tuple[str, str], float]:
    """Times of all pairs, the level of their class with what busy nodes add: the least of five, of so large a mean."""
    chance = random.Random(seed)
    return {
        (a, b): levels[layout.distance(a, b)] + min(chance.expovariate(1 / mean) for _ in range(5))
        for a, b in itertools.combinations(layout.nodes, 2)
    }


@pytest.mark.parametrize("seed", range(20))
def test_classes_are_inferred_where_busy_nodes_add_more_than_the_way_within_a_switch_takes(seed: int) -> None:
    chance = random.Random(seed)
    layout = Layout(tuple(tuple(chance.randint(2, 3) for _ in range(2)) for _ in range(chance.randint(2, 3))))
    times = added_to(layout, seed, {"switch": 0.03, "group": 8.0, "other group": 20.0}, mean=1.0)
    found = inferred(times, "latency")
    assert found is not None
    assert {pair: found.distance(*pair) for pair in times} == {pair: layout.distance(*pair) for pair in times}
    alike = Layout(((len(layout.nodes),),))
    assert inferred(added_to(alike, seed, {"switch": 1.0}, mean=0.05), "latency") is None


# ms for 8 B there and back on an emulated cluster, n0-n1, n0-n2, ...: the two groups' switches lie 15 % apart.
SEEN = """
0.152, 6.031, 6.61, 17.885, 16.728, 15.558, 17.14, 6.948, 6.355, 17.498, 15.151, 16.299, 16.607,
0.279, 17.446, 16.002, 14.964, 15.509, 14.319, 15.482, 14.405, 15.98, 0.042, 5.229, 5.05, 6.836,
5.368, 0.032
"""


def test_two_groups_that_differ_by_less_than_their_pairs_are_of_one_level() -> None:
    pairs = itertools.combinations(LAYOUT.nodes, 2)
    found = inferred(dict(zip(pairs, map(float, SEEN.split(",")), strict=True)), "latency")
    assert found is not None
    assert classes(found, LAYOUT.nodes) == true_classes(LAYOUT)


@pytest.mark.parametrize("seed", range(20))
def test_where_all_pairs_are_alike_nothing_is_inferred(seed: int) -> None:
    layout = Layout(((random.Random(seed).randint(3, 12),),))
    assert inferred(measured(layout, seed, noise=0.03, levels={"switch": 1.0}), "latency") is None


@pytest.mark.parametrize("seed", range(20))
def test_slow_nodes_are_no_switches_of_their_own(seed: int) -> None:
    chance = random.Random(seed)
    layout = Layout(((chance.randint(4, 12),),))
    slow = set(chance.sample(layout.nodes, chance.randint(1, 2)))
    times = measured(layout, seed, noise=0.03, levels={"switch": 1.0})
    factor = chance.uniform(1.3, 4)
    assert inferred({pair: time * (factor if slow & {*pair} else 1) for pair, time in times.items()}, "latency") is None


def test_pairs_that_lack_or_too_few_nodes_infer_nothing() -> None:
    times = measured(LAYOUT, 1, noise=0.0, levels={"switch": 1.0, "group": 2.0, "other group": 4.0})
    lacking = {pair: time for pair, time in times.items() if set(pair) != {"n0", "n7"}}
    assert inferred(lacking, "latency") is None
    assert inferred({("a", "b"): 1.0}, "latency") is None


SHARP = """vendid=0x2c9
Switch  41 "S-0c01"         # "MF0;ibsw1:MQM8700/U1" enhanced port 0 lid 7 lmc 0
[1]     "H-0a01"[1](a01)                # "NODE01 mlx5_0" lid 10 4xHDR s=4 w=2 v=4 e=4
[2]     "H-0a02"[1](a02)                # "MT4123 ConnectX6   Mellanox Technologies" lid 11 4xHDR
[3]     "H-0a03"[1](a03)                # "MT4123 ConnectX6   Mellanox Technologies" lid 12 4xHDR
[4]     "H-0a05"[1](a05)                # "" lid 14 4xHDR
[5]     "H-0a06"[1](a06)                # "quantum02 HCA-1" lid 15 4xHDR
[41]    "H-0a04"[1](a04)                # "Mellanox Technologies Aggregation Node" lid 13 4xHDR
"""


def test_cards_that_no_host_has_named_and_aggregation_nodes_are_no_hosts() -> None:
    found = of_text(SHARP, "ib.txt")
    assert list(found.above) == ["NODE01", "quantum02"]
    assert found.source == "ib.txt (without 4 ports of cards that no host has named)"
    with pytest.raises(UsageError, match=r"names no host on a switch \(6 ports of cards that no host has named\)"):
        of_text(SHARP.replace("quantum02 HCA-1", "").replace("NODE01 mlx5_0", "MT4123 ConnectX6"), "ib.txt")


TREE = """---
# the site's
- topology: flat
  cluster_default: false
  flat: true
- topology: fat
  cluster_default: true
  tree:
    switches:
      - switch: core
        children: g[0-1]
      - children: "s[0-1]"  # keys come in any order
        switch: g0
      - {g1}
        children: s[2-3]
      - switch: s0
        nodes: n[0-1]
      - switch: s1
        nodes: n[2-3]
      - switch: s2
        nodes: n[4-5]
      - switch: s3
        nodes: n[6-7]
"""


def test_slurms_topology_yaml_gives_the_layout() -> None:
    found = of_text(TREE.replace("{g1}", "switch: 'g1'"), "there")
    assert classes(found, LAYOUT.nodes) == true_classes(LAYOUT)
    assert found.above["n7"] == ("s3", "g1", "core")
    with pytest.raises(UsageError, match=r"line 14 of this topology\.yaml is not read: '- {switch: g1}'"):
        of_text(TREE.replace("{g1}", "{switch: g1}"), "there")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-15\nGPU1\tNV4\t X \t1\n", "give it to --system"),
        ("\t\x1b[4mGPU0\tCPU Affinity\x1b[0m\nGPU0\t X \t0-15\n", "nvidia-smi's matrix of one node"),
        ("===== ROCm System Management Interface =====\n       GPU0         GPU1\n", "rocm-smi's matrix"),
        ("lldp.eth0.chassis.name=leaf1\n", "lldpctl's output of a node that is not named"),
        ('{\n  "lldp": {\n    "interface": {}\n  }\n}\n', "pdsh -w NODES lldpctl -f keyvalue"),
        ("SW     7  1 0x506b4b0300c2ea60 4x HDR - CA     7  1 0x506b ('a' - 'b')\n", "without -p"),
        ("CA: node1 mlx5_0:\n      0x506b  4  1[  ] ==( 4X  53.125 Gbps Active/  LinkUp)==>\n", "iblinkinfo"),
        ('{"switches": []}\n', "JSON or XML"),
    ],
    ids=range(8),
)  # fmt: skip
def test_what_tells_of_no_network_is_named(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"net.txt: this is .*{words}.*; expected topology.conf"):
        of_text(text, "net.txt")


def test_a_file_that_lacks_a_host_of_the_run_is_refused_in_one_line() -> None:
    known = of_text("n0 s0\nn1 s0\nn2 s1\n", "fabric.txt")
    known.check(["n0", "n2"])
    known.check([])
    with pytest.raises(UsageError, match=r"fabric.txt: has no n7: expected a line for each of n0, n7"):
        known.check(["n0", "n7"])
    with pytest.raises(UsageError, match=r"fabric.txt: has none of the hosts"):
        known.check(["a", "b"])


# --- Slurm's blocks, and what lldpctl prints --------------------------------------------------------------------------

BLOCKS = """# rack1=nvl-1
BlockName=b1 Nodes=n[0-3]
BlockName=b2 Nodes=n[4-7]
BlockName=b3 Nodes=n[8-11]
BlockSizes=4,8
"""
BLOCKS_SHOWN = """BlockName=b1 BlockIndex=0 Nodes=n[0-3] BlockSize=4
BlockName=b2 BlockIndex=1 Nodes=n[4-7] BlockSize=4
BlockName=b3 BlockIndex=2 Nodes=n[8-11] BlockSize=4
AggregatedBlock=b[1-2] BlockIndex=3 Nodes=n[0-7] BlockSize=8
"""
BLOCKS_YAML = """---
- topology: flat
  flat: true
- topology: nvl
  cluster_default: true
  block:
    block_sizes:
      - 4
      - 8
    blocks:
      - block: b1
        nodes: n[0-3]
      - nodes: n[4-7]   # the keys of an entry come in any order
        block: b2
      - block: "b3"
        nodes: n[8-11]
- topology: other
  cluster_default: true
  tree:
    switches:
      - switch: s0
        nodes: n[0-11]
"""


@pytest.mark.parametrize(
    "text",
    [BLOCKS, BLOCKS_SHOWN, BLOCKS_YAML, BLOCKS_YAML.replace(":\n      - 4\n      - 8", ": [4, 8]")],
    ids=["topology.conf", "scontrol", "yaml", "yaml in a line"],
)
def test_slurms_blocks_stand_for_switches_and_larger_blocks_for_groups(text: str) -> None:
    found = of_text(text, "there")
    assert [found.distance("n0", other) for other in ("n3", "n4", "n8")] == ["switch", "group", "other group"]
    assert found.above["n5"][0] == "block b2"
    assert "blocks of topology/block" in found.source
    assert found.distance("n8", "n11") == "switch"


def test_an_empty_block_counts_in_the_order_of_blocks() -> None:
    found = of_text(BLOCKS.replace("BlockName=b2 Nodes=n[4-7]", "BlockName=b0\nBlockName=b2 Nodes=n[4-7]"), "there")
    assert [found.distance(a, b) for a, b in (("n0", "n4"), ("n4", "n8"))] == ["other group", "group"]


@pytest.mark.parametrize("seed", range(30))
def test_drawn_blocks_come_back(seed: int) -> None:
    """By Slurm's own rule: block i is in the larger block i // (size / base size) of each size."""
    chance = random.Random(seed)
    base, count = chance.randint(1, 5), chance.randint(1, 9)
    powers = sorted(chance.sample(range(1, 5), chance.randint(0, 3)))
    names = [f"b{at}" for at in range(count)]
    nodes = {name: [f"n{at * 10 + k}" for k in range(base)] for at, name in enumerate(names)}
    lines = [f"BlockName={name} Nodes={','.join(some)}" for name, some in nodes.items()]
    found = of_text(
        "\n".join([*lines, f"BlockSizes={','.join(str(base << power) for power in (0, *powers))}"]), "there"
    )
    place = {node: at for at, name in enumerate(names) for node in nodes[name]}
    for a, b in itertools.combinations(place, 2):
        together = [place[a] == place[b], *(place[a] >> power == place[b] >> power for power in powers)]
        level = together.index(True) if True in together else 2
        assert found.distance(a, b) == ("switch", "group", "other group")[min(level, 2)], (a, b)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BLOCKS.replace("b2", "b1"), "block b1 is there twice"),
        (BLOCKS.replace("n[4-7]", "n[3-7]"), "n3 is in blocks"),
        (BLOCKS.replace("4,8", "4,12"), "expected powers of two"), (BLOCKS.replace("4,8", "4,x"), "numbers of nodes"),
        (BLOCKS.replace("Nodes=", ""), "no block has nodes"),
        ("BlockName=b Nodes=n[0-131071]\n" + "BlockName=c Nodes=m[0-131071]\n", "more than 131072 nodes"),
        (BLOCKS_YAML.replace("block_sizes:\n", "block_sizes: {a: 1}\n"), r"line 7 of this topology\.yaml is not read"),
    ],
)  # fmt: skip
def test_blocks_that_contradict_themselves_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=rf"^there: .*{words}"):
        of_text(text, "there")


def heard(ports: dict[str, tuple[str, str]], form: str) -> list[str]:
    """What lldpctl prints of a node whose interfaces hear switches, each with the speed it negotiated."""
    if form == "keyvalue":
        return [line for port, (switch, speed) in ports.items()
                for line in (f"lldp.{port}.via=LLDP", f"lldp.{port}.chassis.mac=02:00:00:00:00:01",
                             *([f"lldp.{port}.chassis.name={switch}"] if switch else []),
                             f"lldp.{port}.chassis.descr=a switch, of some name=value",
                             f"lldp.{port}.port.ifname=Ethernet1",
                             f"lldp.{port}.port.auto-negotiation.current={speed}")]  # fmt: skip
    if form == "json0":
        interfaces: object = [
            {"name": port, "chassis": [{"id": [{"type": "mac", "value": "02:00:00:00:00:01"}],
                                        **({"name": [{"value": switch}]} if switch else {})}],
             "port": [{"auto-negotiation": [{"current": [{"value": speed}]}]}]}
            for port, (switch, speed) in ports.items()
        ]  # fmt: skip
        return json.dumps({"lldp": [{"interface": interfaces}]}, indent=2).splitlines()
    facts = {}
    for port, (switch, speed) in ports.items():
        chassis: dict[str, object] = {"id": {"type": "mac", "value": "02:00:00:00:00:01"}, "descr": "a switch"}
        facts[port] = {"via": "LLDP", "chassis": {switch: chassis} if switch else chassis,
                       "port": {"id": {"type": "ifname"}, "auto-negotiation": {"current": speed}}}  # fmt: skip
    several = [{port: one} for port, one in facts.items()] if len(facts) != 1 else facts
    return json.dumps({"lldp": {"interface": several}}, indent=2).splitlines()


@pytest.mark.parametrize("form", ["keyvalue", "json", "json0"])
@pytest.mark.parametrize("seed", range(8))
def test_the_fastest_interface_that_hears_a_switch_says_where_a_node_hangs(form: str, seed: int) -> None:
    chance = random.Random(seed)
    lines, wanted = [], {}
    for node in range(6):
        leaf = f"leaf{chance.randrange(3)}"
        ports = {"eno1": ("mgmt-sw", "1000BaseTFD - Four-pair Category 5 UTP, full duplex mode"),
                 "ens1f0np0": (leaf, "100GbaseCR4"), "ens1f1np1": ("leaf9", "100GbaseCR4")}  # fmt: skip
        ports = ports if chance.random() < 0.7 else {"ens1f0np0": (leaf, "100GbaseCR4")}
        wanted[f"node{node}"] = leaf
        lines += [f"node{node}: {line}" for line in heard(ports, form)]
    if form == "keyvalue":
        chance.shuffle(lines)  # as pdsh prints them
    found = of_text("\n".join(lines), "lldp.txt")
    assert {node: above[0] for node, above in found.above.items()} == wanted
    assert found.source == "lldp.txt (LLDP of ens1f0np0)"
    assert found.distance("node0", "node1") in ("switch", "group")


def test_a_switch_without_a_name_is_known_by_its_chassis_and_slingshots_by_their_place() -> None:
    for form in ("keyvalue", "json", "json0"):
        text = "\n".join(f"n0: {line}" for line in heard({"eth0": ("", "25GbaseCR")}, form))
        assert of_text(text, "x").above == {"n0": ("02:00:00:00:00:01", "other switches")}
    text = "n0: lldp.hsn0.chassis.name=x1000c3r7b0\nn1: lldp.hsn0.chassis.name=x1001c3r7b0\n"
    found = of_text(text, "x")
    assert found.above["n0"] == ("x1000c3r7b0", "cabinet x1000")
    assert found.distance("n0", "n1") == "other group"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n0: lldp.eth0.chassis.name=leaf1\nlldp.eth1.chassis.name=leaf1\n", "a node that is not named"),
        ("n0: lldp.eth0.chassis.descr=leaf1\n", "no node hears a switch by LLDP"),
        ('n0: {"lldp": {"interface": [}}\n', "n0's lines: not JSON"),
        ('n0: {"lldp": {"interface": [3, {"a": 4}, {"b": {"chassis": []}}]}}\n', "no node hears a switch"),
    ],
)  # fmt: skip
def test_what_lldpctl_does_not_say_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        of_text(text, "x.txt")
    assert "\n" not in str(raised.value)


def test_a_host_that_calls_itself_localhost_is_no_host_and_a_file_without_switches_is_named() -> None:
    found = of_text(SHARP.replace("NODE01 mlx5_0", "localhost HCA-1"), "ib.txt")
    assert "localhost" not in found.above
    with pytest.raises(UsageError, match=r"ib\.txt names no host on a switch"):
        of_text('vendid=0x2c9\ncaguid=0x1\nCa\t1 "H-1"\t\t# "n0 HCA-1"\n', "ib.txt")
