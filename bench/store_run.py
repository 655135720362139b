"""Store a run folder for the documentation: fewer samples, no name of a host or path, one small file.

    .venv/bin/python bench/store_run.py RUN docs/_runs/NAME.tar.xz [--kept 40]

What names a device is replaced by its ordinal. docs/_site/outputs.py reads the file.
"""

from __future__ import annotations

import json
import re
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benching import options

# isort: split
from run_extracts import chosen_samples

# Folders of whoever measured.
_PATH = re.compile(r"/(?:tmp|home|root|work|mnt|scratch)/[^\s\"',:]*")
_WARMUP_KEPT = 2
_IDENTITY = ("case_key", "launch", "repeat", "attempt", "rank", "lane", "phase")


def thinned(samples: pa.Table, kept: int) -> pa.Table:
    """Of each rank of each case so many samples: stretches from the beginning, the middle and the end."""
    frame = samples.select(_IDENTITY).to_pandas()
    chosen: list[int] = []
    for identity, rows in frame.groupby(list(_IDENTITY), sort=False, observed=True):
        at = rows.index.to_numpy()
        chosen += at[:_WARMUP_KEPT].tolist() if identity[-1] == "warmup" else at[chosen_samples(len(at), kept)].tolist()
    return samples.take(np.sort(np.array(chosen, dtype=np.int64)))


def rounded(table: pa.Table, name: str, step: int) -> pa.Table:
    """The table with a column of moments in whole steps: the clock's last digits are most of a file."""
    moments = table[name].to_numpy() // step * step
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), pa.array(moments))


def hidden(value: Any, hosts: dict[str, str]) -> Any:
    """A JSON value, or a table's, without paths and names of hosts."""
    if isinstance(value, dict):
        return {key: hidden(one, hosts) for key, one in value.items()}
    if isinstance(value, list):
        return [hidden(one, hosts) for one in value]
    if not isinstance(value, str):
        return value
    if value in hosts:
        return hosts[value]
    return _PATH.sub(lambda match: f"/path/{Path(match[0]).name}", value)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--kept", type=int, default=40, help="samples kept of a case and rank")
    asked = parser.parse_args()
    name = asked.file.name.removesuffix(".tar.xz")
    launches = pq.read_table(asked.run / "launches.parquet")
    names = dict.fromkeys(rank["host"] for row in launches.to_pylist() for rank in row["ranks"] or [])
    hosts = {host: f"node{number}" for number, host in enumerate(names)}
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / name
        for path in sorted(asked.run.rglob("*")):
            target = out / path.relative_to(asked.run)
            if path.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif path.suffix == ".json":
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(json.dumps(hidden(json.loads(path.read_text()), hosts)))
            elif path.suffix == ".txt":
                target.write_text(str(hidden(path.read_text(), hosts)))
            elif path.suffix == ".parquet":
                target.parent.mkdir(parents=True, exist_ok=True)
                table = pq.read_table(path)
                if path.parent.name == "samples":
                    table = rounded(rounded(thinned(table, asked.kept), "start_ns", 100), "scheduled_ns", 100)
                elif path.parent.name == "observations":
                    table = rounded(table, "when_ns", 1_000_000)
                else:
                    rows = hidden(table.to_pylist(), hosts)
                    table = pa.Table.from_pylist(rows, schema=table.schema)
                whole = [field.name for field in table.schema if pa.types.is_integer(field.type)]
                # The archive is compressed as a whole, which does better than each page alone.
                pq.write_table(
                    table, target, compression="none", write_page_checksum=True,
                    use_dictionary=[field.name for field in table.schema if field.name not in whole],
                    column_encoding=dict.fromkeys(whole, "DELTA_BINARY_PACKED"),
                )  # fmt: skip
        with tarfile.open(asked.file, "w:xz", preset=9) as archive:
            archive.add(out, name, filter=_nobody)
    print(f"{asked.file}: {asked.file.stat().st_size / 1024:.0f} KiB")


def _nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
