"""Make a small anonymous extract of a run folder, for the corpus of tests/findings.

    PYTHONPATH=src python bench/extract_run.py RUN NAME --machine "4 H200" --load quiet --commit HASH [--kept 30]

Writes tests/findings/corpus/NAME.xz, asserts that it can be read again, and says what `findings` says of both. The date
and the version are the run's own. tests/findings/corpus/README.md says what belongs there.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benching import ROOT, options

# isort: split
from run_extracts import CORPUS, KEPT, make_extract, rebuild

from linkgauge.findings import rules
from linkgauge.findings.read import facts_of
from linkgauge.store.run import load


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--machine", required=True, help="what it ran on, in words that name nobody")
    parser.add_argument("--load", required=True, help="what else ran there")
    parser.add_argument("--commit", required=True, help="the commit of Linkgauge that measured")
    parser.add_argument("--plan", default="default")
    parser.add_argument("--true", default="", help="rules whose faults and losses are true of this run, by spaces")
    parser.add_argument("--kept", type=int, default=KEPT, help="samples kept of a case and rank")
    parser.add_argument("--counters", action="store_true", help="keep NVLink's counters of bytes too")
    asked = parser.parse_args()
    run = load(asked.run)
    words = {"date": str(run.info.get("start", ""))[:10], "commit": asked.commit}
    words |= {"machine": asked.machine, "load": asked.load, "plan": asked.plan}
    words |= {"true": asked.true} if asked.true else {}
    out = CORPUS / f"{asked.name}.xz"
    out.parent.mkdir(exist_ok=True)
    out.write_bytes(make_extract(run, words, asked.kept, asked.counters))
    with tempfile.TemporaryDirectory() as scratch:
        again = rebuild(out, Path(scratch) / asked.name)
        for what, one in (("run", run), ("extract", again)):
            alarms = [f for f in rules.apply(facts_of(one)) if f.severity != "note"]
            told = "; ".join(f"{f.severity} {f.rule} [{f.subject}] {f.confidence:.2f}" for f in alarms)
            print(f"{what}: {one.cases.num_rows} cases, {one.samples.num_rows} samples, alarms: {told or 'none'}")
    print(f"{out.relative_to(ROOT)}: {out.stat().st_size / 1024:.1f} KiB")


if __name__ == "__main__":
    main()
