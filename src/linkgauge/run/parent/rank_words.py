"""Ranks that are started only to say something: a program under a launcher, and what each of them prints."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
from collections.abc import Sequence
from typing import Any

from linkgauge.children import NoAnswerError, output_of
from linkgauge.model.shape import MisshapenError, Shape, each
from linkgauge.run.launchers import launcher_for
from linkgauge.run.launchers.base import LaunchRequest, library_environment
from linkgauge.run.machine import processes
from linkgauge.run.machine.environment import package_environment, worker_environment
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.private_folder import PrivateFolders
from linkgauge.run.wire.evidence import last_words

# srun passes lines of a kilobyte or so on whole, and puts other ranks' words into longer ones.
_PIECE = 400
_PIECES = re.compile(r"LINKGAUGE ([0-9a-f]{16}) ([0-9]{1,6})/([0-9]{1,6}) ([A-Za-z0-9+/=]*)\.")
_NUMBER = -1  # as of a launch: no run has it


def say(what: Any) -> None:
    """Say `what` as a rank, in short lines of one call each, so that other ranks' words do not come into them."""
    words = base64.b64encode(json.dumps(what).encode()).decode()
    pieces = [words[at : at + _PIECE] for at in range(0, len(words), _PIECE)]
    speaker = os.urandom(8).hex()
    for number, piece in enumerate(pieces, 1):
        os.write(1, f"LINKGAUGE {speaker} {number}/{len(pieces)} {piece}.\n".encode())


def _heard(text: str) -> list[Any]:
    """What was said in full. A launcher may put the ranks' output into one line, in any order."""
    pieces: dict[tuple[str, int], dict[int, str]] = {}
    for speaker, number, count, piece in _PIECES.findall(text):
        pieces.setdefault((speaker, int(count)), {})[int(number)] = piece
    said = []
    for (_, count), found in pieces.items():
        if sorted(found) == list(range(1, count + 1)):
            with contextlib.suppress(ValueError, RecursionError):
                said.append(json.loads(base64.b64decode("".join(found[number] for number in sorted(found)))))
    return said


def shaped(said: list[Any] | str, shape: Shape) -> list[Any] | str:
    """What ranks said, each of a shape; or in one sentence that it is of another, as another version's is."""
    try:
        return said if isinstance(said, str) else list(each(shape)(said, "what ranks said"))
    except MisshapenError as wrong:
        return f"{wrong}; is it the same Linkgauge on all nodes?"


def words_of_ranks(
    mpi: MpiInstallation,
    ranks: int,
    command: Sequence[str],
    launcher_args: Sequence[str] = (),
    folders: PrivateFolders | None = None,
    timeout_s: float = 30,
    hosts: Sequence[str] = (),
    number: int = _NUMBER,
) -> list[Any] | str:
    """What so many ranks of a command said, in no order; or in one sentence why they could not be started.

    `folders`: those of this process, where it has any in use. `number`: below 0, another one than that of any other
    such start that goes on meanwhile.
    """
    own = folders or PrivateFolders()
    launch = own.launch(number)
    try:
        request = LaunchRequest(
            ranks=ranks,
            command=command,
            env={**worker_environment(launch), **library_environment(mpi, launch.temporary)},
            folders=launch,
            launcher_args=launcher_args,
            hosts=hosts,
        )
        launcher = launcher_for(mpi)
        environment = {**package_environment(), **launcher.environment(request), **request.env}
        try:
            command = launcher.command(request)
            done = output_of(command, timeout_s, env=environment, cwd=launch.temporary, start_new_session=True)
        except NoAnswerError as why:
            return f"{mpi.launcher} for {ranks} ranks {why}"
        said = _heard(done.stdout)
        if done.returncode != 0 or not said:
            words = last_words((done.stderr or done.stdout).splitlines())
            return f"{mpi.launcher} ended with {done.returncode}: {words or 'it said nothing'}"
        return said
    finally:
        processes.end_marked(launch.token)
        own.remove_launch(launch)
        if folders is None:
            own.close()
