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

from linkgauge.apps.formula import Formula, FormulaError, formula, number_or_formula
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
_TABLE = "[[step]]"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
_PRESET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")  # model/dimension.py, what --app takes


class Step(NamedTuple):
    """One step as the file states it, but where: those that say the same are one. `verb`: the key that says what it is.

    `formulas`: numbers as they are. `span`: how many steps it is, with those in it.
    """

    verb: str
    formulas: Mapping[str, int | Formula]
    words: Mapping[str, str]
    begun: bool = False
    body: tuple[Step, ...] = ()
    span: int = 1

    def names(self) -> frozenset[str]:
        """The names that it, or a step in it, asks for."""
        found = frozenset().union(*(one.names for one in self.formulas.values() if isinstance(one, Formula)))
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

    def where(self, number: int) -> str:
        """The place of a step, for errors. `number`: of the steps before it in the text, those in loops too."""
        place, steps = f"{self.name}: {_TABLE}", self.steps
        while True:
            at = 0
            while number >= steps[at].span:
                number -= steps[at].span
                at += 1
            if number == 0:
                return f"{place} {at + 1}"
            place, steps, number = f"{place} {at + 1}.step", steps[at].body, number - 1


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


def _amount(value: Any, at: str) -> int | Formula:
    try:
        return number_or_formula(value)
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
_COMMON: dict[str, Shape] = {"when": _amount}
# By verb: what else a step of it may have, and what it needs.
_VERBS: dict[str, tuple[dict[str, Shape], tuple[str, ...]]] = {
    "compute": ({"compute": _amount}, ()),
    "work": ({"work": _amount, "queue": _name}, ("queue",)),
    "copy": ({"copy": one_of(COPIES), "bytes": _amount, "queue": _name}, ("bytes",)),
    "send": ({"send": _amount, "bytes": _amount}, ("bytes",)),
    "receive": ({"receive": _amount, "bytes": _amount}, ("bytes",)),
    "wait": ({"wait": flag}, ()),
    "collective": (
        {"collective": one_of(COLLECTIVES), "bytes": _amount, "root": _amount, "group": _amount, "begun": flag,
         "distribution": text}, ("bytes",)),
    "barrier": ({"barrier": flag, "group": _amount}, ()),
    "sync": ({"sync": _name}, ()),
    "after": ({"after": _name, "queue": _name}, ("queue",)),
    "repeat": ({"repeat": _amount, "index": _name, "step": tables}, ("step",)),
}  # fmt: skip
_QUEUE_KEYS = ("sync", "after", "queue")
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
    reader = _Steps()
    steps = reader.read(said["step"], f"{name}: {_TABLE}", _Scope(known))
    if not steps:
        raise UsageError(f"{name}: no [[step]] table: expected at least one")
    reader.check_queues()
    own = {key: value for key, value in document.items() if key != "presets"}
    return StepFile(name, said["description"], parameters, values, needs, steps, tuple(reader.queues), own, presets)


def _one_of(names: Iterable[str]) -> str:
    return f"expected one of {', '.join(names) or 'none'}"


def _check_names(value: Formula, known: set[str], where: str) -> None:
    if not value.names <= known:
        unknown = min(value.names - known)
        raise UsageError(f"{where}: unknown name '{unknown}': expected one of {', '.join(sorted(known))}")


class _Scope:
    """The names that formulas know at a place of the file, and the steps without steps in them that were made there."""

    def __init__(self, known: set[str]) -> None:
        self.known = known
        self.made: dict[str, Step] = {}  # by what they say
        self.alike: dict[tuple[object, ...], Step] = {}  # by what they say but their numbers


class _Steps:
    """Reads lists of tables as steps. What says the same in a scope is looked at once, and is one step."""

    def __init__(self) -> None:
        self.queues: dict[str, None] = {}  # that something is put into, in their order
        self._naming: list[tuple[str, Step]] = []  # the steps that name queues, and where first
        self._count = 0

    def read(self, tables: list[dict[str, Any]], place: str, scope: _Scope, depth: int = 0) -> tuple[Step, ...]:
        """The steps of a list; UsageError naming the first that is wrong."""
        found: list[Step] = []
        made = scope.made
        for table in tables:
            self._count += 1
            if self._count > MOST_STEPS:
                raise UsageError(f"{place} {len(found) + 1}: more than {MOST_STEPS} steps: expected fewer, or loops")
            if "step" in table:
                found.append(self._loop(table, f"{place} {len(found) + 1}", scope, depth))
                continue
            key = repr(table)  # which tells 1, 1.0 and true apart
            step = made.get(key)
            if step is None:
                step = made[key] = self._made(table, f"{place} {len(found) + 1}", scope)
            found.append(step)
        return tuple(found)

    def _made(self, table: Mapping[str, Any], where: str, scope: _Scope) -> Step:
        but_numbers = (*table, *(int if type(value) is int else repr(value) for value in table.values()))
        like = scope.alike.get(but_numbers)
        if like is not None:
            try:
                formulas = {key: number_or_formula(table[key]) for key in like.formulas}
                return Step(like.verb, formulas, like.words, like.begun)
            except FormulaError:
                pass  # a number too large: said below, with its place
        step, _ = _said(table, where, scope.known)
        scope.alike[but_numbers] = step
        if any(key in step.words for key in _QUEUE_KEYS):
            self._naming.append((where, step))
            if step.verb in ("work", "copy"):
                self.queues[step.words["queue"]] = None
        return step

    def _loop(self, table: Mapping[str, Any], where: str, scope: _Scope, depth: int) -> Step:
        step, tables = _said(table, where, scope.known)
        if depth == DEEPEST_LOOP:
            raise UsageError(f"{where}: loops nest deeper than {DEEPEST_LOOP}: expected fewer")
        inner = _Scope(scope.known | {step.words["index"]}) if "index" in step.words else scope
        before = self._count
        body = self.read(tables, f"{where}.step", inner, depth + 1)
        return step._replace(body=body, span=1 + self._count - before)

    def check_queues(self) -> None:
        """UsageError for the first step that names a queue which nothing is put into."""
        for where, step in self._naming:
            for key in _QUEUE_KEYS:
                named = step.words.get(key)
                if named is not None and named not in self.queues and not (key == "sync" and named == "all"):
                    raise UsageError(
                        f"{where}.{key}: nothing is put into a queue '{named}': expected one of "
                        f"{', '.join(self.queues) or 'none'}"
                    )
            if step.verb == "after" and step.words["after"] == step.words["queue"]:
                raise UsageError(f"{where}: queue '{step.words['queue']}' after itself: expected another")


def _said(table: Mapping[str, Any], where: str, known: set[str]) -> tuple[Step, list[dict[str, Any]]]:
    """What a table says, checked, and the tables of steps in it, which are not."""
    verbs = _VERBS.keys() & table.keys()
    if len(verbs) != 1:
        found = " and ".join(verb for verb in _VERBS if verb in verbs) or "no verb"
        raise UsageError(f"{where}: {found}: expected one of {', '.join(_VERBS)}")
    (verb,) = verbs
    said = checked(table, _SHAPES[verb], where)
    formulas = {key: value for key, value in said.items() if type(value) is int or isinstance(value, Formula)}
    if said.get("index") in known:
        raise UsageError(f"{where}.index: the name '{said['index']}' is taken: expected another")
    for key, value in formulas.items():
        if isinstance(value, Formula):
            _check_names(value, known, f"{where}.{key}")
    words = {key: value for key, value in said.items() if isinstance(value, str)}
    return Step(verb, formulas, words, bool(said.get("begun"))), said.get("step", [])
