"""Real run folders as small, anonymous files, and run folders made of them again, which every rule can read.

An extract is numpy's .npz under xz. `meta` is a JSON text: provenance, devices, system, launches, and each case's
dimensions as far as they differ from the defaults. The other arrays hold samples, case after case: of each case and
rank KEPT measured samples, in stretches of neighbors from the beginning, the middle and the end, with their own
numbers and their own moments. Times are rounded to STEP of the case's median, moments to 100 ns; so a median moves by
less than a tenth of a percent, and an interval is that of KEPT samples.

What names a host, a person, a place or a device is not taken over: only the keys named here are.
"""

from __future__ import annotations

import dataclasses
import io
import json
import lzma
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from linkgauge.model.case import Case
from linkgauge.store import older, schema
from linkgauge.store.run import Run, load

CORPUS = Path(__file__).with_name("corpus")
KEPT, STRETCHES = 30, 3
STEP = 1 / 2048
MOMENT_NS = 100
LAG_NS = 10
_FORMAT = 1

_PATH = re.compile(r"(?<![\w.])/[\w.+-]+(/[\w.+-]+)*")
_INFO = ("format", "format_version", "seed")
_MACHINE = ("cpu", "cores", "available_cores", "memory_bytes", "numa_nodes", "architecture")
_DEVICE = ("ordinal", "kind", "name", "architecture", "multiprocessors", "memory_bytes", "last_level_cache_bytes",
           "attributes", "numa_node")  # fmt: skip
_MPI = ("name", "vendor", "version", "abi")
_LAUNCH_CONTENTS = ("launcher_args", "bind", "ranks", "ranks_per_device", "mode", "peer_access")
_EVIDENCE = ("stopped_by", "throttled", "errors_rose", "chosen", "left_out")
_STATED = ("lanes", "bytes_per_peer", "bytes_total", "status", "converged", "coarse", "oversubscribed", "verified",
           "operations_total")  # fmt: skip
_TOLD = ("errors", "")  # units of observations that are kept where they are not 0
_TOLD_NAMES = ("power_violation", "thermal_violation", "other_processes", "clock_offset", "clock_offset_uncertainty")


def make_extract(run: Run, provenance: Mapping[str, str], kept: int = KEPT, counters: bool = False) -> bytes:
    """Return a run as an extract. `provenance`: machine, date, commit, plan, load, in words.

    `counters`: keep power, and NVLink's counters of bytes, too.
    """
    records = run.cases.to_pylist()
    place = {_identity(record): number for number, record in enumerate(records)}
    columns = _Columns()
    for identity, rows in _rows_of(run).items():
        if identity in place:
            columns.add(place[identity], rows, kept)
    meta = {
        "format": _FORMAT,
        "provenance": dict(provenance),
        "info": _info_of(run.info),
        "launches": [_launch_of(row) for row in run.launches.to_pylist()],
        "cases": [_case_of(record) for record in records],
        "observations": _observations_of(run, place, records, counters),
    }
    text = json.dumps(meta, separators=(",", ":"), sort_keys=True).encode()
    out = io.BytesIO()
    np.savez(out, meta=np.frombuffer(text, np.uint8), **columns.arrays())
    return lzma.compress(out.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def provenance_of(path: Path) -> dict[str, str]:
    """Return what an extract says of where it comes from."""
    return dict(_read(path)[0]["provenance"])


def rebuild(path: Path, folder: Path) -> Run:
    """Write the run folder that an extract stands for, and open it."""
    meta, arrays = _read(path)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "journal").mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(meta["info"]))
    launches = [_whole_launch(launch) for launch in meta["launches"]]
    covered = {"linkgauge_launches": json.dumps([launch["launch"] for launch in launches])}
    records = [_whole_case(case) for case in meta["cases"]]
    tables = {
        "launches": pa.Table.from_pylist(launches, schema=schema.schema("launches")),
        "cases": pa.Table.from_pylist(records, schema=schema.schema("cases")),
        "samples": _samples(records, arrays),
        "observations": _observations(records, meta["observations"]),
    }
    for name, table in tables.items():
        pq.write_table(table.replace_schema_metadata(covered), folder / f"{name}.parquet", write_page_checksum=True)
    return load(folder)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(arrays.pop("meta").tobytes())
    assert meta["format"] == _FORMAT, f"{path}: an extract of another format"
    return meta, arrays


