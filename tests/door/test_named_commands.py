"""Every command of ours and every flag that a text names is one that the real parser takes: a fix can be followed.

Looked at are the literals of the sources, all help, the README, and the pages under docs/ but those of results, which
say what was typed when they were made.
"""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from _site import pages

from door.syntax import nodes
from linkgauge.app import cli

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "linkgauge"
DOCS = ROOT / "docs"
_OF_RESULTS = ("results", "measured")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(page for page in sorted(DOCS.rglob("*.md")) if page.relative_to(DOCS).parts[0] not in _OF_RESULTS),
]
# Flags of programs that are not ours: whose.
OTHERS = {
    "--showtopo": "rocm-smi's",
    "--show-fec": "ethtool's",
    **dict.fromkeys(("--all", "--newest", "--approve", "--external", "--pack"), "./lg's"),
    **dict.fromkeys(("--faults", "--durations"), "pytest's, by ./lg test"),
    **dict.fromkeys(("--count", "--seconds", "--differences", "--slurm", "--loudest", "--seeds",
                     "--without", "--missed", "--only", "--near"),
                    "of this checkout's tests and tools"),
    **dict.fromkeys(("--build", "--test-dir", "--prefix"), "CMake's, CTest's, and of configure scripts"),
    **dict.fromkeys(("--find-links", "--no-index", "--no-compile", "--no-deps", "--target", "--pip-args"),
                    "pip's, pipx's"),
    "--build-arg": "Docker's", "--exclude": "tar's",
    "--include": "mmdebstrap's",
    **dict.fromkeys(("--bind-to", "--map-by", "--oversubscribe", "--mca", "--machinefile", "--hostfile", "--host"),
                    "mpiexec's"),
    **dict.fromkeys(("--cpu-bind", "--cpus-per-task", "--immediate", "--mem", "--export", "--kill-on-bad-exit",
                     "--nodelist", "--ntasks", "--ntasks-per-node", "--overcommit", "--delimiter", "--expand",
                     "--requires"), "Slurm's and Flux's"),
    **dict.fromkeys(("--cpunodebind", "--cpus", "--ulimit", "--ipc", "--shm-size", "--cap-add", "--security-opt"),
                    "numactl's and containers'"),
    **dict.fromkeys(("--rm", "--network", "--device", "--nv", "--rocm"), "docker's and Apptainer's"),
    **dict.fromkeys(("--native", "--pid"), "py-spy's"),
    **dict.fromkeys(("--device-as-default-execution-space", "--gpu-architecture", "--include-path", "--offload-arch",
                     "--relocatable-device-code", "--std"), "of device compilers"),
    **dict.fromkeys(("--include-blobs", "--trace", "--type"), "nsys'"),
    **dict.fromkeys(("--showrasinfo", "--showxgmierr", "--showid", "--setperflevel", "--resetpoweroverdrive",
                     "--gpureset", "--setcomputepartition", "--setmemorypartition"), "rocm-smi's"),
    **dict.fromkeys(("--porcelain", "--untracked-files"), "git's"),
    "--query": "mlxfwmanager's",
    **dict.fromkeys(("--use", "--whole-io"), "perftest's --use_cuda, lstopo's"),
    "--help": "every command's",
    "--version": "linkgauge's own",
}  # fmt: skip
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
COMMAND = re.compile(r"(?<![\w./-])(?<!from )(?<!import )linkgauge ([^`\n]*)")
_SHELL_GOES_ON = re.compile(r"\s(?:[|;&>#<]|2>|\\$)")
_SENTENCE_GOES_ON = re.compile(r"\s\s|[,;:)](?:\s|$)|\.(?:\s|$)")

