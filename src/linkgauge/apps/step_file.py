"""Step files: an application as ordered steps of each rank, in TOML that may be a stranger's.

The grammar is docs/reference/step-files.md.

Nothing here raises anything but `UsageError`, naming file, table and key. What the steps become on so many ranks is
`program.py`.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from linkgauge.apps.formula import LARGEST, Formula, FormulaError, formula, number_or_formula
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
_PRESET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")  # model/values.py, what --app takes


class Kind(NamedTuple):
    """What steps say that differ in their whole numbers alone. `verb`: the key that says what they are.

    `numbers`: the keys whose values are whole numbers, which are columns of `Steps`.
    """

    verb: str
    numbers: frozenset[str]
    formulas: Mapping[str, Formula]
    words: Mapping[str, str]
    begun: bool
    in_place: bool
    conditional: bool  # have `when`

    def has(self, key: str) -> bool:
        """Whether they say an amount by this key."""
        return key in self.numbers or key in self.formulas


@dataclasses.dataclass(frozen=True)
class Steps:
    """A file's steps as columns, in the order of the text: those in a loop stand behind it. Of each step:

    `kind`, its place in `kinds`; `same`, a number that it has in common with those that say the same; by key its whole
    numbers, 0 where it has none; all are [steps]. `spans`: of each loop how many steps it is, with those in it.
    """

    kinds: tuple[Kind, ...]
    kind: NDArray[np.int32]
    same: NDArray[np.int32]
    numbers: Mapping[str, NDArray[np.int64]]
    spans: Mapping[int, int]


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
    steps: Steps = dataclasses.field(compare=False)  # `document` says as much
    queues: tuple[str, ...]
    document: Mapping[str, Any]
    presets: Mapping[str, Mapping[str, int]]

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that tell it from a file of the same name."""
        return hashlib.sha256(written(self.document).encode()).hexdigest()[:8]

    def where(self, number: int) -> str:
        """The place of a step, for errors. `number`: of the steps before it in the text, those in loops too."""
        return f"{self.name}: {_place(self.steps.spans, number)}"


def _place(spans: Mapping[int, int], number: int) -> str:
    told, begin = _TABLE, 0
    while True:
        at, count = begin, 1
        while number >= at + spans.get(at, 1):
            at += spans.get(at, 1)
            count += 1
        told += f" {count}"
        if number == at:
            return told
        told, begin = f"{told}.step", at + 1


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
         "in_place": flag, "distribution": text}, ("bytes",)),
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
    steps, queues = _Reading(name, frozenset(known)).of(said["step"])
    own = {key: value for key, value in document.items() if key != "presets"}
    return StepFile(name, said["description"], parameters, values, needs, steps, queues, own, presets)


def _one_of(names: Iterable[str]) -> str:
    return f"expected one of {', '.join(names) or 'none'}"


def _check_names(value: Formula, known: AbstractSet[str], where: str) -> None:
    if not value.names <= known:
        unknown = min(value.names - known)
        raise UsageError(f"{where}: unknown name '{unknown}': expected one of {', '.join(sorted(known))}")


