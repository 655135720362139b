"""What a process may use, from trees of cgroups as kernels and container engines show them, and in a real cgroup."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from linkgauge.system.allowance import Quotas, Throttling, allowance
from real_cgroup import half_a_core, run_in

GIB = 1 << 30
V2 = "31 23 0:27 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
V1 = "".join(f"3{number} 31 0:2{number} {{top}} /sys/fs/cgroup/{name} rw,relatime - cgroup cgroup rw,{name}\n"
             for number, name in enumerate(("cpu,cpuacct", "cpuset", "memory")))  # fmt: skip


def tree(root: Path, cgroup: str, mounts: str, **files: str) -> Path:
    """A machine of 8 cores and 16 GiB; `files` are below /sys/fs/cgroup, `__` for a slash and `_` as it stands."""
    every = {
        "proc/self/cgroup": cgroup,
        "proc/self/mountinfo": mounts,
        "proc/meminfo": f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: {15 * GIB // 1024} kB\n",
        "sys/devices/system/cpu/online": "0-7\n",
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }
    for name, text in every.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_machine_without_limits_says_nothing(tmp_path: Path) -> None:
    found = allowance(tree(tmp_path, "0::/user.slice\n", V2), range(8))
    assert (found.cores, found.whole_cores, found.cores_words, found.memory_words) == (8.0, 8, "", "")
    assert found.plain() == {"cores": 8.0}
    assert not Quotas(tmp_path)


@pytest.mark.parametrize(("text", "cores"), [("50000 100000", 0.5), ("max 100000", None), ("150000 100000", 1.5),
                                             ("0 100000", None), ("1 0", None), ("x y", None), ("", None),
                                             ("9" * 5000 + " 1", None), ("٣ 1", None)])  # fmt: skip
def test_a_quota_of_version_2(tmp_path: Path, text: str, cores: float | None) -> None:
    tree(tmp_path, "0::/pod/box\n", V2, **{"pod/box/cpu.max": text})
    found = allowance(tmp_path, range(8))
    assert (found.quota and found.quota.value) == cores
    if cores is not None:
        assert found.cores_words == f"this process may use {cores:g} of 8 cores (CPU quota of cgroup /pod/box)"


def test_the_least_limit_of_all_enclosing_groups_counts(tmp_path: Path) -> None:
    tree(tmp_path, "0::/pod/box\n", V2, **{"pod/box/cpu.max": "400000 100000", "pod/cpu.max": "50000 100000",
         "pod/memory.max": f"{2 * GIB}", "pod/box/memory.max": "max"})  # fmt: skip
    found = allowance(tmp_path, range(8))
    assert found.plain() == {"cores": 0.5, "quota_cores": 0.5, "quota_group": "/pod", "memory_bytes": 2.0 * GIB,
                             "memory_group": "/pod"}  # fmt: skip
    assert found.whole_cores == 1
    assert found.memory_words == "this process may use 2 GiB of 16 GiB of memory (limit of cgroup /pod)"


def test_version_1_and_a_path_that_the_container_does_not_see(tmp_path: Path) -> None:
    """Docker without cgroup namespaces: /proc/self/cgroup has the host's path, the mount the container's group."""
    tree(tmp_path, "".join(f"{number}:{name}:/docker/abc\n" for number, name in
                           enumerate(("memory", "cpu,cpuacct", "cpuset"), 2)), V1.format(top="/docker/abc"),
         **{"cpu,cpuacct/cpu.cfs_quota_us": "150000", "cpu,cpuacct/cpu.cfs_period_us": "100000",
            "cpuset/cpuset.cpus": "0-1", "memory/memory.limit_in_bytes": f"{4 * GIB}"})  # fmt: skip
    found = allowance(tmp_path, (0, 1))
    assert (found.cores, found.whole_cores) == (1.5, 1)
    assert found.cores_words == "this process may use 1.5 of 8 cores (CPU quota of cgroup /docker/abc)"
    assert found.cpuset == "/docker/abc"
    assert found.memory is not None
    assert found.memory.value == 4 * GIB


def test_version_1_without_limits(tmp_path: Path) -> None:
    tree(tmp_path, "1:cpu,cpuacct:/a\n2:memory:/a\n", V1.format(top="/"),
         **{"cpu,cpuacct/a/cpu.cfs_quota_us": "-1", "cpu,cpuacct/a/cpu.cfs_period_us": "100000",
            "memory/a/memory.limit_in_bytes": "9223372036854771712"})  # fmt: skip
    found = allowance(tmp_path, range(8))
    assert (found.quota, found.memory) == (None, None)


def test_a_cpuset_and_an_affinity_are_told_apart(tmp_path: Path) -> None:
    tree(tmp_path, "0::/job\n", V2, **{"job/cpuset.cpus.effective": "0-3\n"})
    assert "4 of 8 cores (cpuset of cgroup /job)" in allowance(tmp_path, range(4)).cores_words
    assert "2 of 8 cores (CPU affinity)" in allowance(tmp_path, range(2)).cores_words


def test_a_recorded_machine_has_nothing_of_this_one(tmp_path: Path) -> None:
    found = allowance(tmp_path, range(3))
    assert (found.machine_cores, found.cores_words, found.machine_bytes) == (3, "", 0)


def test_a_path_outside_of_the_namespace_is_not_followed(tmp_path: Path) -> None:
    tree(tmp_path, "0::/../../other\n", V2, **{"cpu.max": "200000 100000", "other/cpu.max": "1 100000"})
    assert allowance(tmp_path, range(8)).cores == 2.0


def test_a_mount_point_with_a_blank(tmp_path: Path) -> None:
    mounts = V2.replace("/sys/fs/cgroup ", "/sys/fs/c\\040group ")
    tree(tmp_path, "0::/\n", mounts, **{"../c group/cpu.max": "50000 100000"})
    assert allowance(tmp_path, range(8)).cores == 0.5


def test_throttling_is_counted_over_all_groups_with_a_quota(tmp_path: Path) -> None:
    tree(tmp_path, "0::/a/b\n1:cpu,cpuacct:/c\n", V2 + V1.format(top="/"),
         **{"a/b/cpu.max": "50000 100000", "a/b/cpu.stat": "usage_usec 9\nnr_periods 10\nnr_throttled 4\n"
            "throttled_usec 700\n", "cpu,cpuacct/c/cpu.cfs_quota_us": "50000",
            "cpu,cpuacct/c/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/c/cpu.stat": "nr_periods 5\nnr_throttled 1\nthrottled_time 33\n"})  # fmt: skip
    quotas = Quotas(tmp_path)
    assert quotas
    assert quotas.read() == Throttling(15, 5, 700_033)
    assert quotas.read().since(Throttling(12, 6, 33)) == Throttling(3, 0, 700_000)


BUSY = """
import os, sys, time
from linkgauge.system.allowance import Quotas, allowance
print(allowance().cores_words)
quotas = Quotas()
before = quotas.read()
while not quotas.read().since(before).throttled:
    pass
print("throttled")
"""


def test_half_a_core_in_a_real_cgroup() -> None:
    with half_a_core() as group:
        done = run_in(group, sys.executable, "-c", BUSY)
        assert done.returncode == 0, done.stderr
        words, throttled = done.stdout.splitlines()
        assert f"this process may use 0.5 of {os.cpu_count()} cores (CPU quota of cgroup " in words
        assert group.name in words
        assert throttled == "throttled"
