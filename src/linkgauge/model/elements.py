"""Datatypes of elements, and sizes as whole elements and blocks."""

from __future__ import annotations

from linkgauge.model.patterns import PatternTraits

ELEMENT_BYTES = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "float32": 4,
    "float64": 8, "float8_e4m3": 1, "float8_e5m2": 1,
}  # fmt: skip


def restated_size(pattern: PatternTraits, size_requested: int, ranks: int, datatype: str) -> tuple[int, str]:
    """m as whole elements, and as n whole blocks where the pattern cuts blocks; with the reason where that is 0.

    Source: docs/definitions.md, Sizes and goodput.
    """
    element = ELEMENT_BYTES[datatype] if pattern.reduces or pattern.blocks else 1
    parts = ranks if pattern.blocks else 1
    block = size_requested // parts // element * element
    if block == 0 and not (size_requested == 0 and not pattern.blocks and not pattern.reduces):
        what = f"a block of {size_requested} bytes over {ranks} ranks" if pattern.blocks else f"{size_requested} bytes"
        return size_requested, f"{what} holds no whole {datatype} ({element} bytes)"
    return block * parts, ""
