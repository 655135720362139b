"""`linkgauge watch`: the same cases in fresh launches over hours, each round a repeat of one ordinary run."""

from __future__ import annotations

import dataclasses
import math
import os

from linkgauge.app.command_line import command, option
from linkgauge.app.options import takes
from linkgauge.app.request import EarlierRun, Presentation, Request, Rounds
from linkgauge.app.run import RUN_EXITS, refuse_ranks
from linkgauge.app.verbosity import verbosity_options
from linkgauge.errors import UsageError
from linkgauge.model.quantity import parse_duration
from linkgauge.plan.launches import MOST_REPEATS


@command(
    "watch", exits=RUN_EXITS, epilog="Example: linkgauge watch --every 5m --for 8h --pattern allreduce --size 64MiB"
)
@option("--every", default="5m", metavar="TIME", help="Time from the start of one round to the next.")
@option("--for", "for_", default="24h", metavar="TIME", help="Time to continue; Ctrl-C ends it earlier and keeps all.")
@verbosity_options("Print each case as it ends.")
@takes(
    Request, of="run", without=(EarlierRun, Rounds, Presentation, "full", "library_choices", "time_limit", "peers")
)  # fmt: skip
def watch_command(request: Request, every: str, for_: str) -> int:
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
    request = dataclasses.replace(request.gathered(), rounds=Rounds(rounds, every_s))
    if not (request.choice.plan or request.dimensions):
        request = dataclasses.replace(request, choice=dataclasses.replace(request.choice, quick=True))
    request.check()
    from linkgauge.app.new_run import new_run

    return new_run(request)
