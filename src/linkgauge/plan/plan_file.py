"""Plan files: TOML with `[[case]]` and `[[launch]]` tables, checked against the table of dimensions.

A plan from a stranger must do no harm, so a file names MPI libraries only as `linkgauge list mpi` shows them, sets only
tuning variables (`safe_variable`), and holds no launcher arguments: paths, arguments and other variables are the
command line's. Nothing here raises anything but `UsageError`, each naming file, table and key.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from linkgauge.errors import UsageError, nearest
from linkgauge.files import read_file
from linkgauge.model import quantity
from linkgauge.model.case import DIMENSIONS
from linkgauge.model.dimension import Value
from linkgauge.model.patterns import PATTERNS
from linkgauge.plan.curves import FULL, Until
from linkgauge.plan.model import (
    BINDINGS,
    CHOICES,
    KINDS,
    PAIRS,
    THREAD_LEVELS,
    USUAL_THREAD_LEVEL,
    CaseTable,
    LaunchTable,
    Plan,
    side_by_side,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_FILE_BYTES = 1 << 20
PLAN_KEYS = ("name", "description", "repeat", "seed", "time_limit", "memory_limit", "library_choices", "case", "launch")
_CASE_KEYS = (*DIMENSIONS, "devices", "pairs", "choose", "concurrent_pairs", "launch", "until_gain", "until_time", "on")
_LAUNCH_KEYS = ("name", "mpi", "env", "bind", "threads", "peer_access", "thread_level")

_TUNING_PREFIXES = (
    "NCCL_", "RCCL_", "UCX_", "UCC_", "MPICH_", "MPIR_CVAR_", "FI_", "PSM2_", "HSA_", "HIP_", "GPU_", "ROCR_", "CUDA_",
    "MV2_", "I_MPI_", "GLEX_", "MLX5_", "IBV_", "OMP_", "OMPI_MCA_btl", "OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_coll",
    "OMPI_MCA_osc", "OMPI_MCA_smsc", "OMPI_MCA_accelerator", "OMPI_MCA_opal_common_ucx", "OMPI_MCA_mpi_",
)  # fmt: skip
# Words by which a tuning variable names a file, a plug-in or a program that would be loaded or run, or whom to talk to.
_LOADING_WORDS = (
    "PLUGIN", "PATH", "DIR", "LIB", "FILE", "AGENT", "INJECT", "TOOL", "CONF", "PRELOAD", "PREFIX", "COMPONENT", "RSH",
    "EXEC", "COMMAND", "DEBUGGER", "HOOK", "OUTPUT", "XML", "ROOT", "COMM_ID", "SERVER",
)  # fmt: skip


def safe_variable(name: str, value: str) -> bool:
    """Whether a plan or run folder from a stranger may set this: a known library's tuning variable, no path in it."""
    return (
        re.fullmatch(r"[A-Z][A-Z0-9_a-z]*", name) is not None
        and name.startswith(_TUNING_PREFIXES)
        and not any(word in name.upper().replace("DIRECT", "") for word in _LOADING_WORDS)
        and "/" not in value
        and value.isprintable()
    )


def read_plan(path: Path) -> Plan:
    """The plan of a TOML file; UsageError naming the file, and the table and key that are wrong."""
    return plan_of_tables(read_toml(path), str(path), path.stem)


def read_toml(path: Path) -> dict[str, Any]:
    """What a file with plans holds; UsageError naming it where it cannot be read."""
    try:
        text = read_file(path, MAX_FILE_BYTES, "a plan's TOML").decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8 text: expected a plan's TOML") from None
    return _toml(text, str(path))


def parse_plan(text: str, source: str, default_name: str) -> Plan:
    """The plan of TOML text; `source` begins every error."""
    return plan_of_tables(_toml(text, source), source, default_name)


