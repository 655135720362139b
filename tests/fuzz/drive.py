"""Fuzzes one target with atheris: `python tests/fuzz/drive.py TARGET --seconds 300 [--keep FOLDER]`.

Exit status 0: nothing was found. Else libFuzzer's, and the input that breaks the reader lies in the folder named last
(crash-..., timeout-..., oom-...): put it into tests/fuzz/corpus/TARGET/ under a telling name when the reader is mended.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[1])]

import atheris  # noqa: E402  # after the path, as all that it instruments

from fuzz import hostile  # noqa: E402

with atheris.instrument_imports(include=["linkgauge"], enable_loader_override=False):
    from fuzz import targets

MEMORY_MIB = 2048
LONGEST_BYTES = 20_000
SLOWEST_S = 60  # one input; a busy machine is no hang


def main() -> None:
    """Write the seeds and the found inputs into a folder, and fuzz from there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=sorted(targets.TARGETS))
    parser.add_argument("--seconds", type=int, default=300, help="how long")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn; 0: another at each start")
    parser.add_argument("--keep", type=Path, help="where the inputs that reach new code are kept; a private folder")
    asked = parser.parse_args()
    targets.TARGETS[asked.target](targets.seeds(asked.target)[0])  # imports what is imported late, before it is timed
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="linkgauge-corpus-"))
    folder.mkdir(parents=True, exist_ok=True)
    found = [path.read_bytes() for path in targets.found(asked.target)]
    for number, content in enumerate([*targets.seeds(asked.target), *found]):
        (folder / f"seed-{number:03d}").write_bytes(content)
    print(f"{asked.target}: inputs in {folder}", flush=True)
    os.chdir(folder)  # what breaks the reader is written to the folder at hand
    words = [f"-max_total_time={asked.seconds}", f"-timeout={SLOWEST_S}", f"-rss_limit_mb={MEMORY_MIB}"]
    words += [f"-max_len={LONGEST_BYTES}", "-print_final_stats=1", f"-seed={asked.seed}"]

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        """Every other time bytes as libFuzzer changes them; else a change that a parser does not notice."""
        generator = random.Random(seed)
        if generator.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return hostile.mutant(asked.target, data, generator)[:most]

    # libFuzzer ends its process without Python's farewell, so another one removes the folder of the targets.
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    atheris.Setup([sys.argv[0], *words, str(folder)], targets.TARGETS[asked.target], custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
