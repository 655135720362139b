"""One HTML file with everything in it: escaped text, charts as data, and the scripts that draw them."""

from __future__ import annotations

import contextlib
import html
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from linkgauge.errors import LinkgaugeError
from linkgauge.files import write_atomically
from linkgauge.view import charts

# Nothing may be fetched, whatever a run folder holds. Vega makes functions of its own expressions, hence unsafe-eval.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; connect-src 'none'; form-action 'none'; base-uri 'none'"
)
_BUNDLE_END = "\n// end of the bundle\n"
_WATCH = (
    "window.reportErrors=[];"
    "window.addEventListener('error',e=>{window.reportErrors.push(e.message||'error');"
    "document.documentElement.dataset.errors=window.reportErrors.length});"
    "window.addEventListener('unhandledrejection',e=>{window.reportErrors.push(String(e.reason));"
    "document.documentElement.dataset.errors=window.reportErrors.length});"
)


def escape(text: object) -> str:
    """Return a text as HTML that shows it and does nothing else."""
    return html.escape(str(text), quote=True)


def script_json(value: object) -> str:
    """Return JSON that is safe inside a script element: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


class Page:
    """The body of a page, gathered part by part."""

    def __init__(self) -> None:
        """Begin an empty page."""
        self._parts: list[str] = []
        self._charts: list[dict[str, Any]] = []
        self._datasets: dict[str, Any] = {}
        self._tables: list[dict[str, Any]] = []

    def html(self, part: str) -> None:
        """Add markup; every text in it must have gone through `escape`."""
        self._parts.append(part)

    def heading(self, level: int, text: str, anchor: str = "") -> None:
        """Add a heading."""
        name = f' id="{escape(anchor)}"' if anchor else ""
        self.html(f"<h{level}{name}>{escape(text)}</h{level}>")

    def note(self, text: str) -> None:
        """Add a line of explanation."""
        self.html(f'<p class="hint">{escape(text)}</p>')

    def chart(
        self, chart: charts.Chart, caption: str, file_name: str, max_width: int = 0, height: int = 0, min_width: int = 0
    ) -> None:
        """Add a chart that takes the width there is, up to `max_width` pixels where that is not 0.

        Where the page is narrower than `min_width`, the chart scrolls.
        A chart of one point is left out: it would say less than its row of the table.
        """
        if height:
            chart = chart.properties(height=height)
        spec = charts.spec_of(charts.themed(chart.properties(width="container")), validate=False)
        if charts.points_of(spec) < 2:
            return
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
        datasets = spec.pop("datasets")
        self._datasets.update(datasets)
        spec["usermeta"] = {"datasets": sorted(datasets)}
        style = f' style="max-width:{max_width}px"' if max_width else ""
        least = f' style="min-width:{min_width}px"' if min_width else ""
        self.html(
            f"<figure{style}><figcaption>{escape(caption)}</figcaption>"
            f'<div class="scroll"><div class="chart"{least} data-chart="{len(self._charts)}" '
            f'data-file="{escape(file_name)}"></div></div></figure>'
        )
        self._charts.append(spec)

    def static_table(self, columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]], kind: str = "") -> None:
        """Add a table as it is; `columns` are (name, whether it holds words), `kind` is its class of style.

        A first cell that is the same as the one above it is not shown again. On a narrow page each row is a card: its
        first cell the heading, the others under their columns' names.
        """
        head = "".join(f'<th class="{"" if words else "n"}">{escape(name)}</th>' for name, words in columns)
        self.html(f'<div class="scroll"><table class="cards {escape(kind)}"><thead><tr>{head}</tr></thead><tbody>')
        above = None
        for row in rows:
            cells = []
            for place, ((name, words), value) in enumerate(zip(columns, row, strict=True)):
                looks = "" if words else "n"
                looks += " again" if place == 0 and value == above else ""
                cells.append(f'<td class="{looks.strip()}" data-label="{escape(name)}">{escape(value)}</td>')
            self.html(f"<tr>{''.join(cells)}</tr>")
            above = row[0] if row else None
        self.html("</tbody></table></div>")

    @contextlib.contextmanager
    def folded(self, summary: str) -> Iterator[None]:
        """Fold what is added meanwhile under a line that opens it."""
        self.html(f"<details><summary>{escape(summary)}</summary>")
        yield
        self.html("</details>")

    def table(self, columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[Any]]) -> None:
        """Add a table that sorts, filters and copies.

        `columns` are (name, whether it holds words); words are stored once each, so that a long table stays small.
        """
        words: dict[str, int] = {}
        coded = []
        for row in rows:
            line = []
            for (_, wordy), value in zip(columns, row, strict=True):
                if value is None or not wordy:
                    line.append(value)
                else:
                    line.append(words.setdefault(str(value), len(words)))
            coded.append(line)
        described = [{"name": name, "word": wordy, "wide": name == "reason"} for name, wordy in columns]
        self.html(f'<div class="table" data-table="{len(self._tables)}"></div>')
        self._tables.append({"columns": described, "words": list(words), "rows": coded})

    def facts(self, facts: Iterable[tuple[str, object]]) -> None:
        """Add a list of names and values; empty values are left out."""
        shown = [(name, value) for name, value in facts if value not in (None, "", [], {})]
        self.html('<dl class="key">' + "".join(f"<dt>{escape(n)}</dt><dd>{escape(v)}</dd>" for n, v in shown) + "</dl>")

    def document(self, title: str) -> str:
        """Return the whole page."""
        assets = resources.files("linkgauge.view") / "assets"
        data = {"charts": self._charts, "datasets": self._datasets, "tables": self._tables}
        scripts = [
            '<script type="application/json" id="report-data">', script_json(data), "</script>",
            "<script>", _bundle(), "</script><script>", (assets / "report.js").read_text(encoding="utf-8"), "</script>",
        ] if self._charts or self._tables else []  # fmt: skip
        return "".join([
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>", (assets / "report.css").read_text(encoding="utf-8"),
            f"</style><script>{_WATCH}</script></head><body>", *self._parts, *scripts, "</body></html>\n",
        ])  # fmt: skip


def _bundle() -> str:
    """Return vega, vega-lite and vega-embed as one script.

    Bundling takes seconds, so that the result is kept in the user's cache, by versions.
    """
    vl_convert = charts.converter(draws=False)
    wanted = charts.altair().SCHEMA_VERSION.lstrip("v").rsplit(".", 1)[0]
    known = vl_convert.get_vegalite_versions()
    version = wanted if wanted in known else known[-1]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linkgauge"
    kept = cache / f"vega-{metadata.version('vl-convert-python')}-{version}.js"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        # The end is checked: a script that was cut off would leave every later report blank.
        text = kept.read_text(encoding="utf-8")
        if text.endswith(_BUNDLE_END):
            return text
    # A script element ends at the first end tag, wherever in the code it stands.
    make = charts.converter().javascript_bundle  # its stub asks for a snippet, which has a default
    bundle: str = make(vl_version=version).replace("</script", "<\\/script")
    bundle = bundle.replace("<!--", "<\\!--") + _BUNDLE_END
    with contextlib.suppress(OSError, LinkgaugeError):
        cache.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, bundle.encode("utf-8"))
    return bundle
