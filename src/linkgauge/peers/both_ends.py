"""One end of a program that is a server and a client: `python -I -S both_ends.py GUARD JSON`, under an MPI launcher.

The JSON has `rank_variables`, in which a launcher tells a process its rank, and the commands `client`, of rank 0, and
`server`, of rank 1. Only what the client says is printed, unless the server fails. A client that comes too early fails,
and is started again for ten seconds.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # -I and -S leave the packages out

from linkgauge.children import NoAnswerError, output_of  # after the path

_HEAD_START_S = 0.3  # by which a server of the same node is ready
_PATIENCE_S = 10.0
_PAUSE_S = 0.5


def main() -> None:
    """Be the end that this process' rank is."""
    guard, ends = sys.argv[1], json.loads(sys.argv[2])
    rank = next((os.environ[name] for name in ends["rank_variables"] if name in os.environ), None)
    if rank not in ("0", "1"):
        sys.exit(f"rank {rank}: expected 0 or 1 in one of {', '.join(ends['rank_variables'])}")
    command = [sys.executable, "-I", "-S", guard, str(os.getpid()), *ends["server" if rank == "1" else "client"]]
    last = time.monotonic() + _PATIENCE_S
    if rank == "0":
        time.sleep(_HEAD_START_S)
    while True:
        try:
            done = output_of(command, None, together=True)
        except NoAnswerError as why:
            sys.exit(f"the {'server' if rank == '1' else 'client'} {why}")
        if done.returncode == 0 or rank == "1" or time.monotonic() > last:
            break
        time.sleep(_PAUSE_S)
    if rank == "0" or done.returncode != 0:
        sys.stdout.write(done.stdout)
    sys.exit(abs(done.returncode))


if __name__ == "__main__":
    main()
