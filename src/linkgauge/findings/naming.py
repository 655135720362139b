"""What a case is called in a sentence, and by which labels other programs know it."""

from __future__ import annotations

from linkgauge.findings.measure import DIMENSIONS, Measure
from linkgauge.model.case import USUAL
from linkgauge.model.device_words import device_words
from linkgauge.model.quantity import format_bytes as size_text


def task_words(measure: Measure) -> str:
    """Return what a case does and how, without its devices."""
    return f"{measure.label} {size_text(measure.size)}"


def case_words(measure: Measure) -> str:
    """Return what a user calls a case."""
    words = [task_words(measure), "on", device_words(measure.devices, measure.noun)]
    memory = {measure.case.source_memory, measure.case.target_memory} - {"device"}
    if memory:
        words.append("(" + f"{measure.case.source_memory} to {measure.case.target_memory}" + ")")
    return " ".join(words)


def labels_of(measure: Measure) -> tuple[tuple[str, str], ...]:
    """Return the labels by which a case is known in other tools' files, which take two of equal labels for one."""
    names = ("transport", "variant", "pattern", "source_memory", "target_memory", "cadence", "path", "algorithm")
    found = [(name, str(getattr(measure.case, name))) for name in names]
    others = ((name, getattr(measure.case, name)) for name in DIMENSIONS if name not in names)
    found += [(name, str(value)) for name, value in others if value != USUAL[name]]
    found += [("launch", measure.launch_name)]
    found += [("size_bytes", str(measure.size)), ("devices", ",".join(str(d) for d in measure.devices))]
    return tuple((name, value) for name, value in found if value)
