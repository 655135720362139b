"""Variables of a launch's environment: which of them hold a secret, and what is stored and shown in place of one.

A value is a secret by its variable's name alone. Whatever writes a variable down (run folder, report, terminal) goes
through `shown`; every other value is stored as it is, since a launch is understood by it. This module imports nothing
heavy.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping

from linkgauge.errors import UsageError

# Whole words of a name, between underscores; those of the second row also as a part of a word (APIKEY, MYTOKEN2).
_SECRET = re.compile(
    r"(^|_)(KEYS?|AUTH|AUTHORIZATION|COOKIES?|PASS|PWD)(?=_|\d*$)"
    r"|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE_?KEY|API_?KEY|ACCESS_?KEY"
)
_NO_SECRET = ("PWD", "OLDPWD")  # the shell's own: a folder
_STAND_IN = re.compile(r"hidden-[0-9a-f]{16}")
_ROUNDS = 100_000  # 0.05 to 0.15 s a guess, and once for each value of a run


def is_secret(name: str) -> bool:
    """Whether a variable of this name is taken to hold a secret."""
    return name.upper() not in _NO_SECRET and _SECRET.search(name.upper()) is not None


def is_stand_in(name: str, value: str) -> bool:
    """Whether this is what is stored in place of a secret."""
    return is_secret(name) and _STAND_IN.fullmatch(value) is not None


@functools.lru_cache(maxsize=256)
def stand_in(name: str, value: str) -> str:
    """What is stored in place of a secret: equal for equal values of one variable, in every run.

    PBKDF2 with the name as salt (RFC 8018), cut to 64 bits: the value cannot be had from it but by guessing, each guess
    at the cost of _ROUNDS hashes. A value that is easily guessed (a word) is no secret to who has the run folder.
    """
    digest = hashlib.pbkdf2_hmac("sha256", value.encode(errors="surrogateescape"), name.encode(), _ROUNDS, 8)
    return f"hidden-{digest.hex()}"


def shown(environment: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, str]:
    """The variables as they may be stored and shown, secrets as their stand-ins. One that is already stays."""
    return {
        name: stand_in(name, value) if is_secret(name) and not is_stand_in(name, value) else value
        for name, value in dict(environment).items()
    }


def given_variable(word: str, environment: Mapping[str, str]) -> tuple[str, str | None]:
    """Name and text of `NAME=text`; of `NAME` alone None: its value is that of `environment`, and not in any `ps`.

    UsageError where it is no name, or has no value there.
    """
    name, equals, text = word.partition("=")
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
        raise UsageError(f"--env '{word}': expected NAME=VALUE, or NAME of a variable of this environment")
    if not equals and name not in environment:
        raise UsageError(f"--env '{name}': expected NAME=VALUE, or a variable of this environment, which has no {name}")
    return name, text if equals else None


def split_values(text: str) -> list[str]:
    """The values of `--env NAME=text`: a comma inside a value is written `\\,`."""
    return [part.replace("\\,", ",") for part in re.split(r"(?<!\\),", text)]
