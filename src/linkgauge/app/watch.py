"""`linkgauge watch`: the same cases in fresh launches over hours, each round a repeat of one ordinary run."""

from __future__ import annotations

import math
import os
from typing import Any

from linkgauge.app.command_line import command, option, taken_over
from linkgauge.app.run import RUN_EXITS, Asked, refuse_ranks, run_command, typed_dimensions
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import UsageError
from linkgauge.model.quantity import parse_duration
from linkgauge.plan.launches import MOST_REPEATS

_NOT_OF_A_WATCH = (
    "from_run", "cases", "resume", "retry", "force", "repeat", "time_limit", "peers", "library_choices", "report",
    "dry_run", "form", "json", "full", "quiet", "verbose",
)  # fmt: skip


@command(
    "watch", exits=RUN_EXITS, epilog="Example: linkgauge watch --every 5m --for 8h --pattern allreduce --size 64MiB"
)
@option("--every", default="5m", metavar="TIME", help="Time from the start of one round to the next.")
@option("--for", "for_", default="24h", metavar="TIME", help="Time to continue; Ctrl-C ends it earlier and keeps all.")
@verbosity_options("Print each case as it ends.")
def watch_command(every: str, for_: str, **words: Any) -> int:
    """Measure the same cases again and again over hours, into one run folder.

    Takes the options of 'linkgauge run' (--help-all names them). Without any it repeats the plan quick. 'linkgauge run
    --resume RUN' resumes a watch that was interrupted.
    """
    refuse_ranks(os.environ)
    every_s, whole_s = (parse_duration(text) / 1e9 for text in (every, for_))
    rounds = math.floor(whole_s / every_s) + 1 if every_s > 0 else 0
    if every_s < 1 or not 2 <= rounds <= MOST_REPEATS:
        raise UsageError(
            f"--every {every} --for {for_}: expected 2 to {MOST_REPEATS} rounds, at least a second from one to the next"
        )
    dimensions = typed_dimensions(words)
    if not (words["plan"] or dimensions):
        words["quick"] = True
    asked = Asked(**words, dimensions=dimensions, repeat=rounds, every_s=every_s)
    asked.check()
    from linkgauge.app.new_run import new_run

    return new_run(asked)


watch_command.params += taken_over("run", (one for one in run_command.params if one.name not in _NOT_OF_A_WATCH))
