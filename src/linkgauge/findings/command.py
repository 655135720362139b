"""The commands that judge: findings, compare, check, baseline, advise, reproduce. Thin; heavy imports wait for use."""

from __future__ import annotations

import dataclasses
import json as json_module
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from linkgauge.errors import UsageError

app = typer.Typer()

_System = Annotated[
    str,
    typer.Option("--system", metavar="NAME|FILE", help="Judge by this system's wires, not those that the run stored."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Limit = Annotated[int, typer.Option(min=1, help="Rows to show of a long table.")]


@app.command("findings", help="What is odd in a run, why, and what to do.")
def findings_command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    system: _System = "",
    notes: Annotated[bool, typer.Option(help="Show notes too, not only faults and losses.")] = True,
    evidence: Annotated[int, typer.Option(min=0, help="Lines of evidence of each finding.")] = 3,
    json: _Json = False,
    rules: Annotated[bool, typer.Option("--rules", help="Name the rules that were asked as well.")] = False,
) -> None:
    """Print the findings of a run, the surest and costliest first."""
    from linkgauge.findings import present
    from linkgauge.findings.rules import RULES, apply
    from linkgauge.findings.subjects import load_subjects, uncollected

    with uncollected():
        found = apply(load_subjects([run], system)[0].facts)
    if json:
        typer.echo(json_module.dumps([finding.as_json() for finding in found], indent=1))
        return
    out = present.console()
    present.print_findings(out, found, notes, evidence)
    if rules:
        out.print("Rules asked: " + ", ".join(rule.name for rule in RULES), markup=False)


@app.command("compare", help="What changed between two runs: better, worse, same, or cannot tell.")
def compare_command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="A B...", help="Run folders; each further one is compared with A.")
    ],
    margin: Annotated[float, typer.Option(min=0.0, help="Smallest shift that counts, as a share.")] = 0.01,
    level: Annotated[float, typer.Option(min=1e-6, max=0.5, help="False-discovery rate over all cases.")] = 0.05,
    dependence: Annotated[
        str, typer.Option(help="positive (Benjamini and Hochberg) or any (Benjamini and Yekutieli).")
    ] = "positive",
    bootstrap: Annotated[
        bool, typer.Option("--bootstrap", help="Show the hierarchical bootstrap's interval too.")
    ] = False,
    limit: _Limit = 40,
    json: _Json = False,
) -> int:
    """Compare runs case by case, and pooled by device, pair and transport.

    Exit status 3 where they have no case alike.
    """
    if len(runs) < 2:
        raise UsageError("compare needs two run folders or more: linkgauge compare BEFORE AFTER")
    if dependence not in ("positive", "any"):
        raise UsageError(f"unknown dependence '{dependence}': expected positive or any")
    from linkgauge.findings import present
    from linkgauge.findings.compare_runs import compare_runs
    from linkgauge.findings.subjects import uncollected
    from linkgauge.store.run import load

    first = load(runs[0])
    plain = []
    compared = 0
    out = None if json else present.console()
    for path in runs[1:]:
        kind = cast(Literal["positive", "any"], dependence)
        with uncollected():
            found = compare_runs(first, load(path), level, margin, kind, bootstrap)
        compared += len(found.cases) + len(found.failed)
        if out is None:
            plain.append({"first": str(runs[0]), "second": str(path), **dataclasses.asdict(found)})
        else:
            present.print_comparison(out, found, (str(runs[0]), str(path)), limit)
    if json:
        typer.echo(json_module.dumps(plain, indent=1))
    return 0 if compared else 3


@app.command(
    "check", help="Runs against a baseline, a system or rules: exit 0 all hold, 1 falls short, 3 could not judge."
)
def check_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, one or many nodes' of them.")],
    against: Annotated[
        str,
        typer.Option(
            metavar="BASELINE|SYSTEM|RULES.toml", help="What to judge by. Four runs or more also judge each other."
        ),
    ] = "",
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Against a system: how far below the share seen is still accepted.")
    ] = 0.05,
    margin: Annotated[
        float, typer.Option(min=0.0, help="Against a baseline: smallest loss that counts, as a share.")
    ] = 0.01,
    findings: Annotated[bool, typer.Option(help="Let faults among the findings count.")] = True,
    system: _System = "",
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a JUnit file.")] = None,
    prometheus: Annotated[Path | None, typer.Option(metavar="FILE", help="Write Prometheus' textfile format.")] = None,
    limit: _Limit = 40,
    json: _Json = False,
) -> int:
    """Judge runs, name what falls short worst first, and return the exit status."""
    from linkgauge.findings import outputs, present
    from linkgauge.findings.check import check
    from linkgauge.findings.subjects import load_subjects, uncollected

    with uncollected():
        result = check(load_subjects(runs, system), against, tolerance=tolerance, margin=margin, with_findings=findings)
    if junit is not None:
        outputs.write(junit, outputs.as_junit(result.checked))
    if prometheus is not None:
        outputs.write(prometheus, outputs.as_prometheus(result.checked, result.findings))
    if json:
        typer.echo(outputs.as_json(result.checked, result.findings))
    else:
        present.print_check(present.console(), result.checked, result.standings, limit)
    return result.checked.exit_status


