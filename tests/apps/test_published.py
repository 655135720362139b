"""The shipped applications against what was read in the applications' own sources: counts and bytes of a rank.

Written from the tables of published messages (Tartan e3166ab; today's skeletons), not from the step files.
"""

from __future__ import annotations

import itertools
import math

import pytest

from linkgauge.apps import catalog
from linkgauge.apps.program import Amount, amounts
from linkgauge.model.worded import App
from thorough import most

P_ALL = (1, 2, 4, 8)


def of(app: str, ranks: int, rank: int = 0) -> dict[str, Amount]:
    found = catalog.asked(App.of_text(app)).app
    assert catalog.why_not_here(found, ranks) == ""
    return amounts(catalog.program(found, ranks), rank)


def neighbors(ranks: int, rank: int) -> int:
    return (rank > 0) + (rank < ranks - 1)


def test_there_are_tartans_fourteen_and_todays() -> None:
    tartan = {"cnn", "csm", "gmm", "kmn", "mtc", "pln", "trk", "brq", "dff", "llh", "cmd", "prb", "hit", "mam"}
    today = {"data_parallel", "fsdp", "tensor_parallel", "pipeline", "moe", "kv_cache", "halo_stencil", "fft_slab",
             "fft_pencil", "graph_frontier", "gups", "krylov"}  # fmt: skip
    assert set(catalog.names()) == tartan | today


# BRQ: 600 steps, an exchange every R (4; alone 2), 9 fields, faces x, y, z; whole copies of the largest, 2x each way.
@pytest.mark.parametrize(
    ("ranks", "faces", "largest"),
    [(1, [], 4_064_000), (2, [640_000], None), (4, [320_000, 476_672], None), (8, [160_000, 2_128_000, 306_432], None)],
)
def test_brq(ranks: int, faces: list[int], largest: int | None) -> None:
    found = of("brq steps=600", ranks, ranks - 1)
    exchanges = 300 if ranks == 1 else 150
    assert found.get("sent", Amount()) == Amount(exchanges * 9 * len(faces), exchanges * 9 * sum(faces))
    assert found.get("received", Amount()) == found.get("sent", Amount())
    copies = found["device_to_host"].count + found["host_to_device"].count
    assert copies == 108 * exchanges
    assert found["device_to_host"] == found["host_to_device"]
    if largest:
        assert found["device_to_host"].total == largest * 54 * exchanges
        assert found["device_to_host"].total / 1e9 == pytest.approx(65.8, abs=0.05)


@pytest.mark.parametrize("ranks", P_ALL)
def test_dff(ranks: int) -> None:
    for rank in range(ranks):
        found = of("dff steps=1000", ranks, rank)
        messages = 3 * 1000 * neighbors(ranks, rank)
        assert found.get("sent", Amount()) == Amount(messages, messages * 3_840_000)
        assert found.get("device_to_host", Amount()) == found.get("sent", Amount())


@pytest.mark.parametrize("ranks", P_ALL)
@pytest.mark.parametrize("n", most([32, 64, 128, 256], [64]))
def test_llh(ranks: int, n: int) -> None:
    for rank in range(ranks):
        found = of(f"llh n={n} steps=7", ranks, rank)
        each = 7 * neighbors(ranks, rank)
        total = each * (24 * (n + 1) ** 2 + 24 * n**2)
        assert found.get("sent", Amount()) == Amount(2 * each, total)
        assert found.get("device_to_host", Amount()) == Amount(6 * each, total)
        assert found.get("allreduce", Amount()) == (Amount() if ranks == 1 else Amount(7, 56))


def test_weak_problems_of_llh_send_four_times_as_much_at_twice_the_ranks() -> None:
    """32, 64, 128, 256 for 1, 2, 4, 8: a rank's problem is not kept, as that of six of the fourteen is."""
    sent = [of(f"llh n={32 * ranks}", ranks, 0)["sent"].total for ranks in (2, 4, 8)]
    assert sent == [24 * (n + 1) ** 2 + 24 * n**2 for n in (64, 128, 256)]
    assert [after / before for before, after in itertools.pairwise(sent)] == pytest.approx([4, 4], rel=0.02)
    for app, grows in (
        ("kmn points", 2_000_000),
        ("gmm events", 100_000),
        ("mtc options", 1_000_000),
    ):
        moved = [sum(one.total for one in of(f"{app}={grows * ranks}", ranks, 1).values()) for ranks in (2, 4, 8)]
        assert moved == pytest.approx([moved[0]] * 3, rel=0.01), app


def test_cmd() -> None:
    found = of("cmd steps=100", 8)
    # 606 axis exchanges, a message each way; atoms of 56 bytes (about 138, 159, 184 KB), forces of 8 (20 to 26 KB).
    assert found["sent"].count == found["received"].count == 2 * 606
    atoms = found["sent"].total / 2 / 101 / 64
    assert atoms * 56 == pytest.approx(138e3 + 159e3 + 184e3, rel=0.01)
    assert found["allreduce"] == Amount(20, 10 * (16 + 4))
    # haloExchange.c: each message is copied out of the device before, and into it behind; by device memory neither.
    assert found["device_to_host"] == found["host_to_device"] == found["sent"]
    assert "device_to_host" not in of("cmd steps=100 staged=0", 8)


