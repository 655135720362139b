"""Requests of what a library is to choose: algorithm, protocol, channels, NVLink SHARP, and any variable of its own.

The judges of stats/requests.py. NCCL's log tells what it chose and which variables it read; of other libraries what
they themselves say that they have (`Launch.answers`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from linkgauge.model.case import Case
from linkgauge.model.transports import TRANSPORTS
from linkgauge.run.machine.binding import parse_core_list
from linkgauge.run.machine.nccl_log import FUNCTIONS, NETWORK_CHANNELS, PEER_CHANNELS, SHARED_CHANNELS
from linkgauge.stats.crossing import ALL
from linkgauge.stats.request_paths import by_channels
from linkgauge.stats.requests import Judge, Known, RequestVerdict, held, judged, not_held, unknown

_LOG = "by NCCL's log"
_NOT_QUERIED = "NCCL was not queried: --library-choices queries it"
_ALL_COLLECTIVES = tuple(FUNCTIONS)
# Which collectives NCCL has an algorithm for (enums and tuning of NCCL 2.24 to 2.32): for others it takes another one.
_ALGORITHM_FOR = {
    "ring": _ALL_COLLECTIVES, "tree": ("allreduce",), "collnetchain": ("allreduce",), "nvlstree": ("allreduce",),
    "collnetdirect": ("allreduce", "allgather", "reduce_scatter"), "nvls": ("allreduce", "allgather", "reduce_scatter"),
    "pat": ("allgather", "reduce_scatter"),
}  # fmt: skip
_MULTICASTS = ("allreduce", "allgather", "reduce_scatter")
_LEAST_FOR_MULTICAST = 4 << 20
"""In bytes: NCCL takes NVLink SHARP for large messages, and something with less latency for small ones."""
_LEAST_FOR_CHANNELS = 16 << 20
"""In bytes: for less NCCL may take fewer channels than it has."""


def _plain(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def algorithm_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge algorithm and protocol of NCCL, as a dimension or a variable, by its log."""
    case, env = known.case, known.launch.env
    if case.transport != "ccl" or TRANSPORTS["ccl"].by_our_kernels(case.variant) or case.pattern not in FUNCTIONS:
        return
    if case.algorithm and case.algorithm != "send_recv":
        name, _, protocol = case.algorithm.partition("+")
        yield from _chosen(known, f"algorithm {case.algorithm}", {"algorithm": name, "protocol": protocol})
    for variable, what in (("NCCL_ALGO", "algorithm"), ("NCCL_PROTO", "protocol")):
        value = env.get(variable, "")
        wanted = _for_pattern(value, FUNCTIONS[case.pattern])
        names = [_plain(one) for one in wanted.lstrip("^").split(",")]
        fits = what == "protocol" or wanted.startswith("^") or any(
            case.pattern in _ALGORITHM_FOR.get(one, ()) for one in names
        )  # fmt: skip
        if wanted and fits:
            yield from _chosen(known, f"{variable}={value}", {what: wanted})


def _for_pattern(value: str, function: str) -> str:
    """The list that is for one collective: `ring,tree`, or of `allreduce:tree;broadcast:ring` its own (NCCL 2.24)."""
    general = ""
    for part in value.split(";"):
        name, colon, own = part.partition(":")
        if colon and name.strip().lower() == function.lower():
            return own.strip()
        general = general if colon else part.strip()
    return general


def _chosen(known: Known, requested: str, wanted: Mapping[str, str]) -> Iterator[RequestVerdict]:
    chosen = known.chosen
    if not chosen.get("algorithm") and not chosen.get("kernel"):
        yield unknown(requested, _NOT_QUERIED)
        return
    said = " ".join(str(chosen[name]) for name in ("algorithm", "protocol", "kernel") if chosen.get(name))
    if not chosen.get("algorithm"):
        yield not_held(requested, f"{_LOG}: a kernel of symmetric memory, {said}")
        return
    right = all(_listed(words, str(chosen.get(what, ""))) for what, words in wanted.items() if words)
    yield judged(right, requested, f"{_LOG}: {said}")