def _identity(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(record[name] for name in schema.IDENTITY)


def _rows_of(run: Run) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Return the measured samples of each row of the cases, without their identity."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in run.samples.to_pylist():
        if row["phase"] == "sample":
            found.setdefault(_identity(row), []).append(row)
    return found


def chosen_samples(count: int, kept: int) -> list[int]:
    """Return which of so many samples are kept: stretches of neighbors from the beginning, the middle and the end."""
    if count <= kept:
        return list(range(count))
    length = kept // STRETCHES
    starts = [round(i * (count - length) / (STRETCHES - 1)) for i in range(STRETCHES)]
    return sorted({start + i for start in starts for i in range(length)})


@dataclasses.dataclass
class _Columns:
    """Samples of all cases, one list a column; times in steps of each case's own unit.

    `cases`: number of the case, its unit in ns, its series, its samples. `series`: rank, lane, clock. `numbers`,
    `moments` and `iterations` have an entry a sample, `lags` and `ns` one a sample and series (sample by sample).
    """

    cases: list[list[int]] = dataclasses.field(default_factory=list)
    series: list[list[int]] = dataclasses.field(default_factory=list)
    numbers: list[int] = dataclasses.field(default_factory=list)
    moments: list[int] = dataclasses.field(default_factory=list)
    scheduled: list[bool] = dataclasses.field(default_factory=list)
    iterations: list[int] = dataclasses.field(default_factory=list)
    lags: list[int] = dataclasses.field(default_factory=list)
    ns: list[int] = dataclasses.field(default_factory=list)

    def add(self, case: int, rows: list[dict[str, Any]], kept: int) -> None:
        series = sorted({(row["rank"], row["lane"]) for row in rows})
        samples: dict[int, dict[tuple[int, int], dict[str, Any]]] = {}
        for row in rows:
            samples.setdefault(row["sample"], {})[row["rank"], row["lane"]] = row
        whole = [number for number in sorted(samples) if len(samples[number]) == len(series)]
        if not whole:
            return
        middle = float(np.median([row["ns"] for row in rows]))
        unit = max(1, int(middle * STEP))
        chosen = [whole[i] for i in chosen_samples(len(whole), kept)]
        self.cases.append([case, unit, len(series), len(chosen)])
        self.series += [[rank, lane, int(samples[whole[0]][rank, lane]["clock"] == "event")] for rank, lane in series]
        for number in chosen:
            mine = [samples[number][key] for key in series]
            begin = max(row["scheduled_ns"] for row in mine)
            self.scheduled.append(begin > 0)
            begin = begin or min(row["start_ns"] for row in mine)
            self.numbers.append(number)
            self.moments.append(round(begin / MOMENT_NS))
            self.iterations.append(mine[0]["iterations"])
            self.lags += [round((row["start_ns"] - begin) / LAG_NS) for row in mine]
            self.ns += [max(1, round(row["ns"] / unit)) for row in mine]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Moments and numbers as differences, which are small; the rest as it is, each in the least type."""
        found = {
            "cases": np.array(self.cases, np.int64).reshape(-1, 4).T,
            "series": np.array(self.series, np.int64).reshape(-1, 3).T,
            "numbers": np.diff(np.array(self.numbers, np.int64), prepend=0),
            "moments": np.diff(np.array(self.moments, np.int64), prepend=0),
            "scheduled": np.array(self.scheduled, np.int64),
            "iterations": np.array(self.iterations, np.int64),
            "lags": np.array(self.lags, np.int64),
            "ns": np.array(self.ns, np.int64),
        }
        return {name: _least(values) for name, values in found.items()}


def _least(values: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    for kind in (np.int8, np.int16, np.int32):
        if values.size == 0 or (values.min() >= np.iinfo(kind).min and values.max() <= np.iinfo(kind).max):
            return values.astype(kind)
    return values


def _samples(records: list[dict[str, Any]], arrays: Mapping[str, npt.NDArray[Any]]) -> pa.Table:
    wide = {name: values.astype(np.int64) for name, values in arrays.items()}
    numbers, moments = np.cumsum(wide["numbers"]), np.cumsum(wide["moments"]) * MOMENT_NS
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    series_at = sample_at = cell_at = 0
    for case, unit, series, count in wide["cases"].T.tolist():
        cells = slice(cell_at, cell_at + series * count)
        samples = slice(sample_at, sample_at + count)
        ranks, lanes, events = wide["series"][:, series_at : series_at + series]

        def by_series(values: npt.NDArray[Any], shape: tuple[int, int] = (count, series)) -> npt.NDArray[Any]:
            return values.reshape(shape).T.ravel()

        begin = np.tile(moments[samples], series)
        held = {
            "case": np.full(series * count, case),
            "rank": np.repeat(ranks, count),
            "lane": np.repeat(lanes, count),
            "event": np.repeat(events, count),
            "sample": np.tile(numbers[samples], series),
            "scheduled_ns": begin * np.tile(wide["scheduled"][samples], series),
            "start_ns": begin + by_series(wide["lags"][cells]) * LAG_NS,
            "ns": by_series(wide["ns"][cells]) * unit,
            "iterations": np.tile(wide["iterations"][samples], series),
        }
        for name, values in held.items():
            parts.setdefault(name, []).append(values)
        series_at, sample_at, cell_at = series_at + series, sample_at + count, cell_at + series * count
    columns = {name: np.concatenate(values) for name, values in parts.items()} if parts else {}
    if not columns:
        return schema.schema("samples").empty_table()
    case = columns.pop("case")
    event = columns.pop("event")
    keys = pa.array([record["case_key"] for record in records])
    columns["case_key"] = pa.DictionaryArray.from_arrays(pa.array(case.astype(np.int32)), keys)
    for name in ("launch", "repeat", "attempt"):
        columns[name] = np.array([record[name] for record in records])[case]
    zeros = pa.array(np.zeros(len(case), np.int32))
    columns["phase"] = pa.DictionaryArray.from_arrays(zeros, pa.array(["sample"]))
    columns["clock"] = pa.DictionaryArray.from_arrays(pa.array(event.astype(np.int32)), pa.array(schema.CLOCK_NAMES))
    wanted = schema.schema("samples")
    arrays_of = {
        field.name: columns[field.name]
        if isinstance(columns[field.name], pa.Array)
        else pa.array(columns[field.name]).cast(field.type)
        for field in wanted
    }
    return pa.table(arrays_of, schema=wanted)


def _case_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the cases as far as it differs from the defaults of its dimensions."""
    usual = _usual()
    found = {name: value for name, value in record.items() if name in usual and value != usual[name]}
    found |= {name: record[name] for name in _STATED}
    evidence = json.loads(record["evidence"] or "{}")
    found["evidence"] = {name: evidence[name] for name in _EVIDENCE if name in evidence}
    found["reason"] = _PATH.sub("PATH", record["reason"] or "")
    return found | {name: record[name] for name in ("launch", "repeat", "attempt")}


def _whole_case(case: Mapping[str, Any]) -> dict[str, Any]:
    whole = {**_usual(), **older.dimensions(case), "evidence": json.dumps(case["evidence"])}
    return {**whole, "case_key": Case.from_dimensions(whole).case_key}


def _usual() -> dict[str, Any]:
    """The defaults of all dimensions, as rows of the cases hold them."""
    case = Case(transport="", pattern="", size=0, size_requested=0, devices=(0, 1))
    names = schema.dimension_types()
    found = {name: value for name, value in case.dimensions().items() if name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def _info_of(info: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: info[name] for name in _INFO if name in info}
    found["machine"] = {name: value for name, value in info.get("machine", {}).items() if name in _MACHINE}
    devices = info.get("devices") or {}
    if isinstance(devices, Mapping):
        infos = [{k: v for k, v in one.items() if k in _DEVICE} for one in devices.get("infos", [])]
        found["devices"] = {name: devices[name] for name in ("kind", "ordinals") if name in devices} | {"infos": infos}
    found["versions"] = {k: v for k, v in info.get("versions", {}).items() if not _PATH.search(str(v))}
    found["requested"] = {"plan": _PATH.sub("PATH", str(info.get("requested", {}).get("plan") or ""))}
    if isinstance(info.get("system"), Mapping):
        found["system"] = _nameless(info["system"]) | {"title": "a recorded run's machine"}
    return found


def _nameless(value: Any) -> Any:
    """A system without the identities of its parts."""
    if isinstance(value, Mapping):
        return {key: _nameless(item) for key, item in value.items() if key not in ("identity", "title")}
    if isinstance(value, list):
        return [_nameless(item) for item in value]
    return value


def _launch_of(row: Mapping[str, Any]) -> dict[str, Any]:
    hosts: dict[str, str] = {}
    ranks = [
        {
            "rank": rank["rank"],
            "host": hosts.setdefault(rank["host"], f"host{len(hosts)}"),
            "memory_node": rank["memory_node"],
            **{name: rank[name] for name in ("device_name", "device_kind", "device_ordinal")},
        }
        for rank in row["ranks"] or []
    ]
    mpi, versions, extra = (json.loads(row[name] or "{}") for name in ("mpi", "versions", "extra"))
    contents = extra.get("launch_key_contents", {})
    return {
        "launch": row["launch"],
        "launch_key": row["launch_key"],
        "mpi": {name: mpi[name] for name in _MPI if name in mpi},
        "versions": {k: v for k, v in versions.items() if not _PATH.search(str(v)) and "file" not in k},
        "clock": json.loads(row["clock"] or "{}"),
        "extra": {"launch_key_contents": {k: contents[k] for k in _LAUNCH_CONTENTS if k in contents}},
        "ranks": ranks,
    }


def _whole_launch(launch: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: json.dumps(launch[name]) for name in ("mpi", "versions", "clock", "extra")}
    none = dict.fromkeys(("device_uuid", "device_serial", "device_pci_address", "device_vbios"), "")
    ranks = [{"pid": 0, "cores": [], **none, **rank} for rank in launch["ranks"]]
    return {**launch, **texts, "env": "{}", "ranks": ranks}


def _observations_of(
    run: Run, place: Mapping[tuple[Any, ...], int], records: list[dict[str, Any]], counters: bool
) -> list[list[Any]]:
    """Return what was observed and is not nothing: [case, rank, subject, name, unit, moment, when, value] a row."""
    pairs: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in run.observations.to_pylist():
        case = place.get(_identity(row))
        if case is not None and row["value"] is not None:
            pairs.setdefault((case, row["rank"], row["subject"], row["name"], row["unit"]), []).append(row)
    found = []
    for (case, rank, subject, name, unit), rows in pairs.items():
        values = {row["value"] for row in rows}
        told = name in _TOLD_NAMES or unit in _TOLD
        linked = name.startswith("nvlink_data") and _told_by_counters(records[case])
        counted = counters and (linked or name == "power")
        if counted or (told and (len(values) > 1 or (unit == "" and values != {0.0}))):
            for row in rows:
                found.append([case, rank, subject, name, unit, row["moment"], row["when_ns"], row["value"]])
    return found


def _told_by_counters(record: Mapping[str, Any]) -> bool:
    """Whether a case's bytes are worth keeping: it moves many, or none over the links between devices."""
    return bool(record["size"] >= 1 << 20 or len(record["devices"]) == 1 or record["transport"] == "staging")


def _observations(records: list[dict[str, Any]], kept: list[list[Any]]) -> pa.Table:
    names = ("rank", "subject", "name", "unit", "moment", "when_ns", "value")
    rows = [
        {**{name: records[case][name] for name in schema.IDENTITY}, **dict(zip(names, values, strict=True))}
        for case, *values in kept
    ]
    return pa.Table.from_pylist(rows, schema=schema.schema("observations"))
