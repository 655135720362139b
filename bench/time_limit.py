"""How much of a time limit a run uses: wall time of `linkgauge run --time-limit` over the limit, to the last report.

Each limit several times, one run after the other, on a machine that has nothing else to do. A run with cases left
must end between 85 and 100 % of its limit (docs/reference/plans.md, Order and time limit). Exit status 1 where one
does not.

Example: python bench/time_limit.py --limits 20 60 120 --times 3
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benching import linkgauge, options
from linkgauge.store.run import load

LOW, HIGH = 0.85, 1.0


def ratio_of(limit_s: float, words: Sequence[str], folder: Path) -> tuple[float, int, int, int]:
    """Wall time over the limit of one run, its exit status, its cases that are ok, and those left."""
    out = folder / "run"
    began = time.monotonic()
    done = linkgauge("run", "--time-limit", f"{limit_s:g}s", "--out", str(out), *words)
    took_s = time.monotonic() - began
    if not out.exists():
        raise SystemExit(done.stderr or done.stdout)
    run = load(out)
    return took_s / limit_s, done.returncode, sum(row.status == "ok" for row in run.rows()), int(run.info["left"])


def main() -> int:
    """Print a line a run; whether all kept to their limits."""
    parser = options(__doc__)
    parser.add_argument("--limits", type=float, nargs="+", default=[20, 60, 120], help="in seconds")
    parser.add_argument("--times", type=int, default=3, help="runs of each")
    parser.add_argument("--devices", default="host:2")
    parser.add_argument("words", nargs="*", default=["--full"], help="what else 'linkgauge run' is given; after --")
    asked = parser.parse_args()
    kept = True
    for limit_s in asked.limits:
        for _ in range(asked.times):
            with tempfile.TemporaryDirectory() as folder:
                ratio, status, ok, left = ratio_of(limit_s, [*asked.words, "--devices", asked.devices], Path(folder))
            good = status == 0 and ratio <= HIGH and (ratio >= LOW or not left)
            kept &= good
            print(f"{limit_s:5g} s: {ratio:6.1%}  exit {status}  {ok} ok, {left} left  {'' if good else 'not kept'}",
                  flush=True)  # fmt: skip
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