def _listed(words: str, name: str) -> bool:
    """Whether NCCL's list has a name; one that begins with ^ has all others."""
    return (_plain(name) in {_plain(one) for one in words.lstrip("^").split(",")}) != words.startswith("^")


def multicast_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge by NCCL's log whether NVLink SHARP carried what it was requested for."""
    case, value = known.case, known.launch.env.get("NCCL_NVLS_ENABLE", "")
    if case.transport != "ccl" or case.pattern not in _MULTICASTS or value not in ("0", "1"):
        return
    requested = f"NCCL_NVLS_ENABLE={value}"
    if "multicast" not in known.chosen:
        yield unknown(requested, _NOT_QUERIED)
    elif known.chosen["multicast"]:
        yield judged(value == "1", requested, f"{_LOG}: {_choice(known)} used NVLink SHARP")
    elif value == "0":
        yield held(requested, f"{_LOG}: {_choice(known)} did without NVLink SHARP")
    elif known.multicast_used or case.size < _LEAST_FOR_MULTICAST:
        yield unknown(requested, f"{_LOG}: {_choice(known)}, which NCCL may prefer at this size")
    else:
        yield not_held(requested, f"NVLink SHARP did not carry it, {_LOG}: {_choice(known)}")


def _choice(known: Known) -> str:
    return str(known.chosen.get("algorithm") or known.chosen.get("kernel"))


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None


_CHANNELS = {"NCCL_MAX_NCHANNELS": False, "NCCL_MAX_CTAS": False, "NCCL_MIN_NCHANNELS": True, "NCCL_MIN_CTAS": True}
"""Bounds of NCCL's channels, and whether they are the lower ones."""


def channel_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge the number of channels and the size of clusters by NCCL's log."""
    env = known.launch.env
    if known.case.transport != "ccl" or known.case.pattern not in FUNCTIONS:
        return
    for name, lower in _CHANNELS.items():
        channels, bound = known.count("channels"), _whole(env.get(name, ""))
        if bound is None:
            continue
        requested = f"{name}={env[name]}"
        if channels is None:
            yield unknown(requested, _NOT_QUERIED)
        elif (channels < bound) if lower else (channels > bound):
            small = lower and (known.case.size < _LEAST_FOR_CHANNELS or bool(known.chosen.get("multicast")))
            yield (unknown if small else not_held)(requested, f"{_LOG}: {channels} channels")
        else:
            yield held(requested, f"{_LOG}: {channels} channels")
    wanted, cluster = _whole(env.get("NCCL_CGA_CLUSTER_SIZE", "")), known.count("cluster")
    if wanted is not None and cluster is not None:
        yield judged(cluster == wanted, f"NCCL_CGA_CLUSTER_SIZE={wanted}", f"{_LOG}: clusters of {cluster}")
    if (value := env.get("NCCL_NET_GDR_LEVEL", "").upper()) in ("LOC", "0", "SYS", "5"):
        yield from by_channels(known, f"NCCL_NET_GDR_LEVEL={env['NCCL_NET_GDR_LEVEL']}", value in ("SYS", "5"))


# --- variables that a library says that it has -----------------------------------------------------------------------

_OWNERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("NCCL_", "NCCL", ("ccl",)),
    ("RCCL_", "RCCL", ("ccl",)),
    ("UCX_", "UCX", ("ucx", "nixl", "mpi", "staging")),
    ("FI_", "libfabric", ("ofi", "mpi", "staging", "nixl", "ccl")),
    ("MPIR_CVAR_", "an MPI library", ("mpi", "staging")),
    ("MPICH_", "an MPI library", ("mpi", "staging")),
    ("OMPI_MCA_", "an MPI library", ("mpi", "staging")),
    ("I_MPI_", "an MPI library", ("mpi", "staging")),
    ("NVSHMEM_", "NVSHMEM", ("nvshmem",)),
)
"""By what a variable begins with, whose it is and which transports use that."""
_NO_SETTINGS = ("NCCL_DEBUG", "UCX_LOG_LEVEL", "I_MPI_DEBUG", "FI_LOG_LEVEL", "MPICH_ENV_DISPLAY")
"""What begins so says what a library writes, not what it does."""