@app.command("baseline", help="Make a baseline from five runs or more, for check --against.")
def baseline_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs of the same plan on the same machine.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write it.")],
) -> None:
    """Write a baseline file: what this machine measures, run by run."""
    from linkgauge.findings.baseline import make_baseline
    from linkgauge.findings.outputs import write
    from linkgauge.findings.subjects import load_subjects, uncollected

    with uncollected():
        made = make_baseline(load_subjects(runs))
    write(out, json_module.dumps(made, indent=1) + "\n")
    left = f"; {made['left_out']} cases that fewer than five runs share were left out" if made["left_out"] else ""
    typer.echo(f"{out}: {len(made['cases'])} cases of {len(runs)} runs{left}")


@app.command("advise", help="Which transport for which pattern, devices and size, and the settings to export.")
def advise_command(
    run: Annotated[Path, typer.Argument(help="A run folder with several transports, paths or algorithms.")],
    pattern: Annotated[str, typer.Option(help="Patterns, separated by commas; all by default.")] = "",
    json: _Json = False,
) -> int:
    """Print the best mechanism by range of sizes, with its margin; says where it does not matter."""
    from linkgauge.findings import present
    from linkgauge.findings.advise import advise
    from linkgauge.findings.subjects import load_subjects

    found = advise(load_subjects([run])[0].facts)
    if pattern:
        wanted = set(pattern.split(","))
        found = [one for one in found if one.task.split()[0] in wanted]
    if json:
        typer.echo(json_module.dumps([dataclasses.asdict(one) for one in found], indent=1))
    elif found:
        present.print_advice(present.console(), found)
    else:
        typer.echo("No task of this run was measured by two transports or more: nothing to choose between.")
    return 0 if found else 3


@app.command("reproduce", help="A paper's figures, measured here; without a figure, the list of them.")
def reproduce_command(
    figure: Annotated[
        str, typer.Argument(metavar="[PAPER[:FIGURE]]", help="Such as sc24, sc24:3, openpower:table2.")
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="The run folder to make.")] = None,
    of_run: Annotated[
        Path | None,
        typer.Option("--of", metavar="RUN", help="Do not measure: show this run beside the paper's numbers."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan's launches and cases; measure nothing.")
    ] = False,
    system: Annotated[
        str, typer.Option("--system", metavar="NAME|FILE", help="With --dry-run: for this machine.")
    ] = "",
    list_only: Annotated[bool, typer.Option("--list", help="List, even where one figure is named.")] = False,
) -> int:
    """List the papers' figures, or measure one with the paper's sizes, warm-up and counts and show both numbers."""
    from linkgauge.findings import present, reproduce

    found = reproduce.chosen(figure)
    screen = present.console()
    if list_only or len(found) > 1:
        present.print_figures(screen, found, reproduce.left_out())
        return 0
    one = found[0]
    if of_run is None:
        from linkgauge.cli import run_command
        from linkgauge.run.devices import find_devices

        extra = ["--dry-run"] if dry_run else []
        extra += ["--system", system] if system else []
        if out is None and not dry_run:
            from linkgauge.run.measure import default_out

            out = default_out(one.plan)
        extra += ["--out", str(out)] if out is not None else []
        if system and dry_run:
            from linkgauge.system import catalog

            count = len(catalog.load(system).devices)
        else:
            count = find_devices("auto").count
        status = run_command(reproduce.run_arguments(one, count, extra))
        if dry_run or status not in (0, 4) or out is None:
            present.print_numbers(screen, one)
            return status
        of_run = out
    else:
        status = 0
    from linkgauge.store.run import load

    loaded = load(of_run)
    present.print_reproduced(screen, one, reproduce.measured(loaded, one))
    present.print_pictures(screen, reproduce.pictures(loaded, one, loaded.path))
    return status
