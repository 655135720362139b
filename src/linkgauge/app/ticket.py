"""`linkgauge ticket`."""

from __future__ import annotations

from pathlib import Path

import click

from linkgauge.app.command_line import PATH, command, option, run_argument


@command("ticket", epilog="Example: linkgauge ticket runs/2026-01-02 -o ticket.md")
@run_argument()
@option("-o", "--output", type=PATH, metavar="FILE", help="File to write; printed by default.")
def ticket_command(run: Path, output: Path | None) -> None:
    """A page of Markdown: verdict, devices, measured rates and limits, error counters, what was not observed."""
    from linkgauge.collector import uncollected
    from linkgauge.files import write_atomically
    from linkgauge.judge.check import check
    from linkgauge.judge.subjects import load_subjects
    from linkgauge.store.run import load
    from linkgauge.view.answer import FirstLook
    from linkgauge.view.ticket import ticket

    with uncollected():
        subjects = load_subjects([run])
        text = ticket(FirstLook.of(load(run)), subjects[0].facts, check(subjects, ""))
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(output, text.encode())
        click.echo(output)