def mpi_algorithm_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge the algorithm that an MPI library must take by whether it has the variable that means it."""
    case = known.case
    if case.transport == "mpi" and case.algorithm:
        for name, value in known.launch.derived_env.items():
            if value == case.algorithm:
                found = _by_answer(known, name, value, "an MPI library")
                yield dataclasses.replace(found, requested=f"algorithm {value}", evidence=f"{name}: {found.evidence}")


def binding_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge lists of cores by those that the kernel let each rank run on."""
    bind, launch = str(known.launch.contents.get("bind", "nearest")), known.launch
    lists = bind.split(":")
    if bind in ("nearest", "none") or len(lists) != len(launch.ranks) or launch.contents.get("mode") == "threads":
        return
    try:
        listed = [set(parse_core_list(text)) for text in lists]
    except ValueError:  # a stranger's
        return
    for rank, cores in zip(launch.ranks, listed, strict=True):
        if rank.cores and not set(rank.cores) <= cores:
            yield not_held(f"--bind {bind}", f"rank {rank.rank} ran on cores {','.join(map(str, rank.cores[:16]))}")
            return
    yield held(f"--bind {bind}", "by the cores of each rank")


def page_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge huge pages and NUMA nodes of host buffers by the kernel's lists of the rank's mappings."""
    case, share = known.case, known.huge_share
    if case.huge_pages:
        if share is not None:
            yield _by_share("huge_pages", share, "on huge pages")
        elif "[never]" in known.huge_pages:
            yield not_held("huge_pages", f"the kernel's transparent_hugepage is '{known.huge_pages}'")
        else:
            yield unknown("huge_pages", "no huge page fits into its buffers, or none was counted")
    for node in sorted({case.source_node, case.target_node} - {-1}):
        requested = f"memory of NUMA node {node}"
        if node in known.node_shares:
            yield _by_share(requested, known.node_shares[node], "there")
        else:
            yield unknown(requested, "there is one node, or the kernel lists none of the buffers' pages")


def _by_share(requested: str, share: float, where: str) -> RequestVerdict:
    words = f"by the kernel's list of mappings: {share:.2f} of the buffers' bytes {where}"
    return judged(share >= ALL, requested, words)


_POLICIES = {"zero_cta": "CTA policy zero", "efficiency": "CTA policy efficiency"}


def cta_policy_of(case: Case) -> str:
    """Return the CTA policy of NCCL that a case requests, in words; empty without."""
    words = case.variant.split("+") if case.transport == "ccl" and case.variant else ()
    return next((_POLICIES[word] for word in words if word in _POLICIES), "")


def cta_policy_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge NCCL's policies for blocks: collectives without any are copies, of which its log tells from 2.29 on."""
    requested, chosen = cta_policy_of(known.case), known.chosen
    if not requested:
        return
    said = str(chosen.get("algorithm") or chosen.get("kernel") or "")
    if requested != _POLICIES["zero_cta"]:
        yield unknown(requested, "NCCL's log does not tell it: compare the channels with those of the default variant")
    elif not said:
        yield unknown(requested, "NCCL logs such copies from 2.29 on, and only with --library-choices")
    else:
        yield judged(said == "COPY_ENGINE", requested, f"{_LOG}: {said}")


