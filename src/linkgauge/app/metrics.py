"""`linkgauge metrics`: runs as OpenMetrics, in a file of a textfile collector or by HTTP."""

from __future__ import annotations

import dataclasses
import http.server
import socket
from pathlib import Path

import click

from linkgauge.app.command_line import PATH, argument, command
from linkgauge.app.options import takes, value
from linkgauge.errors import UsageError

_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclasses.dataclass(frozen=True)
class Given:
    """Where the metrics go."""

    output: Path | None = value(
        "FILE", "File to write, as of a textfile collector; printed by default.", flags="-o --out"
    )
    listen: str | None = value("[ADDRESS:]PORT", "Serve them at /metrics; ADDRESS is 127.0.0.1 unless given.")


@command("metrics", epilog="Example: linkgauge metrics runs/today -o /var/lib/node_exporter/linkgauge.prom")
@argument("runs", metavar="RUN...", type=PATH, nargs=-1, required=True, help="Run folders.")
@takes(Given)
def metrics_command(asked: Given, runs: tuple[Path, ...]) -> None:
    """Write runs as OpenMetrics: pairs, collectives, host links, findings and times, by host, UUID and run."""
    from linkgauge.files import write_atomically

    if asked.listen is not None:
        if asked.output is not None:
            raise UsageError("--listen serves what -o writes: give one of them")
        _serve(asked.listen, runs)
    elif asked.output is None:
        click.echo(metrics_of(runs), nl=False)
    else:
        write_atomically(asked.output, metrics_of(runs).encode())
        click.echo(asked.output)


def metrics_of(runs: tuple[Path, ...]) -> str:
    """Return the metrics of run folders."""
    from linkgauge.collector import uncollected
    from linkgauge.findings.rules import apply
    from linkgauge.judge.metrics import open_metrics
    from linkgauge.judge.subjects import load_subjects
    from linkgauge.view.unseen import looked_at, not_observed

    with uncollected():
        found = []
        for one in load_subjects(runs):
            observed = {seen.name for seen in one.facts.observations}
            lacking = list(not_observed(one.facts.launches, observed, looked_at(one.facts.info)))
            found.append((one, apply(one.facts), len(lacking)))
        return open_metrics(found)


def server_for(listen: str, runs: tuple[Path, ...]) -> http.server.HTTPServer:
    """Return a server of the runs' metrics, bound. UsageError for an address that cannot be bound to."""
    address, _, port = listen.rpartition(":")
    address = address.strip("[]") or "127.0.0.1"
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen '{listen}': expected a port from 0 to 65535, or ADDRESS:PORT")

    seen: tuple[frozenset[tuple[str, int, int]], bytes] = (frozenset(), b"")

    def content() -> bytes:
        """Return the metrics; what is scraped every few seconds must not read and judge unchanged runs each time."""
        nonlocal seen
        now = _state_of(runs)
        if seen[0] != now:
            seen = (now, metrics_of(runs).encode())
        return seen[1]

    class Server(http.server.HTTPServer):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    class Handler(http.server.BaseHTTPRequestHandler):
        """Answers GET /metrics."""

        timeout = 10  # a client that says nothing holds up the others no longer

        def do_GET(self) -> None:
            """Send the metrics as the run folders have them now."""
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "expected /metrics")
                return
            try:
                answer = content()
            except Exception as error:  # a run folder that is being written, or went away: the next scrape asks again
                self.send_error(503, f"cannot read the runs: {type(error).__name__}")
                return
            self.send_response(200)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing of each scrape."""

    try:
        return Server((address, int(port)), Handler)
    except OSError as error:
        raise UsageError(f"--listen '{listen}': {error.strerror}: name another address or port") from None


def _state_of(runs: tuple[Path, ...]) -> frozenset[tuple[str, int, int]]:
    """Return the files of run folders with their sizes and times: another state is another content."""
    found = [(one, one.stat()) for run in runs for one in run.iterdir()]
    return frozenset((str(one), stat.st_size, stat.st_mtime_ns) for one, stat in found)


def _serve(listen: str, runs: tuple[Path, ...]) -> None:
    metrics_of(runs)  # what cannot be read is said now
    with server_for(listen, runs) as server:
        host, port = server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else host
        click.echo(f"serving http://{shown!s}:{port}/metrics; Ctrl-C ends it")
        server.serve_forever()
