"""Pseudonyms for what names one machine: hosts, users, serial numbers, UUIDs, GUIDs, hardware and network addresses.

Within one recording equal identities get equal pseudonyms, and what is compared stays comparable: which addresses are
all zeros, which GIDs hold a card's GUID or an IPv4 address, and which IPv4 addresses share a network.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Collection, Sequence

_HEX = "[0-9a-fA-F]"
_KINDS = {
    "uuid": f"{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}",
    "gid": f"(?:{_HEX}{{4}}:){{7}}{_HEX}{{4}}",
    "guid": f"(?:{_HEX}{{4}}:){{3}}{_HEX}{{4}}",
    "hardware": f"(?:{_HEX}{{2}}[:-]){{5,19}}{_HEX}{{2}}",
    "ipv6": f"(?:{_HEX}{{1,4}}:){{1,6}}(?::{_HEX}{{1,4}}){{1,6}}",
    "ipv4": r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}",
    "digits": f"(?=[0-9]*[a-fA-F])(?:{_HEX}{{32,64}}|{_HEX}{{16}})",
}
_ANY = "|".join(f"(?P<{kind}>{form})" for kind, form in _KINDS.items())
_IDENTITY = re.compile(rf"(?<![\w:.])(?:{_ANY})(?![\w:]|\.[0-9])")
# A prefix before a UUID is no part of a word: GPU-..., MIG-...
_PREFIXED = re.compile(rf"(?<=[A-Za-z]-)({_KINDS['uuid']})(?!\w)")
_UNIQUE = re.compile(r"(?m)^(unique_id +)([0-9]+)$")  # of KFD's properties
# A path of two parts or more, but for the system's own; of a library its file says which it is.
_SYSTEMS = "(?:usr|lib|lib64|opt|bin|sbin|etc|sys|proc|dev)"
_PATH = re.compile(rf"(?<![\w./~-])(?:~|/(?!{_SYSTEMS}/)[\w.@+-]+)(?:/[\w.@+%=-]+)+")
# A folder at the root, such as a file system's mount point, but for those that each machine has.
_COMMON_TOP = f"(?:{_SYSTEMS}|boot|home|media|mnt|path|root|run|srv|tmp|var)"
_TOP = re.compile(rf"(?<![\w./~<-])/(?!{_COMMON_TOP}\b)[a-zA-Z][\w.-]{{2,}}")
_OWNER = re.compile(r"(pid \d+ \((?:[^()]*, )?user )(?!root\))[^()]+\)")  # as owner.described states it
_LIBRARY = re.compile(r"/lib[\w+-]+\.so[.0-9]*$")
_MAPPED = "0" * 20 + "ffff"  # of a GID that holds an IPv4 address
# Networks that anyone may use name nobody: so many of their bits are kept.
_COMMON = {"10.0.0.0/8": 8, "172.16.0.0/12": 12, "192.168.0.0/16": 16, "169.254.0.0/16": 16, "100.64.0.0/10": 10}
_KEPT = tuple(map(ipaddress.IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3")))


class Pseudonyms:
    """The pseudonyms of one recording. `key` decides those of IPv4 addresses: random bytes, or a test's."""

    def __init__(
        self, key: bytes, hosts: Sequence[str] = (), users: Sequence[str] = (), devices: Sequence[str] = (),
        kept: Collection[str] = (), variables: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Replace these names of hosts, users and devices, too, wherever they stand as words of a program's answers.

        `kept`: digits that name nothing of a machine, such as hashes. Several hosts are numbered, by their first part.
        `variables`: names of a run's environment that are hidden with their values.
        """
        self._key, self._kept = key, frozenset(kept)
        self._numbers: dict[str, int] = {}
        nodes = list(dict.fromkeys(name.partition(".")[0] for name in hosts if name))
        names = {name: f"node{nodes.index(name.partition('.')[0]) + 1 if len(nodes) > 1 else ''}"
                 for name in hosts if name}  # fmt: skip
        names |= {name: "user" for name in users if name and name != "root"}
        names |= {name: f"device-{number}" for number, name in enumerate(dict.fromkeys(filter(None, devices)), 1)}
        longest = sorted(names, key=len, reverse=True)  # a full name before its first part
        self._named = {name.lower(): names[name] for name in longest}
        any_name = "|".join(map(re.escape, longest))
        self._words = re.compile(rf"(?i)(?<![\w-])({any_name})(?![\w-])") if names else None
        self._variables = {name: f"VARIABLE_{number}" for number, name in enumerate(sorted(variables), 1)}
        any_variable = "|".join(map(re.escape, sorted(variables, key=len, reverse=True)))
        # NAME=VALUE, "NAME": "VALUE" of JSON, or the name alone.
        value = r'=[^\s";]+|(\\*"\s*:\s*\\*")(?:[^"\\]|\\.)*'
        self._variable = re.compile(rf"(?<!\w)({any_variable})(?!\w)(?:{value})?") if variables else None

    def of(self, text: str) -> str:
        """A text of the kernel's without identities; names of hosts and users stay, which are words of paths there."""
        text = _UNIQUE.sub(lambda found: found[1] + str(self._number(f"{int(found[2]):016x}")), text)
        text = _PREFIXED.sub(lambda found: self._uuid(found[1]), text)
        return _IDENTITY.sub(lambda found: getattr(self, f"_{found.lastgroup}")(found[0]), text)

    def of_answer(self, text: str) -> str:
        """A program's answer, or a variable, without identities, hosts and users."""
        if self._words is not None:
            text = self._words.sub(lambda found: self._named[found[1].lower()], text)
        return self.of(text)

    def of_run(self, text: str) -> str:
        """A text of a run folder without identities, hosts, users, own variables, and paths but the system's own."""
        if self._variable is not None:
            text = self._variable.sub(self._hidden_variable, text)
        text = _PATH.sub(lambda found: "/path" + (_LIBRARY.search(found[0]) or [""])[0], text)
        return self.of_answer(_OWNER.sub(r"\1user)", _TOP.sub("/path", text)))

    def _hidden_variable(self, found: re.Match[str]) -> str:
        name = self._variables[found[1]]
        if found[0] == found[1]:
            return name
        return f"{name}{found[2] or '='}hidden"

    def route_table(self, text: str) -> str:
        """`/proc/net/route` with its addresses replaced: hexadecimal, the last byte first."""
        lines = [line.split("\t") for line in text.splitlines()]
        for line in lines[1:]:
            if len(line) > 7 and all(re.fullmatch(f"{_HEX}{{8}}", line[at]) for at in (1, 2, 7)):
                target, gateway, mask = (int.from_bytes(bytes.fromhex(line[at]), "little") for at in (1, 2, 7))
                for at, value in ((1, self._mapped(target) & mask), (2, self._mapped(gateway) if gateway else 0)):
                    line[at] = value.to_bytes(4, "little").hex().upper()
        return "".join("\t".join(line) + "\n" for line in lines)

    def _number(self, digits: str) -> int:
        return self._numbers.setdefault(digits.lower(), len(self._numbers) + 1)

    def _digits(self, found: str) -> str:
        if found in self._kept or not found.strip("0") or not found.lower().strip("f"):
            return found  # what a fabric or port that has none states
        return f"{self._number(found):0{len(found)}x}"

    def _uuid(self, found: str) -> str:
        plain = self._digits(found.replace("-", ""))
        # The number stands first, as one sees it in shortened UUIDs.
        plain = plain[24:] + plain[:24]
        return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))

    def _guid(self, found: str) -> str:
        plain = self._digits(found.replace(":", ""))
        return ":".join(plain[at : at + 4] for at in range(0, len(plain), 4))

    def _gid(self, found: str) -> str:
        plain = found.replace(":", "").lower()
        if plain.startswith(_MAPPED):
            plain = _MAPPED + f"{self._mapped(int(plain[24:], 16)):08x}"
        else:  # the subnet's prefix, and the card's own half
            prefix = plain[:16] if plain.startswith("fe80") else self._digits(plain[:16])
            plain = prefix + self._digits(plain[16:])
        return ":".join(plain[at : at + 4] for at in range(0, 32, 4))

    def _hardware(self, found: str) -> str:
        plain, parting = self._digits(re.sub("[:-]", "", found)), found[2]
        return parting.join(plain[at : at + 2] for at in range(0, len(plain), 2))

    def _ipv6(self, found: str) -> str:
        return found if found == "::1" else f"fe80::{self._number(found):x}"

    def _ipv4(self, found: str) -> str:
        try:
            address = ipaddress.IPv4Address(found)
        except ValueError:  # a version of four parts
            return found
        return str(ipaddress.IPv4Address(self._mapped(int(address))))

    def _mapped(self, value: int) -> int:
        """Another address: two that share a prefix share one of the same length (Xu et al., Crypto-PAn, 2002)."""
        address = ipaddress.IPv4Address(value)
        if any(address in one for one in _KEPT):
            return value
        kept = next((bits for net, bits in _COMMON.items() if address in ipaddress.IPv4Network(net)), 0)
        found = value
        for bit in range(kept, 32):
            prefix = (value >> (32 - bit)).to_bytes(4, "big") + bytes([bit])
            found ^= (hashlib.blake2b(prefix, key=self._key, digest_size=1).digest()[0] & 1) << (31 - bit)
        if not kept and any(ipaddress.IPv4Address(found) in one for one in _KEPT):
            found = value & 0x00FFFFFF | 0xC6 << 24  # no address of a loopback or a group: 198 is for benchmarks
        return found