def _toml(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise UsageError(f"{source}: not valid TOML: {error or 'nested too deeply'}") from None


def plan_of_tables(document: Mapping[str, Any], file: str, default_name: str, inside: str = "") -> Plan:
    """The plan of a file's TOML, or of a table `inside` it, such as `figure.12`; both are named in every error."""
    source, prefix = (f"{file}: [{inside}]", f"{inside}.") if inside else (file, "")
    check_keys(document, PLAN_KEYS, source)
    launches = tuple(
        _launch_table(table, f"{file}: [[{prefix}launch]] {number}")
        for number, table in enumerate(_tables(document, "launch", source), 1)
    )
    cases = tuple(
        _case_table(table, f"{file}: [[{prefix}case]] {number}")
        for number, table in enumerate(_tables(document, "case", source), 1)
    )
    if not cases:
        raise UsageError(f"{source}: no [[case]] table: expected at least one")
    names = [launch.name for launch in launches]
    for table in cases:
        for wanted in table.launch:
            if wanted not in names:
                raise UsageError(
                    f"{table.where}: launch '{wanted}' is not in the plan: expected one of {', '.join(names) or 'none'}"
                )
    plan = Plan(name=_text(document, "name", default_name, source), cases=cases)
    return Plan(
        name=plan.name,
        cases=cases,
        launches=launches or plan.launches,
        description=_text(document, "description", "", source),
        repeat=_whole(document, "repeat", 1, 1, 10_000, source),
        seed=_whole(document, "seed", 1, 0, 2**63 - 1, source),
        time_limit_ns=_parsed(document, "time_limit", quantity.parse_duration, None, source),
        memory_limit=_parsed(document, "memory_limit", quantity.parse_share, plan.memory_limit, source),
        library_choices=_yes_no(document, "library_choices", False, source),
    )


def check_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """UsageError for a key that `known` lacks."""
    for key in table:
        if key not in known:
            raise UsageError(
                f"{where}: unknown key '{key}'{nearest(key, list(known))}: expected one of {', '.join(known)}"
            )


def _tables(document: Mapping[str, Any], key: str, source: str) -> list[Mapping[str, Any]]:
    tables = document.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{source}: '{key}' is of the wrong type: expected [[{key}]] tables")
    return tables


def _text(table: Mapping[str, Any], key: str, default: str, where: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise UsageError(f"{where}: '{key}' is of the wrong type ({type(value).__name__}): expected text")
    return value


def _whole(table: Mapping[str, Any], key: str, default: int, low: int, high: int, where: str) -> int:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"{where}: '{key}' is wrong ({value!r}): expected a whole number from {low} to {high}")
    return value


def _yes_no(table: Mapping[str, Any], key: str, default: bool, where: str) -> bool:
    value = table.get(key, default)
    if not isinstance(value, bool):
        raise UsageError(f"{where}: '{key}' is wrong ({value!r}): expected true or false")
    return value


def _parsed(table: Mapping[str, Any], key: str, parse: Any, default: Any, where: str) -> Any:
    if key not in table:
        return default
    if not isinstance(table[key], str):
        raise UsageError(f"{where}: '{key}' is of the wrong type ({type(table[key]).__name__}): expected text")
    try:
        return parse(table[key])
    except UsageError as error:
        raise UsageError(f"{where}: '{key}': {error}") from None


def _case_table(table: Mapping[str, Any], where: str) -> CaseTable:
    check_keys(table, _CASE_KEYS, where)
    values: dict[str, tuple[Value, ...]] = {"transport": DIMENSIONS["transport"].from_toml("all", where)}
    for name, dimension in DIMENSIONS.items():
        if name == "size" and table.get(name) == "full":
            values[name] = (FULL,)
        elif name in table:
            values[name] = dimension.from_toml(table[name], f"{where}: '{name}'")
    if "pattern" not in values:
        raise UsageError(f"{where}: no 'pattern': expected {DIMENSIONS['pattern'].expected}")
    if "size" not in values:
        if not all(PATTERNS[str(name)].size_means == "-" for name in values["pattern"]):
            raise UsageError(f"{where}: no 'size': expected {DIMENSIONS['size'].expected}")
        values["size"] = (8,)
    made = CaseTable(
        values,
        devices=_devices(table, where),
        choose=_one_of(table, "choose", CHOICES, where),
        pairs=_one_of(table, "pairs", PAIRS, where),
        launch=_names(table, "launch", where),
        until=_until(table, where),
        on=_one_of(table, "on", KINDS, where),
        where=where,
    )
    return side_by_side(made) if _yes_no(table, "concurrent_pairs", False, where) else made


def _until(table: Mapping[str, Any], where: str) -> Until | None:
    if "until_gain" not in table and "until_time" not in table:
        return None
    if table.get("size") == "full":
        raise UsageError(f"{where}: 'size' is full, which is one size: leave out until_gain and until_time")
    return Until(
        gain=_parsed(table, "until_gain", quantity.parse_percentage, 0.0, where),
        time_ns=_parsed(table, "until_time", quantity.parse_duration, 0, where),
    )


def _one_of(table: Mapping[str, Any], key: str, words: tuple[str, ...], where: str) -> str:
    word = _text(table, key, words[0], where)
    if word not in words:
        raise UsageError(f"{where}: '{key}': unknown value '{word}': expected one of {', '.join(words)}")
    return word


def _devices(table: Mapping[str, Any], where: str) -> tuple[tuple[int, ...], ...]:
    value = table.get("devices", [])
    subsets = value if isinstance(value, list) and any(isinstance(item, list) for item in value) else [value]
    wrong = UsageError(f"{where}: 'devices' is wrong ({value!r}): expected ordinals [0, 1] or subsets [[0, 1], [0, 2]]")
    checked = []
    for subset in subsets:
        if not isinstance(subset, list):
            raise wrong
        if any(isinstance(item, bool) or not isinstance(item, int) or item < 0 for item in subset):
            raise wrong
        checked.append(tuple(subset))
    return tuple(subset for subset in checked if subset)


def _names(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = table.get(key, [])
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f"{where}: '{key}' is wrong ({value!r}): expected names of [[launch]] tables")
    return tuple(names)


def _launch_table(table: Mapping[str, Any], where: str) -> LaunchTable:
    check_keys(table, _LAUNCH_KEYS, where)
    mpi = _text(table, "mpi", "", where)
    if "/" in mpi:
        raise UsageError(
            f"{where}: 'mpi' is a path ('{mpi}'): expected a name of 'linkgauge list mpi'; give paths with --mpi"
        )
    bind = _text(table, "bind", "nearest", where)
    if bind not in BINDINGS and re.fullmatch(r"[0-9,:-]+", bind) is None:
        raise UsageError(f"{where}: 'bind': unknown value '{bind}': expected nearest, none or cores by rank, 0-3:4-7")
    thread_level = _text(table, "thread_level", USUAL_THREAD_LEVEL, where)
    if thread_level not in THREAD_LEVELS:
        raise UsageError(
            f"{where}: 'thread_level': unknown value '{thread_level}': expected one of {', '.join(THREAD_LEVELS)}"
        )
    return LaunchTable(
        name=_text(table, "name", "", where),
        mpi=mpi,
        env=_environment(table.get("env", {}), where),
        bind=bind,
        threads=_yes_no(table, "threads", False, where),
        peer_access=_yes_no(table, "peer_access", True, where),
        thread_level=thread_level,
    )


def _environment(table: object, where: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(table, dict):
        raise UsageError(f"{where}: 'env' is of the wrong type: expected a table of variables")
    checked: dict[str, tuple[str, ...]] = {}
    for name, value in table.items():
        items = value if isinstance(value, list) else [value]
        if not items or not all(isinstance(item, (str, int)) and not isinstance(item, bool) for item in items):
            raise UsageError(f"{where}: env '{name}' is wrong ({value!r}): expected text, or a list of texts")
        texts = tuple(str(item) for item in items)
        if not all(safe_variable(name, text) for text in texts):
            raise UsageError(
                f"{where}: env '{name}' is not a tuning variable of a communication library: "
                f"a plan file may set only those, without paths; give others with --env"
            )
        checked[name] = texts
    return checked
