"""Step files: an application as ordered steps of each rank, in TOML that may be a stranger's (docs/applications.md).

Nothing here raises anything but `UsageError`, naming file, table and key. What the steps become on so many ranks is
`program.py`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from linkgauge.apps.formula import Formula, FormulaError, formula
from linkgauge.errors import UsageError
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.shape import MisshapenError, Shape, checked, flag, mapping, one_of, only, tables, text, whole
from linkgauge.model.traits import having

MOST_STEPS = 1_000_000  # that a file states
DEEPEST_LOOP = 8  # core/traffic/program.h
LARGEST_PARAMETER = 1 << 40
COPIES = ("host_to_device", "device_to_host", "within_device")
COLLECTIVES = tuple(
    name for name in having(PATTERNS, "collective") if not PATTERNS[name].scripted and PATTERNS[name].size_means != "-"
)
OWN_NAMES = ("rank", "ranks")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
_PRESET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")  # model/dimension.py, what --app takes


class Step(NamedTuple):
    """One step as the file states it. `verb` is the key that says what it is; `where` is for errors."""

    verb: str
    where: str
    formulas: Mapping[str, Formula]
    words: Mapping[str, str]
    begun: bool = False
    body: tuple[Step, ...] = ()

    def names(self) -> frozenset[str]:
        """The names that it, or a step in it, asks for."""
        found = frozenset().union(*(one.names for one in self.formulas.values()))
        return found.union(*(one.names() for one in self.body))


@dataclasses.dataclass(frozen=True)
class StepFile:
    """An application. `document`: what the file holds, as it travels with a case, so without presets.

    `presets`: parameters that are set together, by name.
    """

    name: str
    description: str
    parameters: Mapping[str, int]
    values: Mapping[str, Formula]
    needs: Mapping[str, tuple[Formula, str]]
    steps: tuple[Step, ...]
    queues: tuple[str, ...]
    document: Mapping[str, Any]
    presets: Mapping[str, Mapping[str, int]]

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that tell it from a file of the same name."""
        return hashlib.sha256(written(self.document).encode()).hexdigest()[:8]


