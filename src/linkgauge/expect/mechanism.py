"""By what an application's steps are carried out: transports of messages and of collectives, memory, and who copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured
from linkgauge.model.transports import TRANSPORTS


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """By what an application's steps are carried out."""

    transport: str
    collectives: str
    memory: tuple[str, str] = ("device", "device")
    copies: str = ""  # kernel; "" the copy engine
    blocks: int = 0  # that a stand-in kernel by kernel may take; 0: all that it likes
    name: str = dataclasses.field(default="", compare=False)  # where published curves have one for it
    on_host: bool = dataclasses.field(default=False, compare=False)  # its devices are host devices
    algorithm: str = dataclasses.field(default="", compare=False)  # of collectives, where their curves have it

    @property
    def in_turn(self) -> bool:
        """Whether a rank's messages go one group after the other, whichever way."""
        return self.transport == "ccl" and not self.on_host

    @property
    def words(self) -> str:
        """What people are shown."""
        return self.words_as({})

    def words_as(self, shown: Mapping[str, str]) -> str:
        """What people are shown, by what screens call the transports of a run."""
        transport, collectives = (shown.get(name, name) for name in (self.transport, self.collectives))
        words = [transport]
        words += [f"collectives by {collectives}"] * (collectives != transport)
        words += [f"copies by {self.copies}{f' of {self.blocks} blocks' if self.blocks else ''}"] * bool(self.copies)
        return self.name or ", ".join(words)


def mechanism_of(case: Case) -> Mechanism:
    """The mechanism of an application's case."""
    memory = (case.source_memory, case.target_memory)
    collectives = case.collectives or case.transport
    return Mechanism(case.transport, collectives, memory, case.copies, case.blocks if case.copies else 0)


def known_transports(rows: Sequence[Measured]) -> list[str]:
    """The transports that a run has messages' curves of, of a run without any collectives', in the order of tables."""
    found = {row.transport for row in rows if row.pattern == "pingpong"}
    found = found or {row.transport for row in rows if PATTERNS[row.pattern].collective}
    return [name for name in TRANSPORTS if name in found]
