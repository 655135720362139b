"""Mutants of well-formed inputs that stay well-formed: bytes changed at random seldom get past a parser.

`mutant` changes values, keys and lines of TOML, JSON, journal records and printed logs into what a reader may not have
thought of: numbers beyond every type, texts with line breaks, names of a hundred million nodes, other types.
"""

from __future__ import annotations

import copy
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Numbers that json and tomllib cannot print or must not round are put in as text and lose their quotation marks.
_RAW = ("9" * 5000, "-" + "9" * 400, "1e999", "-1e999", "nan", "0x7fffffffffffffff", "1" + "0" * 300 + ".5")
_MARK = "raw number "
_VALUES: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**25,
    0.0, -0.0, 0.5, -1.5, 1e-320, 1.7e308, True, False, None, "", " ", "0", "-1", "1e999", "nan", "9" * 5000, "a\nb",
    "a\rb", "\0", "\x1b[31mred", "\u2028", "\ud7ff", "x" * 5000, "../../etc/passwd", "/dev/zero", "<b>&\"'",
    "{}", "%s%n",
    "gpu0..3", "gpu0..99999999", "gpu0..9" + "9" * 5000, "8:1TiB:x2", "0:1TiB:+1", "1:" + "9" * 30, "64KiB", "50 GB/s",
    "1e400 GB/s", [], [[]], [None], {}, {"": 1}, [1] * 300, ["a", 1], [[0, 1], [1, 0]], {"value": 1, "unit": "B/s"},
    *(_MARK + str(number) for number in range(len(_RAW))),
)  # fmt: skip
_DEEPEST = 60


def mutant(target: str, data: bytes, generator: random.Random) -> bytes:
    """`data` with one to three changes; `data` itself where nothing of it can be understood."""
    for _ in range(generator.choice((1, 1, 2, 3))):
        data = _mutators(target)(data, generator)
    return data


def _mutators(target: str) -> Callable[[bytes, random.Random], bytes]:
    return {
        "machine": _file,
        "amdsmi_answers": _json,
        "plan": _toml,
        "system": _either,
        "stored_plan": _json,
        "journal": _journal,
        "run_folder": _part,
        "step_file": _toml,
        "trace": _json_or_bytes,
        "search": _json,
        "node_answers": _json,
        "recording": _json,
        "counters": _json,
    }.get(target, _log)


def _either(data: bytes, generator: random.Random) -> bytes:
    return _json(data, generator) if data.lstrip()[:1] == b"{" else _toml(data, generator)


def _json_or_bytes(data: bytes, generator: random.Random) -> bytes:
    return _json(data, generator) if data.lstrip()[:1] in (b"[", b"{") else _bytes(data, generator)


def _toml(data: bytes, generator: random.Random) -> bytes:
    try:
        document = tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return _log(data, generator)
    return _without_marks("\n".join(_toml_lines(_changed(document, generator)))).encode(errors="surrogatepass")


def _json(data: bytes, generator: random.Random) -> bytes:
    try:
        document = json.loads(data)
        return _without_marks(json.dumps(_changed(document, generator))).encode(errors="surrogatepass")
    except (ValueError, RecursionError):
        return _log(data, generator)


def _without_marks(text: str) -> str:
    return re.sub(f'"{_MARK}(\\d+)"', lambda match: _RAW[int(match[1])], text)


def _journal(data: bytes, generator: random.Random) -> bytes:
    return data[:1] + (_records if data[:1] == b"\1" else _bytes)(data[1:], generator)


def _part(data: bytes, generator: random.Random) -> bytes:
    body = data[1:]
    if body.lstrip()[:1] == b"{":
        lines = b"\0" in body or body.count(b"\n{") > 0
        return data[:1] + (_records(body, generator) if lines else _json(body, generator))
    return data[:1] + _bytes(body, generator)


def _file(data: bytes, generator: random.Random) -> bytes:
    """One of a recorded machine's, after a byte that says which."""
    body = data[1:]
    if body.lstrip()[:1] == b"{":
        return data[:1] + _json(body, generator)
    return data[:1] + (_bytes if b"\0" in body else _log)(body, generator)