def written(document: Mapping[str, Any]) -> str:
    """A document as text of one line."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=True)


def as_toml(document: Mapping[str, Any]) -> str:
    """A document as TOML, a line a step."""
    lines = [f"{key} = {_inline(value)}" for key, value in document.items() if key != "step"]
    return "\n".join([*lines, "step = [", *_step_lines(document["step"], "  "), "]"]) + "\n"


def _step_lines(steps: list[Mapping[str, Any]], indent: str) -> list[str]:
    lines = []
    for step in steps:
        if "step" not in step:
            lines.append(f"{indent}{_inline(step)},")
            continue
        rest = ", ".join(f"{_key(key)} = {_inline(value)}" for key, value in step.items() if key != "step")
        lines += [f"{indent}{{ {rest}, step = [", *_step_lines(step["step"], indent + "  "), f"{indent}] }},"]
    return lines


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_inline(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(one) for one in value) + "]"
    return json.dumps(value)  # numbers, true, and texts of ASCII with JSON's escapes are the same in TOML


def _key(key: str) -> str:
    return key if _NAME.fullmatch(key) else json.dumps(key)


# --- shapes ----------------------------------------------------------------------------------------------------------


def _formula(value: Any, at: str) -> Formula:
    try:
        return formula(value)
    except FormulaError as error:
        raise MisshapenError(f"{at}: {error}") from None


def _name(value: Any, at: str) -> str:
    if _NAME.fullmatch(text(value, at)) is None or value in OWN_NAMES:
        raise MisshapenError(f"{at}: '{value[:40]}' is no name: expected letters, digits and _, and not rank or ranks")
    return str(value)


def _preset_name(value: Any, at: str) -> str:
    if _PRESET.fullmatch(text(value, at)) is None:
        raise MisshapenError(f"{at}: '{value[:40]}' is no name: expected letters, digits, and _ . - behind the first")
    return str(value)


_PARAMETERS = mapping(whole(0, LARGEST_PARAMETER), _name)
FILE: dict[str, Shape] = {
    "description": text, "source": text, "parameters": _PARAMETERS, "presets": mapping(_PARAMETERS, _preset_name),
    "values": mapping(_formula, _name), "needs": mapping(text), "step": tables,
}  # fmt: skip
_COMMON: dict[str, Shape] = {"when": _formula}
# By verb: what else a step of it may have, and what it needs.
_VERBS: dict[str, tuple[dict[str, Shape], tuple[str, ...]]] = {
    "compute": ({"compute": _formula}, ()),
    "work": ({"work": _formula, "queue": _name}, ("queue",)),
    "copy": ({"copy": one_of(COPIES), "bytes": _formula, "queue": _name}, ("bytes",)),
    "send": ({"send": _formula, "bytes": _formula}, ("bytes",)),
    "receive": ({"receive": _formula, "bytes": _formula}, ("bytes",)),
    "wait": ({"wait": flag}, ()),
    "collective": (
        {"collective": one_of(COLLECTIVES), "bytes": _formula, "root": _formula, "group": _formula, "begun": flag,
         "distribution": text}, ("bytes",)),
    "barrier": ({"barrier": flag, "group": _formula}, ()),
    "sync": ({"sync": _name}, ()),
    "after": ({"after": _name, "queue": _name}, ("queue",)),
    "repeat": ({"repeat": _formula, "index": _name, "step": tables}, ("step",)),
}  # fmt: skip
_SHAPES = {verb: only({**shapes, **_COMMON}, needed) for verb, (shapes, needed) in _VERBS.items()}


def step_file_of(document: Mapping[str, Any], name: str) -> StepFile:
    """The application that a TOML document states; UsageError naming table and key. `name` begins every error."""
    said = checked(document, only(FILE, ("description", "step")), name)
    parameters: dict[str, int] = said.get("parameters", {})
    values: dict[str, Formula] = said.get("values", {})
    known = {*OWN_NAMES, *parameters}
    for value_name, value in values.items():
        if value_name in known:
            raise UsageError(f"{name}: values.{value_name}: the name is taken: expected another")
        _check_names(value, known, f"{name}: values.{value_name}")
        known.add(value_name)
    presets: dict[str, dict[str, int]] = said.get("presets", {})
    for preset, settings in presets.items():
        unknown = sorted(settings.keys() - parameters.keys())
        if unknown:
            raise UsageError(f"{name}: presets.{preset}: no parameter '{unknown[0]}': {_one_of(parameters)}")
    needs = {}
    for words, said_of_it in said.get("needs", {}).items():
        needs[words] = (_formula(words, f"{name}: needs"), said_of_it)
        _check_names(needs[words][0], known, f"{name}: needs")
    count, scope = [0], _Scope(known)
    steps = tuple(
        _step(one, f"{name}: [[step]] {number}", scope, 0, count) for number, one in enumerate(said["step"], 1)
    )
    if not steps:
        raise UsageError(f"{name}: no [[step]] table: expected at least one")
    queues: dict[str, None] = {}
    _find_queues(steps, queues)
    _check_queues(steps, queues)
    own = {key: value for key, value in document.items() if key != "presets"}
    return StepFile(name, said["description"], parameters, values, needs, steps, tuple(queues), own, presets)


def _one_of(names: Iterable[str]) -> str:
    return f"expected one of {', '.join(names) or 'none'}"


def _check_names(value: Formula, known: set[str], where: str) -> None:
    unknown = sorted(value.names - known)
    if unknown:
        raise UsageError(f"{where}: unknown name '{unknown[0]}': expected one of {', '.join(sorted(known))}")


class _Said(NamedTuple):
    """What a step says, but where: many say the same."""

    verb: str
    formulas: dict[str, Formula]
    words: dict[str, str]
    begun: bool
    steps: list[dict[str, Any]]


class _Scope:
    """The names that formulas know at a place of the file, and what was made there of each table without steps."""

    def __init__(self, known: set[str]) -> None:
        self.known = known
        self._made: dict[str, _Said] = {}

    def said(self, table: Mapping[str, Any], where: str) -> _Said:
        """What the step says, checked; each like it once."""
        if "step" in table:
            return _said(table, where, self.known)
        key = repr(table)  # which tells 1, 1.0 and true apart
        if (found := self._made.get(key)) is None:
            found = self._made[key] = _said(table, where, self.known)
        return found


def _said(table: Mapping[str, Any], where: str, known: set[str]) -> _Said:
    verbs = _VERBS.keys() & table.keys()
    if len(verbs) != 1:
        found = " and ".join(verb for verb in _VERBS if verb in verbs) or "no verb"
        raise UsageError(f"{where}: {found}: expected one of {', '.join(_VERBS)}")
    (verb,) = verbs
    said = checked(table, _SHAPES[verb], where)
    formulas = {key: value for key, value in said.items() if isinstance(value, Formula)}
    if said.get("index") in known:
        raise UsageError(f"{where}.index: the name '{said['index']}' is taken: expected another")
    for key, value in formulas.items():
        _check_names(value, known, f"{where}.{key}")
    words = {key: value for key, value in said.items() if isinstance(value, str)}
    return _Said(verb, formulas, words, bool(said.get("begun")), said.get("step", []))


def _step(table: Mapping[str, Any], where: str, scope: _Scope, depth: int, count: list[int]) -> Step:
    count[0] += 1
    if count[0] > MOST_STEPS:
        raise UsageError(f"{where}: more than {MOST_STEPS} steps: expected fewer, or loops")
    verb, formulas, words, begun, steps = scope.said(table, where)
    if verb != "repeat":
        return Step(verb, where, formulas, words, begun)
    if depth == DEEPEST_LOOP:
        raise UsageError(f"{where}: loops nest deeper than {DEEPEST_LOOP}: expected fewer")
    inner = _Scope(scope.known | {words["index"]}) if "index" in words else scope
    body = tuple(_step(one, f"{where}.step {number}", inner, depth + 1, count) for number, one in enumerate(steps, 1))
    return Step(verb, where, formulas, words, begun, body)


def _find_queues(steps: tuple[Step, ...], found: dict[str, None]) -> None:
    """The queues that something is put into, in their order."""
    for step in steps:
        if step.words and step.verb in ("work", "copy") and "queue" in step.words:
            found[step.words["queue"]] = None
        if step.body:
            _find_queues(step.body, found)


def _check_queues(steps: tuple[Step, ...], queues: dict[str, None]) -> None:
    for step in steps:
        if not (step.words or step.body):
            continue
        for key in ("sync", "after", "queue"):
            named = step.words.get(key)
            if named is not None and named not in queues and not (key == "sync" and named == "all"):
                raise UsageError(
                    f"{step.where}.{key}: nothing is put into a queue '{named}': expected one of "
                    f"{', '.join(queues) or 'none'}"
                )
        if step.verb == "after" and step.words["after"] == step.words["queue"]:
            raise UsageError(f"{step.where}: queue '{step.words['queue']}' after itself: expected another")
        _check_queues(step.body, queues)
