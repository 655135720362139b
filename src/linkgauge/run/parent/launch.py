"""One launch from start to end: folders, processes, watching, and what is left when it is over."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.children import MOST_OUTPUT_BYTES, why_too_long
from linkgauge.errors import EnvironmentLackingError
from linkgauge.files import why_nothing_starts
from linkgauge.model.case import Case
from linkgauge.model.device_words import device_noun
from linkgauge.plan.launches import LaunchSettings
from linkgauge.run.launchers import launcher_for
from linkgauge.run.launchers.base import LaunchRequest, library_environment
from linkgauge.run.machine import processes
from linkgauge.run.machine.environment import package_environment, worker_environment
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.private_folder import LaunchFolders, PrivateFolders
from linkgauge.run.parent.launch_end import FirstEnd, LaunchEnd, stuck_load
from linkgauge.run.parent.prepared import Prepared
from linkgauge.run.parent.watch import LaunchWatch, Trouble
from linkgauge.run.wire import evidence, token
from linkgauge.run.wire.heartbeat import COUNT, PID, HeartbeatFile
from linkgauge.run.wire.node_beats import NodeBeats, place_of
from linkgauge.run.wire.spec import WorkerSpec, rank_list
from linkgauge.store.journal import Record

# A look takes a quarter of a millisecond of a core (where ranks have them all, from a rank), some looks ten times that.
_LOOK_EVERY_S = 0.2
_GONE_LOOK_S = 2.0
_GONE_PATIENCE_S = 8.0  # a moment, but on a loaded machine
_STUCK_LOOK_S = 0.5
_LEFT_PATIENCE_S = 12.0  # of ranks on other nodes: a reporter that lives is back by then
_MOST_NAMED = 8
_GUARD = Path(__file__).with_name("guard.py")


@dataclasses.dataclass(eq=False)
class Launch:
    """A launch that is being run. `run` does it all; `stop` and `abort` may be called from a signal handler.

    EnvironmentLackingError where there is no room for its heartbeats.
    """

    _spec: WorkerSpec
    _mpi: MpiInstallation | None
    _env: Mapping[str, str]
    _settings: LaunchSettings
    _prepared: Prepared
    _folders: PrivateFolders
    _own: LaunchFolders  # one of these, in which the spec's paths lie
    _waits: Callable[[], bool] = lambda: False  # as LaunchWatch takes it

    def __post_init__(self) -> None:
        """Make what is there before the ranks are."""
        self._evidence = Path(self._spec.evidence)
        self._output = self._own.temporary / "output.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._aborted = False
        self._spec_path: Path | None = None
        self._looked_at = self._gone_at = 0.0
        self._gone_rank = -1
        try:
            self._heartbeat = HeartbeatFile(Path(self._spec.heartbeat), self._spec.ranks, create=True)
        except OSError as error:
            raise EnvironmentLackingError(f"cannot make {self._spec.heartbeat}: {error.strerror}") from None
        self._other_nodes: NodeBeats | None = None
        self._has_loads = any(entry.case.background.within for entry in self._spec.cases)
        self._first_end = FirstEnd()

    def stop(self) -> None:
        """Ask the ranks to end after the case in hand."""
        self._heartbeat.request_stop()

    def abort(self) -> None:
        """End at the next look, case in hand or not."""
        self._aborted = True

    def run(self, on_record: Callable[[Record], None], on_look: Callable[[LaunchWatch], None]) -> LaunchEnd:
        """Start the launch, follow it until it is over, and clean up after it.

        `on_record` gets each record of the journal, `on_look` is called some five times a second. Both may raise: the
        launch is then ended first.
        """
        entries = {entry.key: entry for entry in self._spec.cases}
        watch = LaunchWatch(
            Path(self._spec.journal),
            self._heartbeat,
            entries,
            self._prepared.machine,
            hung_after_s=self._prepared.hung_after_s,
            devices=self._spec.devices,
            waits=self._waits,
        )
        try:
            self._start()
            trouble = self._follow(watch, on_record, on_look)
            return self._conclude(watch, trouble, on_record)
        finally:
            self._end_processes()
            if self._spec_path is not None:
                with contextlib.suppress(OSError):  # of a folder that vanished or became read-only
                    self._spec_path.unlink(missing_ok=True)
                shutil.rmtree(self._spec_path.with_suffix(".links"), ignore_errors=True)
            self._first_end.close()
            if self._other_nodes is not None:
                self._other_nodes.close()
            self._folders.remove_launch(self._own)

    def _start(self) -> None:
        # Beside the journal, which ranks of other nodes can read where the run folder is shared between nodes.
        spec_path = self._spec_path = Path(self._spec.journal).with_suffix(".json")
        try:
            self._evidence.mkdir(exist_ok=True)
            self._spec.write(spec_path)
            if self._mpi is not None:
                place = place_of(Path(self._spec.journal))
                self._other_nodes = NodeBeats(self._heartbeat, place, self._spec.token)
        except OSError as error:
            raise EnvironmentLackingError(f"cannot write {error.filename or spec_path}: {error.strerror}") from None
        own = worker_environment(self._own)
        if self._mpi is not None:
            # A link to the library is to be there on every node: beside the journal, as what the ranks read.
            links = spec_path.with_suffix(".links") if self._settings.hosts else self._own.temporary
            links.mkdir(exist_ok=True)
            own |= library_environment(self._mpi, links)
        request = LaunchRequest(
            ranks=self._spec.ranks,
            command=[*self._prepared.worker, str(spec_path)],
            env={**own, **self._env},
            folders=self._own,
            launcher_args=self._settings.launcher_args,
            hosts=self._settings.hosts,
            others_stay=self._has_loads,
            beside=bool(self._spec.load) or any(entry.case.background.own_launches for entry in self._spec.cases),
        )
        launcher = launcher_for(self._mpi)
        environment = {**package_environment(), **launcher.environment(request), **request.env}
        command = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *launcher.command(request)]
        try:
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=self._own.temporary,
                    start_new_session=True,  # Ctrl-C at the terminal is the parent's alone
                )
        except OSError as error:
            why = why_nothing_starts(error) or f"{error.filename or self._output}: {error.strerror}"
            raise EnvironmentLackingError(f"a launch cannot be started: {why}") from None
        token.give(self._spec.token, self._process.stdin)

    def _follow(
        self, watch: LaunchWatch, on_record: Callable[[Record], None], on_look: Callable[[LaunchWatch], None]
    ) -> Trouble | None:
        assert self._process is not None
        noted = False
        news = [self._first_end.file, *([] if self._other_nodes is None else [self._other_nodes.closings.fileno()])]
        with processes.EndOf(self._process.pid, *news) as end:
            while self._process.poll() is None:
                for record in watch.new_records():
                    on_record(record)
                if watch.launch_record is not None and not noted:
                    noted = True
                    # Only what the ranks have said: a look at all processes takes 20 ms of a core, beside the first
                    # case.
                    self._note(evidence.said_segments(self._evidence))
                    self._first_end.watch(self._heartbeat)
                    if self._other_nodes is not None:
                        self._other_nodes.listen(str(rank["host"]) for rank in watch.launch_record["ranks"])
                unheard: frozenset[int] = frozenset()
                if self._other_nodes is not None:
                    self._other_nodes.look()
                    unheard = self._other_nodes.unheard
                on_look(watch)
                trouble = watch.trouble(unheard) or self._gone(watch) or self._too_long()
                if trouble is not None or self._aborted:
                    return trouble
                end.wait(_LOOK_EVERY_S)
                self._first_end.look()
        return None

    def _gone(self, watch: LaunchWatch) -> Trouble | None:
        """A rank that is gone while its launcher goes on: most launchers notice, and then know how the rank ended."""
        now = time.monotonic()
        if watch.ended or now - self._looked_at < _GONE_LOOK_S:
            return None
        self._looked_at = now
        for rank in range(self._spec.ranks):
            pid = self._heartbeat.word(rank, PID)
            if pid and processes.state_of(pid) in ("", "Z"):
                if self._gone_rank != rank:
                    self._gone_rank, self._gone_at = rank, now
                if now - self._gone_at < _GONE_PATIENCE_S:
                    return None
                return Trouble("crashed", f"rank {rank} (process {pid}) is gone and its launcher went on")
        self._gone_rank = -1
        left = self._other_nodes.left if self._other_nodes is not None else {}
        for rank, since in left.items():
            if now - since >= _LEFT_PATIENCE_S:
                return Trouble("crashed", f"{self._named(rank, watch)} closed its connection {now - since:.0f} s ago "
                               "and its launcher went on: its process ended, or its node", (rank,))  # fmt: skip
        return None

    def _too_long(self) -> Trouble | None:
        """A launch that prints without end fills the folder of temporary files, which is often memory."""
        why = why_too_long(self._output.stat().st_size, max(MOST_OUTPUT_BYTES, self._spec.ranks << 20))
        return Trouble("crashed", f"the launch {why}: expected less; set its libraries' logs lower") if why else None

    def _note_segments(self) -> None:
        mapped = processes.mapped_files(processes.marked(self._own.token), shared=True)
        self._note(mapped | evidence.said_segments(self._evidence))

    def _note(self, mapped: set[Path]) -> None:
        inside = (self._own.temporary, self._own.segments)
        outside = [path for path in mapped if not any(folder in path.parents for folder in inside)]
        self._folders.note_segments(outside)

    def _conclude(self, watch: LaunchWatch, trouble: Trouble | None, on_record: Callable[[Record], None]) -> LaunchEnd:
        assert self._process is not None
        found: dict[str, Any] = {}
        if self._other_nodes is not None:
            self._other_nodes.look()
        if (first := self._ended_first()) is not None:
            found["first_rank"] = first
        if trouble is not None and not watch.ended:
            words = self._heartbeat.words().copy()
            found["ranks"] = evidence.rank_states(self._heartbeat)
            found["stacks"] = evidence.ask_for_stacks(self._heartbeat, self._evidence)
            if self._has_loads and watch.in_hand is not None:
                time.sleep(_STUCK_LOOK_S)
                found["stuck_load"] = stuck_load(
                    watch.in_hand.case, self._spec.devices, [words, self._heartbeat.words().copy()]
                )
        self._end_processes()
        for record in watch.new_records():
            on_record(record)
        output = evidence.last_lines(self._output)
        notes = evidence.notes(self._evidence)
        end = LaunchEnd(started=watch.launch_record is not None, ended=watch.ended, blamed=watch.in_hand)
        end.cannot_record = next(
            (note["reason"] for note in notes if note.get("kind") == evidence.NoteKind.JOURNAL), ""
        )
        if watch.ended or self._aborted:
            return dataclasses.replace(end, blamed=None)
        if output:
            found["output"] = output
        failure = evidence.failure_of(self._evidence, end.blamed.case.case_key) if end.blamed is not None else None
        if failure is not None:
            # One rank failed and another waited for it where nothing could tell it so.
            reason = f"rank {failure['rank']}: {failure['reason']}"
            return dataclasses.replace(end, status="failed", reason=reason, evidence={**found, "failure": failure})
        # Ranks that were gone when the others' silence was noticed: they are the cause, whatever the launcher says.
        died = any(rank["pid"] and rank["state"] in ("gone", "ended") for rank in found.get("ranks", []))
        if trouble is None or (trouble.status == "hung" and died):
            return self._crashed(end, found, output, notes, watch)
        if trouble.status == "hung" and watch.in_hand is not None:
            silent, words = self._silent_ranks(watch.in_hand.case, watch)
            trouble = dataclasses.replace(trouble, reason=trouble.reason + words, ranks=silent)
        return dataclasses.replace(
            end, status=trouble.status, reason=trouble.reason, evidence=found, rank=self._of_one_node(trouble.ranks)
        )

    def _named(self, rank: int, watch: LaunchWatch) -> str:
        return evidence.named_rank(rank, watch.launch_record, device_noun({self._spec.runtime}))

    def _ended_first(self) -> int | None:
        """The rank that ended before all others, where that was seen; of another node the one that speaks for it."""
        if self._first_end.rank is not None:
            return self._first_end.rank
        first = self._other_nodes.first_left if self._other_nodes is not None else ()
        return first[0] if len(first) == 1 else None

    def _of_one_node(self, ranks: Sequence[int]) -> int | None:
        """One of these ranks where all are on one node, of which the failure then is."""
        places = {self._spec.node_of[rank] if self._spec.node_of else 0 for rank in ranks}
        return ranks[0] if len(places) == 1 else None

    def _silent_ranks(self, case: Case, watch: LaunchWatch) -> tuple[tuple[int, ...], str]:
        """Which ranks have stopped for sure; and in words those, or which are behind the others, and in which phase."""
        ranks = rank_list(case, self._spec.devices)
        at = {rank: (self._heartbeat.word(rank, COUNT), self._heartbeat.phase_name(rank)) for rank in ranks}
        alike = Counter(at.values())
        least = min(alike, key=lambda one: (alike[one], one[0]))
        behind = [rank for rank in ranks if at[rank] == least]
        stopped = [one for one in ranks if (pid := self._heartbeat.word(one, PID)) and processes.state_of(pid) == "T"]
        words = ", ".join(self._named(rank, watch) for rank in (stopped or behind)[:_MOST_NAMED])
        doing = evidence.doing(at[(stopped or behind)[0]][1])
        return tuple(stopped), f"; silent: {words}{' stopped' if stopped else ''}{doing}"

    def _crashed(
        self, end: LaunchEnd, found: dict[str, Any], output: list[str], notes: list[dict[str, Any]], watch: LaunchWatch
    ) -> LaunchEnd:
        assert self._process is not None
        found.setdefault("ranks", evidence.rank_states(self._heartbeat))
        stacks = evidence.written_stacks(self._evidence)
        if stacks:
            found["stacks"] = stacks
        launcher = launcher_for(self._mpi)
        how = evidence.how_it_ended(self._process.returncode, output, stacks)
        found |= how
        told = evidence.told_rank(output, found["ranks"]) if how["by"] == "launcher" else None
        if told is None:
            told = evidence.rank_told_of(output, watch.launch_record)
        if told is not None:
            found["told_rank"] = told
        first = found.get("first_rank")
        told = told if first is None else first
        left = self._other_nodes.first_left if self._other_nodes is not None else ()
        named = "a rank" if told is None else self._named(told, watch)
        if told is None and (left or (host := launcher.node_told_of(output))):
            host = evidence.host_of(left[0], watch.launch_record) if left else host
            named = f"a rank on {host}"
        at = "" if told is None else evidence.doing(self._heartbeat.phase_name(told))
        # By SIGKILL and SIGTERM launchers end the others when one has ended, and may tell of one of those.
        sure = first is not None or how.get("signal") not in evidence.ENDS_OTHERS
        rank = told
        if notes:
            # A rank that could say why is the cause; the signal of the others is the launcher's.
            found["notes"] = notes
            reason, rank = f"rank {notes[0]['rank']}: {notes[0]['reason']}", None
        elif "signal_name" in how:
            if how["by"] == "launcher itself":
                reason, rank = f"the launcher died of {how['signal_name']}", None
            else:
                reason = f"{named} died of {how['signal_name']}{at}"
                if how["by"] != "rank" and not sure and how["signal_name"] == "SIGKILL":
                    reason += ", or was ended by the launcher after another rank"
        else:
            said = "" if named == "a rank" else f"{named} ended first{at}; "
            words = launcher.plain(evidence.last_words(output))
            reason = f"{said}the launch ended with exit status {how['exit_status']}"
            if how["exit_status"] in launcher.fatal_statuses:
                reason += f", as after {evidence.signal_name(how['exit_status'])}"
            reason += f": {words}" if words else ""
            rank = None if first is None else rank  # a rank may end itself since another one is gone
        return dataclasses.replace(end, status="crashed", reason=reason, evidence=found, rank=rank if sure else None)

    def _end_processes(self) -> None:
        """End whatever is left: the launcher first by its id, then every process of the launch's mark."""
        process = self._process
        if process is None:
            return
        self._note_segments()
        if process.poll() is None:
            process.kill()
        processes.end_marked(self._own.token)
        process.wait()
