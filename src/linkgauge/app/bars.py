"""`linkgauge bars`: whether other people's thresholds fit the machines that they are for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from linkgauge.app.command_line import PATH, argument, command
from linkgauge.app.options import takes, value
from linkgauge.app.output import TABLE, form_of_output, print_data
from linkgauge.errors import Exit


@dataclasses.dataclass(frozen=True)
class Bars:
    """Which machine the bars are for, and the form of the answer."""

    system: str = value("NAME|FILE", "System that the bars are for, where the file does not name it.", "")
    form: str = form_of_output()


@command(
    "bars",
    exits=(Exit.FAIL, Exit.UNKNOWN),
    help="Judge a file of thresholds: impossible, too high, toothless, about right or unknown.",
    epilog="Example: linkgauge bars nd96isr_h200_v5.conf",
)
@argument("file", metavar="FILE", type=PATH, help="AzNHC, OCI, AWS, GCP, AICR, CVS, SuperBench, dcgmi or CSV file.")
@takes(Bars)
def bars_command(asked: Bars, file: Path) -> int:
    """Judge each bar of a file by what the links of its machine allow, and by what was measured there."""
    from linkgauge.exchange.bar_files import read_bars
    from linkgauge.judge.bars import FITS, JudgedBar, judge_bars

    judged = judge_bars(read_bars(file), asked.system)
    if asked.form != TABLE:
        print_data([dataclasses.asdict(one) for one in judged], asked.form, of=JudgedBar)
    else:
        from linkgauge.view.bars import print_bars
        from linkgauge.view.screen import console

        print_bars(console(), judged)
    wrong = {one.fit for one in judged}
    if wrong & ({*FITS} - {"about right", "unknown"}):
        return Exit.FAIL
    return Exit.UNKNOWN if wrong == {"unknown"} else Exit.DONE