class _Reading:
    """Steps from their tables. Those that differ in their whole numbers alone are looked at once, numbers by column."""

    def __init__(self, name: str, known: frozenset[str]) -> None:
        """Take the file's name, for errors, and the names that its formulas know."""
        self._name = name
        self._known = [known]  # by scope: all the file's, and in loops their indices
        self._scopes: dict[tuple[int, str], int] = {}  # by that around it and the loop's index
        self._tables: list[dict[str, Any]] = []  # in the order of the text
        self._forms = array.array("i")  # of each table, a number that it has in common with those of its keys and scope
        self._form_of: dict[int, dict[tuple[str, ...], int]] = {}  # by scope and keys
        self._next_form = itertools.count()
        self._spans: dict[int, int] = {}  # of loops
        self._odd: list[int] = []  # whose `step` is no list of tables, or too deep

    def of(self, tables: list[dict[str, Any]]) -> tuple[Steps, tuple[str, ...]]:
        """The steps, and the queues into which something is put; UsageError naming the first step that is wrong."""
        if not tables:
            raise UsageError(f"{self._name}: no [[step]] table: expected at least one")
        self._lay_out(tables, 0, 0)
        count = len(self._tables)
        kind, same = np.zeros(count, np.int32), np.zeros(count, np.int32)
        numbers: dict[str, NDArray[np.int64]] = {}
        firsts: list[int] = []  # of each kind its first step
        beyond: list[int] = []  # steps with a number that is too large
        alike = 0
        for keys, at in self._by_form():
            of_form = self._tables if len(at) == count else list(map(self._tables.__getitem__, at))
            words, columns = [], []
            for key in keys:
                values = list(map(itemgetter(key), of_form))
                types = set(map(type, values))
                if int in types:
                    columns.append(_column(values if len(types) == 1 else [0 if type(one) is not int else one
                                                                           for one in values]))  # fmt: skip
                    beyond += at[(columns[-1] <= -LARGEST) | (columns[-1] >= LARGEST)][:1].tolist()
                    numbers.setdefault(key, np.zeros(count, np.int64))[at] = columns[-1]
                if types != {int}:
                    words.append([one if type(one) in (str, bool) else type(one) for one in values])
            if words:
                told: dict[tuple[Any, ...], int] = {}
                places = (told.setdefault(one, len(told)) for one in zip(*words, strict=True))
                columns.append(np.fromiter(places, np.int32, len(at)))
                kind[at] = columns[-1] + len(firsts)
                firsts += at[np.unique(columns[-1], return_index=True)[1]].tolist()
            else:
                kind[at] = len(firsts)
                firsts.append(int(at[0]))
            same[at] = _alike(columns, len(at)) + alike
            alike = int(same[at].max()) + 1
        kinds, queues = self._kinds(firsts, beyond)
        order = np.argsort(np.argsort(firsts)).astype(np.int32)
        return Steps(kinds, order[kind], same, numbers, self._spans), queues

    def _by_form(self) -> Iterator[tuple[tuple[str, ...], NDArray[np.int32]]]:
        """The keys of each form, and the steps that have it."""
        forms = np.frombuffer(self._forms, np.int32)
        order = np.argsort(forms, kind="stable").astype(np.int32)
        by_form = np.split(order, np.cumsum(np.bincount(forms))[:-1])
        for form_of in self._form_of.values():
            for keys, form in form_of.items():
                yield keys, by_form[form]

    def _lay_out(self, tables: list[dict[str, Any]], scope: int, depth: int) -> None:
        form_of = self._form_of.setdefault(scope, collections.defaultdict(self._next_form.__next__))
        for table in tables:
            self._tables.append(table)
            self._forms.append(form_of[tuple(table)])
            if "step" in table:
                number, inner = len(self._tables) - 1, table["step"]
                if depth == DEEPEST_LOOP or not isinstance(inner, list) or not all(type(one) is dict for one in inner):
                    self._odd.append(number)
                    continue
                self._lay_out(inner, self._scope(scope, table.get("index")), depth + 1)
                self._spans[number] = len(self._tables) - number

    def _scope(self, around: int, index: object) -> int:
        if not isinstance(index, str):
            return around
        found = self._scopes.setdefault((around, index), len(self._known))
        if found == len(self._known):
            self._known.append(self._known[around] | {index})
        return found

    def _kinds(self, firsts: list[int], beyond: list[int]) -> tuple[tuple[Kind, ...], tuple[str, ...]]:
        """What kinds' first steps say, in their order, and the queues; looks at all steps that may be wrong."""
        found: dict[int, Kind] = {}
        scope_of = {form: scope for scope, forms in self._form_of.items() for form in forms.values()}
        try:
            for number in sorted({*firsts, *beyond, *self._odd}):
                if number >= MOST_STEPS:
                    break
                found[number] = _said(self._tables[number], self._known[scope_of[self._forms[number]]])
                if number in self._odd:
                    raise UsageError(f": loops nest deeper than {DEEPEST_LOOP}: expected fewer")
            number = MOST_STEPS
            if len(self._tables) > MOST_STEPS:
                raise UsageError(f": more than {MOST_STEPS} steps: expected fewer, or loops")
            queues = dict.fromkeys(one.words["queue"] for one in found.values() if one.verb in ("work", "copy")
                                   and "queue" in one.words)  # fmt: skip
            for number, one in found.items():  # noqa: B007 where it is, for the error
                _check_queues(one, queues)
        except UsageError as wrong:
            raise UsageError(f"{self._name}: {_place(self._spans, number)}{wrong}") from None
        return tuple(found.values()), tuple(queues)


def _column(values: list[int]) -> NDArray[np.int64]:
    """Whole numbers as a column; those beyond 63 bits as one that is too large."""
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return np.array([max(-LARGEST, min(value, LARGEST)) for value in values], np.int64)


def _alike(columns: list[NDArray[Any]], count: int) -> NDArray[np.int64]:
    """Of each of so many rows of some columns a number that it has in common with those that are like it, from 0."""
    found: NDArray[Any] = np.zeros(count, np.int32)
    for column in columns:
        if (column != column[0]).any():
            of = np.unique(column, return_inverse=True)[1]
            found = np.unique(found * len(of) + of, return_inverse=True)[1] if found.any() else of
    return found


def _check_queues(said: Kind, queues: Mapping[str, None]) -> None:
    """UsageError, beginning behind the step's place, where it names a queue which nothing is put into."""
    for key in _QUEUE_KEYS:
        named = said.words.get(key)
        if named is not None and named not in queues and not (key == "sync" and named == "all"):
            raise UsageError(
                f".{key}: nothing is put into a queue '{named}': expected one of {', '.join(queues) or 'none'}"
            )
    if said.verb == "after" and said.words["after"] == said.words["queue"]:
        raise UsageError(f": queue '{said.words['queue']}' after itself: expected another")


def _said(table: Mapping[str, Any], known: AbstractSet[str]) -> Kind:
    """What a table says, checked, but for the tables of steps in it; UsageError, beginning behind its place."""
    verbs = _VERBS.keys() & table.keys()
    if len(verbs) != 1:
        found = " and ".join(verb for verb in _VERBS if verb in verbs) or "no verb"
        raise UsageError(f": {found}: expected one of {', '.join(_VERBS)}")
    (verb,) = verbs
    said = checked(table, _SHAPES[verb], "")
    if said.get("index") in known:
        raise UsageError(f".index: the name '{said['index']}' is taken: expected another")
    formulas = {key: value for key, value in said.items() if isinstance(value, Formula)}
    for key, value in formulas.items():
        _check_names(value, known, f".{key}")
    words = {key: value for key, value in said.items() if isinstance(value, str)}
    numbers = frozenset(key for key, value in said.items() if type(value) is int)
    return Kind(verb, numbers, formulas, words, bool(said.get("begun")), bool(said.get("in_place")), "when" in said)
