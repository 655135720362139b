"""`linkgauge cite`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from linkgauge.app.command_line import command, run_argument
from linkgauge.app.options import switch, takes


@dataclasses.dataclass(frozen=True)
class Form:
    """In which form references are printed."""

    bibtex: bool = switch("Print BibTeX alone.")


@command("cite", epilog="Example: linkgauge cite runs/2026-01-02 --bibtex > references.bib")
@run_argument()
@takes(Form)
def cite_command(asked: Form, run: Path) -> None:
    """Print what to cite: the program, the papers whose figures the run repeats, and those of its limits."""
    from linkgauge.store.run import load
    from linkgauge.view.cite import as_bibtex, as_text, citations

    found = citations(load(run))
    if not asked.bibtex:
        for one in found:
            click.echo(f"{as_text(one.reference)}\n  used for: {one.used}")
        click.echo()
    click.echo("\n\n".join(as_bibtex(one.reference) for one in found))
