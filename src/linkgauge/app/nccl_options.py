"""The options of nccl-tests in `linkgauge run`, where they mean the same: -b -e -f -g -w -n."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from linkgauge.app.command_line import Decorated, option
from linkgauge.errors import UsageError
from linkgauge.model.case import DIMENSIONS
from linkgauge.model.quantity import parse_size

PANEL = "As in nccl-tests"
_OPTIONS = (
    ("-b", "min_bytes", "SIZE", "Smallest message size, with -e."),
    ("-e", "max_bytes", "SIZE", "Largest message size, with -b."),
    ("-f", "step_factor", "NUMBER", "Factor from one size to the next."),
    ("-g", "gpus", "NUMBER", "GPUs: the same as --ranks."),
    ("-w", "warmup_iterations", "NUMBER", "Iterations before the first sample: the same as --warmup."),
    ("-n", "iterations", "NUMBER", "Samples: the same as --stop-rule count --stop-samples."),
)
NAMES = tuple(name for _, name, _, _ in _OPTIONS)
_AS_DIMENSIONS = {
    "gpus": {"ranks": ""}, "warmup_iterations": {"warmup": ""},
    "iterations": {"stop_rule": "count", "stop_samples": ""},
}  # fmt: skip


def nccl_options(function: Decorated) -> Decorated:
    """`function` with these options: texts, which `with_nccl_options` reads."""
    for flag_name, name, metavar, help in reversed(_OPTIONS):
        function = option(flag_name, name, metavar=metavar, panel=PANEL, advanced=True, help=help)(function)
    return function


def with_nccl_options(dimensions: dict[str, Sequence[str]], words: dict[str, Any]) -> dict[str, Sequence[str]]:
    """The dimensions' texts with what these options say, which are taken out of `words`.

    Raises:
        UsageError: one of them beside the option of ours for the same thing, or sizes that lack an end.
    """
    given = {name: text for name in NAMES if (text := words.pop(name, None)) is not None}
    typed = {name: flag_name for flag_name, name, _, _ in _OPTIONS}
    found = dict(dimensions)
    sizes = [typed[name] for name in ("min_bytes", "max_bytes", "step_factor") if name in given]
    if sizes:
        if "size" in dimensions:
            raise UsageError(f"{' '.join(sizes)} and --size both give sizes: give one of them")
        found["size"] = [_range(given)]
    for name, set_by_it in _AS_DIMENSIONS.items():
        if name not in given:
            continue
        both = [DIMENSIONS[one].flag for one in set_by_it if one in dimensions]
        if both:
            raise UsageError(f"{typed[name]} sets {both[0]} too: give one of them")
        if not (given[name].isascii() and given[name].isdecimal()):
            raise UsageError(f"{typed[name]} '{given[name]}': expected a whole number")
        found |= {one: [value or given[name]] for one, value in set_by_it.items()}
    return found


def _range(given: Mapping[str, str]) -> str:
    """The sizes as --size takes them: from -b to -e by the factor -f."""
    if not {"min_bytes", "max_bytes"} <= set(given):
        raise UsageError("-b and -e give a range of sizes together: give both, or --size")
    first, last, factor = given["min_bytes"], given["max_bytes"], given.get("step_factor")
    low, high = parse_size(first), parse_size(last)
    if high < low:
        raise UsageError(f"-b {first} -e {last}: expected the smaller size first")
    if factor is None:
        if low == high:
            return first
        raise UsageError(f"-b {first} -e {last} without a factor: give -f 2 too, or --size {first}:{last}:x2")
    if not (factor.isascii() and factor.isdecimal() and int(factor[:9]) >= 2):
        raise UsageError(f"-f '{factor}': expected a whole number of at least 2")
    return f"{first}:{last}:x{factor}"