@pytest.mark.parametrize("ranks", P_ALL)
@pytest.mark.parametrize("scale", most([19, 20, 21, 22], [20]))
def test_prb(ranks: int, scale: int) -> None:
    vertices = 1 << scale
    found = of(f"prb vertices={vertices}", ranks)
    if ranks == 1:
        assert not found
        return
    assert found["alltoallv"].count == 2
    assert found["alltoallv"].total * ranks == 2 * 4 * 16 * vertices // ranks  # m is of one destination of `ranks`
    assert found["allreduce"] == Amount(ranks + 20, ranks * 4 * vertices // ranks + 20 * 8)
    sends = 20 * (ranks - 1)
    assert found["sent"] == Amount(sends, sends * 8 * vertices // ranks) == found["host_to_device"]


@pytest.mark.parametrize(("n", "ranks", "block"), [(256, 8, 1_056_768), (128, 4, 8 * 65 * 32 * 32)])
def test_hit(n: int, ranks: int, block: int) -> None:
    found = of(f"hit n={n} steps=2", ranks)
    assert found["alltoall"] == Amount(54, 54 * block)
    assert found["device_to_host"] == found["host_to_device"] == Amount(54, 54 * ranks * block)
    assert found["allreduce"].count == 4


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("rows", most([64, 128, 256, 512], [128]))
def test_mam(ranks: int, rows: int) -> None:
    found = of(f"mam rows={rows}", ranks)
    assert found["broadcast"] == Amount(1, 262_144)
    assert found["scatter"] == Amount(1, 1024 * rows)
    assert found["gather"] == Amount(1, ranks * (1024 * rows // ranks))


@pytest.mark.parametrize("ranks", P_ALL)
def test_cnn(ranks: int) -> None:
    found = of("cnn minibatches=316", ranks).get("sent", Amount())
    assert found.count == 316 * 5 * 2 * (ranks - 1)
    assert found.total / 316 == pytest.approx(2 * (ranks - 1) / ranks * 28.3e6, rel=0.005)


@pytest.mark.parametrize("ranks", P_ALL)
@pytest.mark.parametrize("d", most([4, 16, 32], [16]))
def test_csm(ranks: int, d: int) -> None:
    base = of(f"csm dims={d} steps=1147", ranks, ranks - 1)
    assert base["device_to_host"] == base["host_to_device"] == Amount(1147, 1147 * (8 * d + 8))
    library = of(f"csm dims={d} steps=1147 library=1", ranks, ranks - 1)
    assert library["device_to_host"] == Amount(1147, 1147 * 8)
    if ranks > 1:
        assert base["barrier"].count == 3 * 1147
        assert library["broadcast"] == Amount(2 * 1147, 1147 * (8 * d + 8))


@pytest.mark.parametrize("ranks", [1, 4])
def test_gmm(ranks: int) -> None:
    found = of("gmm events=400000 lowest=32 iterations=200", ranks)
    assert found["device_to_host"].count == 5 * 200 + 1
    memberships = 4 * 32 * 400_000 // ranks
    assert found["device_to_host"].total == 200 * (4 * 32 * (16 + 4 + 2) + 96) + memberships
    assert found["host_to_device"].total == 200 * 4 * 32 * (16 + 4 + 1)
    if ranks == 4:
        assert memberships == 12_800_000
        assert found["barrier"].count == 9 * 200
    every = of("gmm lowest=8 iterations=1", ranks)
    assert every["device_to_host"].count == 25 * 6


@pytest.mark.parametrize("ranks", P_ALL)
@pytest.mark.parametrize("n", most([2_000_000, 4_000_000, 8_000_000, 16_000_000], [4_000_000]))
def test_kmn(ranks: int, n: int) -> None:
    base = of(f"kmn points={n} iterations=100", ranks)
    assert base["device_to_host"] == base["host_to_device"] == Amount(100, 100 * 40_000)
    assert base["within_device"].total == 100 * 400 * n // ranks
    library = of(f"kmn points={n} iterations=100 library=1", ranks)
    assert "device_to_host" not in library
    assert library.get("allreduce", Amount()) == (Amount() if ranks == 1 else Amount(100, 100 * 40_000))


def test_the_small_ones_within_a_node() -> None:
    mtc = of("mtc options=1000000", 4)
    assert (mtc["host_to_device"], mtc["device_to_host"]) == (Amount(1, 16 * 250_000), Amount(1, 8 * 250_000))
    pln = of("pln n=19 solutions=5", 2)
    assert pln["host_to_device"] == Amount(1, 8)
    assert pln["device_to_host"] == Amount(2, 8 + 8 + 8 * 5 * math.ceil(19 / 8))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_trk(ranks: int) -> None:
    q, steps = 16, 5 * 5_000
    late = 5 * 2_000
    words = f"trk edge=64 replicas={q} trials=10 steps={steps} late={late}"
    found = [of(words, ranks, rank) for rank in range(ranks)]
    tiny = Amount(steps + late, steps * (4 * q // ranks) + late * (32 * q // ranks))
    couplings = Amount(10, 10 << 20)
    assert found[0]["device_to_host"] == Amount(tiny.count + 10, tiny.total + (10 << 20))
    for one in found[1:]:
        assert one["device_to_host"] == tiny
        assert one["host_to_device"] == couplings
    if ranks > 1:
        assert of(f"{words} library=1", ranks)["broadcast"] == couplings


# --- today's ---------------------------------------------------------------------------------------------------------


def test_data_parallel() -> None:
    found = of("data_parallel parameters=8000000000", 4)["allreduce"]
    assert found.total == 16_000_000_000
    assert found.count == 1 + math.ceil((16e9 - (1 << 20)) / (25 << 20))


def test_fsdp() -> None:
    found = of("fsdp layers=32 layer=436207616", 8)
    assert found["allgather"] == Amount(64, 64 * 436_207_616)
    assert found["reduce_scatter"] == Amount(32, 32 * 436_207_616)


@pytest.mark.parametrize(("tokens", "size"), [(1, 8 << 10), (8192, 64 << 20)])
def test_tensor_parallel(tokens: int, size: int) -> None:
    assert of(f"tensor_parallel tokens={tokens}", 4)["allreduce"] == Amount(64, 64 * size)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_pipeline(ranks: int) -> None:
    for rank in range(ranks):
        found = of("pipeline microbatches=32 activation=67108864", ranks, rank)
        assert found["sent"] == found["received"] == Amount(32 * neighbors(ranks, rank), (neighbors(ranks, rank) << 31))


def test_moe() -> None:
    for ranks in (2, 4, 8):
        # Of 8 of 256 experts drawn without putting back, one at least on a rank's 256 / P.
        reached = 1 - math.comb(256 - 256 // ranks, 8) / math.comb(256, 8)
        found = of("moe tokens=4096", ranks)["alltoallv"]
        assert found.count == 2
        assert found.total / (4096 * (7168 + 224 + 14_336)) == pytest.approx(reached, abs=0.001)


def test_kv_cache() -> None:
    assert of("kv_cache descriptors=32768", 2)["sent"] == Amount(32_768, 1 << 30)
    assert of("kv_cache descriptors=32768", 2, 1)["received"] == Amount(32_768, 1 << 30)


def test_transforms_and_solvers() -> None:
    assert of("fft_slab n=1024", 4)["alltoall"] == Amount(1, 512 << 20)
    assert of("fft_pencil n=1024", 4)["alltoall"] == Amount(2, 2 * (1024**3 * 8 // 8))
    assert of("halo_stencil n=512 turns=1 fields=3", 8)["halo"] == Amount(3, 3 * (2 << 20))
    assert of("halo_stencil n=512 turns=1 fields=3 packed=1", 8)["halo"] == Amount(1, 6 << 20)
    assert of("krylov turns=10", 4)["allreduce"] == Amount(20, 160)
    assert of("gups", 4)["alltoallv"].total == 50 * 1024 * 8 // 4
    assert of("graph_frontier", 4)["allreduce"] == Amount(7, 56)


# Llama 3 (8B, 70B) and Mixtral 8x22B, as their configurations have them: layers, hidden, feed-forward, vocabulary,
# experts; 8 heads of 128 for keys and values in each.
MODELS = {
    "8B": (32, 4096, 14336, 128256, 0),
    "70B": (80, 8192, 28672, 128256, 0),
    "8x22B": (56, 6144, 16384, 32768, 8),
}


@pytest.mark.parametrize("model", MODELS)
def test_presets_are_the_published_models(model: str) -> None:
    layers, hidden, feed_forward, words, experts = MODELS[model]
    attention = 2 * hidden * hidden + 2 * hidden * 8 * 128
    rest = 3 * hidden * feed_forward * max(1, experts) + experts * hidden + 2 * hidden
    layer = attention + rest
    every = layers * layer + 2 * words * hidden + hidden
    fsdp = of(f"fsdp {model}", 8)
    assert fsdp["allgather"] == Amount(2 * layers, 2 * layers * 2 * layer)
    assert fsdp["reduce_scatter"] == Amount(layers, layers * 2 * layer)
    assert of(f"data_parallel {model}", 2)["allreduce"].total == 2 * every
    assert of(f"tensor_parallel {model}", 2)["allreduce"] == Amount(2 * layers, 2 * layers * 2 * hidden)
    assert of(f"pipeline {model} microbatches=1", 2)["sent"] == Amount(1, 8192 * hidden * 2)
    pages = of(f"kv_cache {model}", 2)["sent"]
    assert pages == Amount(8192 // 16 * layers * 2, 8192 * layers * 2 * 8 * 128 * 2)
