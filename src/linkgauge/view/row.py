"""A row of a summary. Its texts came through the run folder's door: they can be printed as they are."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
