"""Words of `variant`, `algorithm` and `path` that nothing here knows: named before anything is launched."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Collection

from linkgauge.errors import UsageError, nearest
from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.transports import TRANSPORTS
from linkgauge.plan.library_settings import CCL_ALGORITHMS, PATHS
from linkgauge.plan.model import CaseTable

_OF_KERNELS = ("one_shot", "two_shot")
# MPI libraries have algorithms of their own, by names or numbers that only they know.
_ALGORITHMS = {"kernel": _OF_KERNELS, "ccl": (*CCL_ALGORITHMS, *_OF_KERNELS)}


@functools.cache
def _of_transports() -> dict[str, tuple[str, ...]]:
    core = importlib.import_module("linkgauge._core")
    return {name: tuple(words) for name, words in core.transport_variants()}


def _variants(transport: str, pattern: str) -> tuple[str, ...]:
    return (*PATTERNS[pattern].variants, *_of_transports().get(transport, ()))


def _algorithms(transport: str, _pattern: str) -> tuple[str, ...]:
    return _ALGORITHMS.get(transport, ())


def _is_among(word: str, known: Collection[str]) -> bool:
    return word in known or all(part in known for part in word.split("+"))


def why_unknown(case: Case) -> str:
    """Why no case of this transport and pattern can have its variant, or that of a load; empty where it is known."""
    for job in case.jobs:
        known = _variants(job.transport, job.pattern)
        if job.variant and not _is_among(job.variant, known):
            what = f"{job.transport} has no variant '{job.variant}' of {job.pattern}{nearest(job.variant, known)}"
            return f"{what}: expected one of {', '.join(known)}" if known else f"{what}: leave it out"
    return ""


def check_words(table: CaseTable) -> None:
    """UsageError for a word of a table that nothing here knows, with the nearest one that is known.

    What only another transport or pattern knows is a reason to skip (`why_unknown`, plan/library_settings.py).
    """
    for name, of, joined in (("variant", _variants, True), ("algorithm", _algorithms, False)):
        for word in table.values.get(name, ()):
            if word:
                _check(table, name, str(word), of, joined)
    for word in table.values.get("path", ()):
        if word and word not in PATHS:
            raise UsageError(
                f"{table.where_of('path')}: unknown path '{word}'{nearest(str(word), PATHS)}: expected one of "
                f"{', '.join(PATHS)}, default"
            )


def _check(table: CaseTable, name: str, word: str, of: Callable[[str, str], tuple[str, ...]], joined: bool) -> None:
    transports = [str(one) for one in table.values["transport"]]
    if name == "algorithm" and "mpi" in transports:
        return
    bare = word if joined else word.partition("+")[0].lower()
    every = dict.fromkeys(itertools.chain.from_iterable(itertools.starmap(of, itertools.product(TRANSPORTS, PATTERNS))))
    if _is_among(bare, every):
        return
    asked = itertools.product(transports, map(str, table.values["pattern"]))
    known = list(dict.fromkeys(itertools.chain.from_iterable(itertools.starmap(of, asked)))) or list(every)
    raise UsageError(
        f"{table.where_of(name)}: unknown {name} '{word}'{nearest(word, known)}: expected one of {', '.join(known)}"
    )