_NAMES = {one.name for one in cli.COMMANDS}


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a Python file with their lines, of a text with values between `{` and `}` VALUE for each."""
    tree = nodes(path)
    inside = {id(part) for node in tree if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in tree:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
            yield node.lineno, "".join(map(str, parts))


@functools.cache
def texts() -> list[tuple[str, str]]:
    """Where each text is, and the text."""
    return list(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for line, text in literals(path):
            yield f"{path.relative_to(ROOT)}:{line}", text
    for path in sorted((ROOT / "core").rglob("*.cpp")):
        joined = re.sub(r'"\s*\n\s*"', "", path.read_text())
        for match in re.finditer(r'"((?:[^"\\\n]|\\.)*)"', joined):
            yield str(path.relative_to(ROOT)), match[1]
    for path in sorted(SOURCE.rglob("*.toml")):
        for line, text in enumerate(path.read_text().splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{line}", text
    for path in PAGES:
        # Fences that run a command, and parts that are made from the program, as the site has them.
        for line, text in enumerate(pages.expand(path.stem, path.read_text(), None).splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{line}", text
    for words, command in commands().items():
        context = click.Context(command, info_name=" ".join(["linkgauge", *words]))
        yield f"linkgauge {' '.join(words)} --help", command.get_help(context)


def commands() -> dict[tuple[str, ...], click.Command]:
    """Every command by its words, groups too."""
    found: dict[tuple[str, ...], click.Command] = {(): cli.ROOT}
    waiting: list[tuple[tuple[str, ...], click.Command]] = [((), cli.ROOT)]
    while waiting:
        words, command = waiting.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None, name
                found[(*words, name)] = below
                waiting.append(((*words, name), below))
    return found


def flags_of(command: click.Command) -> set[str]:
    taken = command.get_params(click.Context(command))  # its help's own too
    return {flag for one in taken for flag in (*one.opts, *one.secondary_opts) if flag.startswith("--")}


def named_commands(text: str) -> Iterator[tuple[list[str], bool]]:
    """The words of our commands in a text, and whether they are quoted, so that they end where the quotes do."""
    for match in COMMAND.finditer(text):
        mark = text[match.start() - 1 : match.start()]
        quoted = mark != "" and mark in "'`\""
        line = re.split(mark + r"(?!\w)", match[1])[0] if quoted else _SENTENCE_GOES_ON.split(match[1])[0]
        line = _SHELL_GOES_ON.split(line)[0]
        try:
            words = shlex.split(line)
        except ValueError:
            words = line.split()
        if words and words[0] not in ("VALUE", "COMMAND") and (quoted or words[0] in _NAMES):
            yield ["VALUE" if word == "..." else _bare(word) for word in words], quoted


def _bare(word: str) -> str:
    """Without the brackets of what may be left out; those of `n[0-7]` stay."""
    return word.strip("[]") if word.startswith("[") or "[" not in word else word


def wrong(words: list[str], quoted: bool) -> str:
    """What the parser says of our command of these words; nothing where it takes them."""
    command: click.Command = cli.ROOT
    context = click.Context(command, info_name="linkgauge")
    while isinstance(command, click.Group) and words and not words[0].startswith("-") and words[0] != "OPTIONS":
        for name in words[0].split("|"):
            below = command.get_command(context, name)
            if below is None:
                return f"no command '{name}'"
        command, words = below, words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    words = [word for word in words if word not in ("OPTIONS", "ARGS]...")]
    if words and words[-1].startswith("-"):
        words.append("VALUE")  # a flag that is named alone
    try:
        _, left, _ = command.make_parser(context).parse_args(list(words))
    except click.UsageError as error:
        return error.format_message()
    left = [word for word in left if word != "VALUE"]
    return f"more words than it takes: {left}" if quoted and left else ""


def test_every_command_that_a_text_names_is_one() -> None:
    faults = [f"{where}: linkgauge {shlex.join(words)}: {said}" for where, text in texts()
              for words, quoted in named_commands(text) if (said := wrong(words, quoted))]  # fmt: skip
    assert not faults, "\n".join(faults)


def test_every_flag_that_a_text_names_is_one() -> None:
    ours = {flag for one in commands().values() for flag in flags_of(one)}
    known = {*ours, *OTHERS}
    faults = [f"{where}: {flag}" for where, text in texts() for flag in FLAG.findall(text) if flag not in known]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("'linkgauge show --cases failed' lists them", "No such option '--cases'"),
        ("see `linkgauge frobnicate`", "no command 'frobnicate'"),
        ("Example: linkgauge run --sizes 8", "No such option '--sizes'"),
        ("$ linkgauge tune --time-limit 5m --pattern allreduce", ""),
        ("linkgauge list devices|patterns|colors", "no command 'colors'"),
        ("'linkgauge show RUN MORE'", "more words"),
    ],
)
def test_a_command_that_does_not_exist_is_found(text: str, said: str) -> None:
    ((words, quoted),) = named_commands(text)
    assert said in wrong(words, quoted)
    assert bool(said) == bool(wrong(words, quoted))
