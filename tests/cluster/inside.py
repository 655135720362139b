"""The first process of an emulated cluster, in PID, network and mount namespaces of its own.

`python -m cluster.inside LAYOUT FOLDER [own]`; `own`: the folder is to be removed at the end.

It makes switches and nodes, says one line, and waits until its standard input ends. When it ends, by whatever, the
kernel ends all processes of the cluster with it, and with them go their namespaces, links and mounts.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

from cluster.layout import Layout, Link

# A node's own /sys shows its own interfaces; its boot id is what libraries and linkgauge tell nodes apart by.
_NODE = """
mount --make-rprivate / &&
cd /sys/fs/cgroup &&
mount -t sysfs sysfs /sys &&
mount --no-canonicalize --rbind . /sys/fs/cgroup &&
{ [ "$3" = shared ] || mount -t tmpfs -o size=2g tmpfs /dev/shm; } &&
mount --bind "$1/boot-id.$2" /proc/sys/kernel/random/boot_id &&
mount --bind "$1/hosts" /etc/hosts &&
mount --rbind /tmp /mnt &&
mount -t tmpfs -o size=2g tmpfs /tmp &&
folder="$1" node="$2" && shift 3 &&
for kept in "$folder" "$@"; do
    [ "${kept#/tmp/}" = "$kept" ] || { mkdir -p "$kept" && mount --rbind "/mnt/${kept#/tmp/}" "$kept"; } || exit 1
done &&
umount -l /mnt &&
cd / &&
echo "$node" > /proc/sys/kernel/hostname &&
ip link set lo up &&
echo $$ > "$folder/$node.pid" &&
echo made &&
exec sleep infinity
"""
KEPT = tuple(dict.fromkeys(map(str, (Path(__file__).resolve().parents[2], Path(sys.prefix).resolve()))))
"""Folders that all nodes see though they lie in /tmp, of which each has its own: the checkout, and its Python."""
_SSH = """#!/bin/sh
# Stands in for ssh between the nodes: enters the node's namespaces. As with ssh, nothing of the environment goes along.
while [ $# -gt 0 ]; do
    case "$1" in
        -[bcDEeFIiJLlmOopQRSWw]) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
