"""The nodes that a run still uses: which it has lost, and which cases are skipped for that."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from linkgauge.errors import EnvironmentLackingError
from linkgauge.run.machine.private_folder import PrivateFolders
from linkgauge.run.parent import lossy_pairs
from linkgauge.run.parent.ending import Ending
from linkgauge.run.parent.fallback import Fallback
from linkgauge.run.parent.launch_numbers import LaunchNumbers
from linkgauge.run.parent.node import Node
from linkgauge.run.parent.nodes import Nodes
from linkgauge.run.parent.prepared import Pending
from linkgauge.run.parent.statuses import Statuses
from linkgauge.run.wire.spec import NODE_LEFT_OUT, PAIR_LEFT_OUT, CaseEntry
from linkgauge.store.folder import RunFolder
from linkgauge.system.switches import Switches


@dataclasses.dataclass(eq=False)
class NodesInUse:
    """Of each launch its nodes; what needs a node that is gone, or two that lose packets between them, is skipped."""

    _nodes: Nodes
    _fallback: Fallback
    _folder: RunFolder
    _folders: PrivateFolders
    _statuses: Statuses
    _pending: list[Pending]
    _ending: Ending
    _numbers: LaunchNumbers  # which launches get that have changed

    @property
    def gone(self) -> Mapping[str, str]:
        """By node why it does not answer."""
        return self._nodes.gone

    @property
    def any_lost(self) -> bool:
        """Whether the run went on without some of its nodes, or without the cases of some two of them."""
        return bool(self._nodes.gone or self._nodes.lossy)

    def of(self, one: Pending) -> tuple[Node, ...]:
        """The nodes of a launch, looked at once; those that do not answer are left out where the run may do so."""
        while True:
            settings = one.planned.settings
            mpi = self._fallback.mpi_of(settings)
            try:
                return self._nodes.of(mpi, settings.ranks, settings.launcher_args, settings.hosts, self._folders)
            except EnvironmentLackingError:
                if not self.find_lost(one):
                    raise
                self.leave_out_gone()

    def switches(self, nodes: Sequence[Node]) -> Switches | None:
        """The switches above the nodes of a launch, as Nodes has them."""
        return self._nodes.switches(nodes)

    def find_lost(self, one: Pending) -> bool:
        """Whether nodes of a launch do not answer, where the run is to go on without them."""
        settings = one.planned.settings
        if not settings.hosts or self._ending.is_due():
            return False
        mpi = self._fallback.mpis[settings.mpi]
        return self._nodes.lose_silent(mpi, settings.hosts, settings.launcher_args, self._folders)

    def leave_out_gone(self) -> None:
        """Skip what needs a node that is gone, or two that lose packets between them.

        A resumed run may have again what it went on without before.
        """
        before = self._folder.info.get("nodes_left_out", {})
        asked = {host for one in self._pending for host in one.planned.settings.hosts}
        gone = {host: why for host, why in before.items() if host not in asked} | self._nodes.gone
        if gone != before:
            self._folder.update_info({"nodes_left_out": gone})
        for one in self._pending:
            left_out = one.leave_out(self._nodes.gone)
            for entry, host in left_out:
                reason = f"node {host} does not answer: {self._nodes.gone[host]}"
                self._statuses.write(one, entry, "skipped", reason, {NODE_LEFT_OUT: host})
            if left_out and not one.launched:  # what is skipped is of no launch, which would have fewer ranks
                self._numbers.renew(one)
        lossy = self._nodes.lossy
        lossy_pairs.note(self._folder, lossy, asked)

        def skip(one: Pending, entry: CaseEntry, pair: frozenset[str]) -> None:
            self._statuses.write(one, entry, "skipped", lossy[pair], {PAIR_LEFT_OUT: sorted(pair)})

        for one in lossy_pairs.part(self._pending, lossy, skip):  # what is skipped is of no launch here either
            self._numbers.renew(one)
