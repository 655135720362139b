"""Sphinx's settings; './lg docs' runs it by _site/__main__.py."""

from __future__ import annotations

from pathlib import Path

from _site import outputs, pages
from sphinx.application import Sphinx
from sphinx.util import logging

import linkgauge

project = "Linkgauge"
author = "the Linkgauge authors"
copyright = author
version = release = linkgauge.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_site", "_runs", "_outputs"]
myst_enable_extensions = ["deflist", "attrs_inline"]
myst_heading_anchors = 4
smartquotes = False  # it would make one dash of two, in options
default_role = "code"  # of docstrings, which have Markdown's single quotes
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
add_module_names = False
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"

html_theme = "furo"
html_title = f"Linkgauge {release}"
html_static_path = ["_static", str(Path(__file__).parents[1] / "build" / "docs" / "static")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
# A page that is opened as a file may not read the others, from which these would be taken.
html_show_search_summary = False
pygments_style, pygments_dark_style = "friendly", "monokai"


def _expand(app: Sphinx, name: str, source: list[str]) -> None:
    """What a page shows of the program, made now; an output that is not the approved one is a warning."""
    page = outputs.Page(name)
    try:
        source[0] = pages.expand(name, source[0], page)
    except (pages.PageError, RuntimeError) as error:
        logging.getLogger(__name__).warning("%s: %s", name, error, location=name)
        return
    pages.EXPANDED[name] = source[0]
    if pages.APPROVING:
        page.approve()
    elif difference := page.difference():
        logging.getLogger(__name__).warning(
            "outputs differ from the approved ones; './lg docs --approve' takes them:\n%s", difference, location=name
        )


def setup(app: Sphinx) -> None:
    """Sphinx's own way to add to it."""
    app.connect("source-read", _expand)