def variable_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge variables of the launch by whether a library has them, with which value, or whether none is used."""
    for name, value in known.launch.env.items():
        owner = next((one for one in _OWNERS if name.startswith(one[0])), None)
        if owner is None or name.startswith(_NO_SETTINGS):
            continue
        _, title, transports = owner
        requested = f"{name}={value}"
        if known.case.transport == "ccl" and title == "libfabric":
            yield _by_plugin(known, requested)
        elif known.case.transport in transports:
            yield _by_answer(known, name, value, title)
        elif not known.transports & {*transports}:
            yield RequestVerdict(requested, "not_held", f"no case of this run uses {title}", in_use=False)


def _by_plugin(known: Known, requested: str) -> RequestVerdict:
    """Of what NCCL's plugin for libfabric does with a variable only this shows: that no channel goes by the network."""
    inside = (known.count(PEER_CHANNELS) or 0) + (known.count(SHARED_CHANNELS) or 0)
    if inside and not known.count(NETWORK_CHANNELS):
        return not_held(requested, f"{_LOG}: no channel goes by the network")
    return unknown(requested, "NCCL has libfabric by a plugin, which does not tell")


def _by_answer(known: Known, name: str, value: str, title: str) -> RequestVerdict:
    requested = f"{name}={value}"
    if known.read is not None and title == "NCCL":
        if name not in known.read:
            return not_held(requested, "NCCL's log does not say that it read it")
        if known.read[name].isdecimal() and _number(value) is None and value.lower() not in _SWITCHES:
            return not_held(requested, f"NCCL's log: it takes a number, and read {known.read[name]}")
        return _compared(requested, value, known.read[name], "NCCL's log")
    answer = known.launch.answers.get(name)
    if answer is None:
        return unknown(requested, f"{title} does not tell what it has of it")
    if not answer.known:
        return not_held(requested, f"{answer.by} has no such variable")
    if answer.value is None:
        return unknown(requested, f"{answer.by} has the variable and does not tell its value")
    if name.endswith("_ALGORITHM") and name.startswith("MPIR_") and answer.value.isdecimal() and not value.isdecimal():
        # MPICH tells the number of a choice and not its name; 0 is auto.
        right = (answer.value != "0") == (value.lower() != "auto")
        return judged(right, requested, f"{answer.by} has its choice {answer.value}, where 0 is auto")
    return _compared(requested, value, answer.value, answer.by)


def _compared(requested: str, value: str, has: str, by: str) -> RequestVerdict:
    same = _same(value, has)
    if same is None:
        return unknown(requested, f"{by} has {has or 'nothing'}, in words of its own")
    return judged(same, requested, f"{by} has {has or 'nothing'}")


_SWITCHES = {**dict.fromkeys(("y", "yes", "true", "on", "1", "t", "enable"), "1"),
             **dict.fromkeys(("n", "no", "false", "off", "0", "f", "disable"), "0")}  # fmt: skip
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _same(value: str, has: str) -> bool | None:
    """Whether two values are one; None where they are written in different ways."""
    ours, theirs = value.strip().lower(), has.strip().lower()
    if (parts := re.fullmatch(r"intra:(.*),inter:(.*)", theirs)) and parts[1] == parts[2]:  # UCX, where both are one
        theirs = parts[1]
    if ours == theirs or _plain(ours) == _plain(theirs) != "":
        return True
    if ours in _SWITCHES and theirs in _SWITCHES:
        return _SWITCHES[ours] == _SWITCHES[theirs]
    numbers = _number(ours), _number(theirs)
    return None if None in numbers else numbers[0] == numbers[1]


def _number(text: str) -> float | None:
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)([kmg]?)(?:i?b)?", text)
    return float(match[1]) * _UNITS[match[2]] if match else None


JUDGES: Sequence[Judge] = (
    algorithm_verdicts, multicast_verdicts, channel_verdicts, mpi_algorithm_verdicts, binding_verdicts,
    page_verdicts, cta_policy_verdicts, variable_verdicts,
)  # fmt: skip
