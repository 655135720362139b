"""`linkgauge demo`: a stored run of two H100, for who has no GPU at hand."""

from __future__ import annotations

from pathlib import Path

from linkgauge.app.command_line import PATH, command, option

STORED = "demo"
"""The folder of this package that holds the run: few samples of each case, no names of hosts, users or devices."""


@command("demo", epilog="Example: linkgauge demo")
@option(
    "-o", "--out", type=PATH, default=Path("linkgauge-demo"), metavar="FOLDER",
    help="The folder to write the run and its report to.",
)  # fmt: skip
def demo_command(out: Path) -> None:
    """Show a stored run of two H100 on NVLink: its first screen and its report."""
    from linkgauge.app.presenting import present
    from linkgauge.app.show import print_next
    from linkgauge.run.parent.reporter import Reporter
    from linkgauge.view import screen

    copy_stored(out)
    present(out, Reporter(), report=True)
    print_next(screen.console(), out)


def copy_stored(out: Path) -> None:
    """Write the stored run to a folder, which may hold it already. UsageError where it holds something else."""
    from importlib import resources

    from linkgauge.errors import UsageError
    from linkgauge.files import write_atomically

    stored = resources.files("linkgauge") / STORED
    files = {one.name: one.read_bytes() for one in stored.iterdir() if one.name.endswith((".json", ".parquet"))}
    there = out / "run.json"
    if (out.is_dir() and any(out.iterdir()) and not there.is_file()) or (
        there.is_file() and there.read_bytes() != files["run.json"]
    ):
        raise UsageError(f"'{out}' exists and is not the demo: name another folder with -o")
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(out / name, content)