def _bytes(data: bytes, generator: random.Random) -> bytes:
    """Cut, or a few bytes of it others."""
    if generator.random() < 0.2:
        return data[: generator.randrange(len(data) + 1)]
    changed = bytearray(data)
    for _ in range(min(generator.choice((1, 1, 4)), len(data))):
        changed[generator.randrange(len(data))] ^= generator.randrange(1, 256)
    return bytes(changed)


def _records(data: bytes, generator: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = generator.randrange(len(lines))
    head, zero, payload = lines[at].partition(b"\0")
    choice = generator.randrange(10)
    if choice == 0:
        lines.insert(generator.randrange(len(lines) + 1), lines[at])
    elif choice == 1:
        del lines[at]
    elif choice == 2:
        lines[at] = head + zero + payload[: generator.randrange(len(payload) + 1)] + b"\xff"
    else:
        lines[at] = _json(head, generator).replace(b"\n", b" ").replace(b"\0", b" ") + zero + payload
    return b"\n".join(lines)


def _log(data: bytes, generator: random.Random) -> bytes:
    """Words, numbers and lines of a text changed."""
    lines = data.decode(errors="replace").split("\n")
    at = generator.randrange(len(lines))
    choice = generator.randrange(8)
    if choice == 0:
        lines.insert(generator.randrange(len(lines) + 1), lines[at])
    elif choice == 1 and len(lines) > 1:
        del lines[at]
    elif choice == 2:
        lines = lines[: at + 1]
    else:
        words = list(re.finditer(r"[A-Za-z_]+|[0-9.]+|[^\sA-Za-z0-9_]", lines[at]))
        if words:
            word = generator.choice(words)
            other = generator.choice([*_RAW, *(value for value in _VALUES if isinstance(value, (str, int, float)))])
            lines[at] = lines[at][: word.start()] + str(_printable(other)) + lines[at][word.end() :]
    return "\n".join(lines).encode(errors="surrogatepass")


def _printable(value: object) -> object:
    return _RAW[int(value[len(_MARK) :])] if isinstance(value, str) and value.startswith(_MARK) else value


def _places(document: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Each (container, key or index) of a document."""
    keys = list(document) if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in keys:
        yield document, key
        if depth < _DEEPEST:
            yield from _places(document[key], depth + 1)


def _changed(document: Any, generator: random.Random) -> Any:
    document = copy.deepcopy(document)
    places = list(_places(document))
    if not places:
        return generator.choice(_VALUES)
    holder, key = generator.choice(places)
    choice = generator.randrange(12)
    if choice == 0:
        del holder[key]
    elif choice == 1 and isinstance(holder, dict):
        holder[generator.choice(("", "x", "name", "case", str(key) + "s", "a\nb", "__class__"))] = holder.pop(key)
    elif choice == 2 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif choice == 3:
        other, name = generator.choice(places)
        holder[key] = copy.deepcopy(other[name])
    elif choice == 4:
        nested: Any = holder[key]
        for _ in range(generator.choice((1, 2, _DEEPEST))):
            nested = [nested]
        holder[key] = nested
    else:
        holder[key] = copy.deepcopy(generator.choice(_VALUES))
    return document


def _toml_lines(document: Any) -> Iterator[str]:
    if not isinstance(document, dict):
        yield f"name = {_toml_value(document)}"
        return
    tables = {key: value for key, value in document.items() if _is_tables(value)}
    for key, value in document.items():
        if key not in tables:
            yield f"{json.dumps(key)} = {_toml_value(value)}"
    for key, value in tables.items():
        for table in value:
            yield f"[[{json.dumps(key)}]]"
            for name, inner in table.items():
                yield f"{json.dumps(name)} = {_toml_value(inner)}"


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(inner) for inner in value) + "]"
    if value is None:
        return '""'
    if isinstance(value, (bool, str)):
        return json.dumps(value)
    return repr(value)
