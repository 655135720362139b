"""Readers of other tools' output, a tool a file: whoever asks for one asks here, where all have registered."""

from __future__ import annotations

import importlib
import pkgutil

from linkgauge.exchange.readers.base import JSON_FORMS as JSON_FORMS
from linkgauge.exchange.readers.base import READERS as READERS
from linkgauge.exchange.readers.base import Reader as Reader
from linkgauge.exchange.readers.base import parts as parts

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
