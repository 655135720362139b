"""Formulas of step files: whole numbers of ranks, parameters and problem sizes. No code: a closed grammar, all checked.

numbers, names, + - * // %, / (which must leave no rest), comparisons (1 or 0), and, or, not, min(..), max(..),
ceil(a, b) (a / b rounded up), and A if C else B.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Mapping

from linkgauge.errors import UsageError, not_one_of

MOST_CHARACTERS = 400
LARGEST = 1 << 62  # of any number on the way: what the core's arrays hold
_DEEPEST = 30

Names = Mapping[str, int]
_Read = Callable[[Names], int]


class FormulaError(UsageError):
    """A formula that cannot be read, or has no value."""


@dataclasses.dataclass(frozen=True)
class Formula:
    """One formula: its text, the names that it asks for, and how its value is found."""

    text: str
    names: frozenset[str]
    read: _Read = dataclasses.field(compare=False, repr=False)

    def __call__(self, names: Names) -> int:
        """Its value; FormulaError with the formula and the reason where it has none."""
        try:
            return self.read(names)
        except FormulaError as error:
            raise FormulaError(f"'{self.text}': {error}") from None


def formula(value: object) -> Formula:
    """The formula of a whole number or a text; FormulaError where it is none."""
    found = number_or_formula(value)
    return found if isinstance(found, Formula) else _read(str(found))


def number_or_formula(value: object) -> int | Formula:
    """A whole number as it is, in a tenth of the time, and a text as a formula; FormulaError where it is neither."""
    if isinstance(value, str):
        return _read(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _no_formula(value)
    return _bounded(value)


def _no_formula(value: object) -> FormulaError:
    return FormulaError(f"'{str(value)[:40]}' is no formula: expected a whole number or a text as '8 * n // ranks'")


@functools.lru_cache(maxsize=1 << 14)  # many steps say the same
def _read(value: str) -> Formula:
    if not value.strip() or len(value) > MOST_CHARACTERS or not value.isascii():
        raise _no_formula(value)
    try:
        tree = ast.parse(value.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FormulaError(f"'{value[:80]}' is no formula: expected numbers, names and + - * / // % ( )") from None
    names: set[str] = set()
    read = _compiled(tree, names, 0, value)
    return Formula(value, frozenset(names), read)


def _bounded(number: int) -> int:
    if not -LARGEST < number < LARGEST:
        raise FormulaError("a number beyond 2^62: expected a smaller one")
    return number


def _quotient(a: int, b: int) -> int:
    if b == 0 or a % b:
        raise FormulaError(f"{a} / {b} is no whole number: expected one, or // to round down, ceil(a, b) to round up")
    return a // b


def _floor(a: int, b: int) -> int:
    if b == 0:
        raise FormulaError(f"{a} // 0: expected another divisor")
    return a // b


def _rest(a: int, b: int) -> int:
    if b == 0:
        raise FormulaError(f"{a} % 0: expected another divisor")
    return a % b


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.Div: _quotient,
    ast.FloorDiv: _floor, ast.Mod: _rest,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b, ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b, ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "min": min, "max": max, "ceil": lambda a, b: -_floor(-a, b),
}  # fmt: skip


def _compiled(node: ast.expr, names: set[str], depth: int, text: str) -> _Read:
    """What reads the value of a node; `names` gets those that it asks for."""
    if depth > _DEEPEST:
        raise FormulaError(f"'{text[:80]}' nests deeper than {_DEEPEST}: expected a simpler formula")

    def part(one: ast.expr) -> _Read:
        return _compiled(one, names, depth + 1, text)

    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            fixed = _bounded(number)
            return lambda known: fixed
        case ast.Name(id=name):
            names.add(name)
            return lambda known: _named(known, name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            a, b, apply = part(left), part(right), _OPERATIONS[type(op)]
            return lambda known: _bounded(apply(a(known), b(known)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = part(operand)
            return lambda known: -inner(known)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = part(operand)
            return lambda known: int(not inner(known))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            a, b, holds = part(left), part(right), _COMPARISONS[type(op)]
            return lambda known: int(holds(a(known), b(known)))
        case ast.BoolOp(op=ast.And(), values=values):
            parts = [part(one) for one in values]
            return lambda known: int(all(one(known) for one in parts))
        case ast.BoolOp(op=ast.Or(), values=values):
            parts = [part(one) for one in values]
            return lambda known: int(any(one(known) for one in parts))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            asked, yes, no = part(test), part(body), part(orelse)
            return lambda known: yes(known) if asked(known) else no(known)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            if len(args) < 2 or (name == "ceil" and len(args) != 2):
                raise FormulaError(f"'{text[:80]}': {name} of {len(args)}: expected 2 numbers")
            parts, function = [part(one) for one in args], _FUNCTIONS[name]
            return lambda known: function(*(one(known) for one in parts))
    raise FormulaError(
        f"'{text[:80]}' has what no formula has: expected whole numbers, names, + - * / // %, comparisons, and, or, "
        f"not, A if C else B, min, max and ceil"
    )


def _named(known: Names, name: str) -> int:
    try:
        return known[name]
    except KeyError:
        raise FormulaError(f"unknown name '{name}'{not_one_of(name, known)}") from None