host="${1#*@}"; shift
[ -r "$FOLDER/$host.pid" ] || { echo "ssh: Could not resolve hostname $host: Name or service not known" >&2; exit 255; }
[ -e "$FOLDER/$host.down" ] && { echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255; }
[ -r "$FOLDER/$host.ssh" ] && . "$FOLDER/$host.ssh"  # what a fault has it do
[ $# -gt 0 ] || set -- 'exec sh'
exec nsenter --target "$(cat "$FOLDER/$host.pid")" --net --uts --ipc --mount -- \\
    env -i HOME="$HOME" USER=root LOGNAME=root SHELL=/bin/sh \\
    PATH="$FOLDER/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" SSH_CONNECTION="login" sh -c "cd $HOME; $*"
"""


def call(*words: str, text: str | None = None) -> None:
    done = subprocess.run(words, input=text, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}\n{text or ''}")


def in_node(pid: int, *words: str, text: str | None = None) -> None:
    call("nsenter", "--target", str(pid), "--net", *words, text=text)


def bound_windows(pid: int, window: int) -> None:
    """Of a node's connections: reno, whose window stays where nothing is lost, so that all take alike; bbr would go by
    its own measure of the way's rate, and of all that share a queue none would find it."""
    for name, value in (("tcp_congestion_control", "reno"), ("tcp_wmem", f"4096 {window} {window}")):
        in_node(pid, "sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{name}")


def make_node(name: str, folder: Path, memory: str) -> int:
    (folder / f"boot-id.{name}").write_text(f"{uuid.uuid4()}\n")
    holder = subprocess.Popen(
        ["unshare", "--net", "--mount", "--uts", "--ipc", "sh", "-c", _NODE, "sh", str(folder), name, memory, *KEPT],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert holder.stdout is not None
    if holder.stdout.readline() != b"made\n":
        sys.exit(f"node {name}: {(holder.stderr.read() if holder.stderr else b'').decode().strip()}")
    return holder.pid


def switch(name: str, rail: int) -> str:
    """The bridge that is a switch on a rail."""
    return f"{name}r{rail}"


def port(link: Link) -> str:
    """The upper end of a link: an interface of the switch above."""
    return f"{link.name}p{link.rail}"


def uplink(link: Link) -> str:
    """The lower end of a link: a node's eth0, or an interface of the switch below."""
    return f"eth{link.rail}" if link.name.startswith("n") else f"{link.name}u{link.rail}"


def make(layout: Layout, folder: Path) -> None:
    names = (*layout.nodes, "login")
    lines = ["127.0.0.1 localhost", *(f"{layout.address(name)} {name}" for name in names)]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    (folder / "bin").mkdir(exist_ok=True)
    ssh = folder / "bin" / "ssh"
    ssh.write_text(_SSH.replace("$FOLDER", str(folder)))
    ssh.chmod(0o755)
    call("mount", "--make-rprivate", "/")
    call("mount", "-t", "tmpfs", "-o", "size=2g", "tmpfs", "/dev/shm")  # what nodes share that share memory
    call("ip", "link", "set", "lo", "up")
    memory = "shared" if layout.shared_memory else "own"
    pids = {name: make_node(name, folder, memory) for name in names}

    links = layout.links()
    bridges = sorted({switch(one.above, one.rail) for one in links})
    ip = "".join(f"link add {name} type bridge\nlink set {name} up\n" for name in bridges)
    limits = ""
    relayed: list[str] = []

    def shaped(interface: str, link: Link) -> str:
        return "".join(" ".join(words) + "\n" for words in layout.shaping(interface, link))

    of_node: dict[str, list[str]] = {name: [] for name in names}
    limit_of: dict[str, str] = dict.fromkeys(names, "")
    for one in links:
        upper, lower = port(one), uplink(one)
        node = one.name in pids
        if one.delay:  # two wires with a relay between them
            ends = tuple(f"{one.name}{end}{one.rail}" for end in "ab")
            relayed += [str(one.delay), *ends]
            ip += "".join(f"link add {end} type veth peer name {wire}\nlink set {end} up\n"
                          for wire, end in zip((upper, f"{lower}{f' netns {pids[one.name]}' if node else ''}"), ends,
                                               strict=True))  # fmt: skip
        else:
            ip += f"link add {upper} type veth peer name {lower}{f' netns {pids[one.name]}' if node else ''}\n"
        ip += f"link set {upper} master {switch(one.above, one.rail)} up\n"
        down = one.rate <= 0
        if not down:
            limits += shaped(upper, one)
        if node:
            address = layout.address(one.name, one.rail)
            of_node[one.name] += [f"addr add {address}/16 dev {lower}", f"link set {lower} {'down' if down else 'up'}"]
            limit_of[one.name] += "" if down else shaped(lower, one)
        else:
            ip += f"link set {lower} master {switch(one.name, one.rail)} {'down' if down else 'up'}\n"
            limits += "" if down else shaped(lower, one)
    ip += f"link add loginp0 type veth peer name eth0 netns {pids['login']}\n"
    ip += f"link set loginp0 master {switch(layout.top(), 0)} up\n"
    of_node["login"] += [f"addr add {layout.address('login')}/16 dev eth0", "link set eth0 up"]
    call("ip", "-batch", "-", text=ip)
    call("tc", "-batch", "-", text=limits)
    if relayed:
        subprocess.Popen([sys.executable, "-m", "cluster.relay", *relayed], stdin=subprocess.DEVNULL)
    for name, commands in of_node.items():
        in_node(pids[name], "ip", "-batch", "-", text="\n".join(commands) + "\n")
        if limit_of[name]:
            in_node(pids[name], "tc", "-batch", "-", text=limit_of[name])
        if layout.window is not None:
            bound_windows(pids[name], layout.window)


def main() -> None:
    layout, folder = Layout.from_text(sys.argv[1]), Path(sys.argv[2])
    make(layout, folder)
    print("ready", flush=True)
    while True:  # as the first process here it takes leave of all that have lost their parents
        readable, _, _ = select.select([0], [], [], 0.5)
        if readable and not os.read(0, 1 << 10):
            if sys.argv[3:] == ["own"]:
                shutil.rmtree(folder, ignore_errors=True)
            return
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
