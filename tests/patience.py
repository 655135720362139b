"""How long tests wait for what must come. A busy machine takes many times as long; only a fault takes all of it."""

from __future__ import annotations

PATIENCE_S = 600.0  # pyproject.toml's timeout of a test is longer, so that the test says what did not come
