"""How many examples a property is tried with, and which tests go to one worker when several run ('./lg test': -n)."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

import program
from thorough import by_one_reason, most

# A NIXL that lies nowhere where one is looked for: the folder of its libnixl_capi.so.
if nixl := os.environ.get("LINKGAUGE_TEST_NIXL"):
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [nixl, os.environ.get("LD_LIBRARY_PATH")]))

# Emulated GPUs have the same identity in all processes of tests, which run at the same time.
for name in (
    "COLUMNS",
    "LINES",
):  # of the terminal of who tests, or of pytest-xdist: what is printed does not depend on it
    os.environ.pop(name, None)
# Where this is set, each rank compiles the modules that it imports: a third of what its start costs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["LINKGAUGE_DEVICE_HOLDS"] = f"-test-{os.getpid()}"
# Under nohup, or behind a script's '&', what tests start would ignore signals that some of them send: a handler is not
# passed on.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# MPICH's ranks that wait give their cores away, of which a small machine has fewer than a test has ranks: four ranks on
# two cores took 20 s of a processor for what takes 8 so. Releases before 5 do not know the first.
os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
os.environ.setdefault("MPIR_CVAR_POLLS_BEFORE_YIELD", "10")

# Where a test says no number of its own. No example has a time limit: a test says nothing of the machine's pace.
hypothesis.settings.register_profile("linkgauge", max_examples=most(100, 25), deadline=None)
hypothesis.settings.load_profile("linkgauge")

# These kill runs and look at all of this machine for what is left of them, so that none may run beside another.
LEFTOVERS = ("tests/faults/", "tests/run/test_interrupts.py")

_BEGAN = pytest.StashKey[float]()


def _processor_seconds() -> float:
    used = os.times()  # of children those that ended and were waited for
    return used.user + used.system + used.children_user + used.children_system + program.children_seconds()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Each test's processor time goes into the JUnit file, for tools/test_times.py."""
    if call.when == "teardown":
        now = _processor_seconds()
        item.user_properties.append(("cpu_s", round(now - item.stash.get(_BEGAN, now), 3)))
    yield


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are not in a test's name: packed ones hold the second in which they were packed, and workers that collect
    in two seconds collect unlike names."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.own_markers[:] = by_one_reason(item.own_markers)


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: to look through them for garbage took a twelfth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the first of its fixtures."""
    item.stash[_BEGAN] = _processor_seconds()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker takes whole files, so that what a file's tests share is made once."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "leftovers" if file.startswith(LEFTOVERS) else file

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None
