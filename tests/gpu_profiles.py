"""Profiles as Kineto writes them of small programs: kernels, their launches, collectives, waits between streams.

Times in us. `events`: whether the profile has `cuda_sync`, as with `enable_cuda_sync_events`. `known`: whether that
says for which event a stream waits, which CUPTI of CUDA 13 does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COMPUTE, NCCL = 7, 20  # streams


class Profile:
    """A profile of one rank."""

    def __init__(self, *, events: bool = False, known: bool = True, rank: int = 0, world: int = 2) -> None:
        self._found: list[dict[str, Any]] = []
        self._events, self._known, self._rank, self._world = events, known, rank, world
        self._number = 100

    @property
    def document(self) -> dict[str, Any]:
        """What the file holds."""
        return {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": self._rank,
                "world_size": self._world}, "traceEvents": self._found[::-1]}  # fmt: skip

    def call(self, at: float, name: str, external: int = 0, length: float = 0.5, thread: int = 1) -> int:
        """A call of the host; its correlation."""
        self._number += 1
        given: dict[str, Any] = {"cbid": 1, "correlation": self._number}
        if external:
            given["External id"] = external
        self._found.append({"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": thread, "ts": at,
                            "dur": length, "args": given})  # fmt: skip
        return self._number

    def kernel(self, launch: float, begin: float, end: float, name: str = "gemm", stream: int = COMPUTE,
               external: int = 0, thread: int = 1, **given: Any) -> None:  # fmt: skip
        """A kernel with its launch."""
        correlation = self.call(launch, "cudaLaunchKernel", external, thread=thread)
        given |= {"stream": stream, "correlation": correlation, "device": 0}
        if external:
            given["External id"] = external
        self._found.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": begin,
                            "dur": end - begin, "args": given})  # fmt: skip

    def operator(self, at: float, name: str) -> None:
        """An operator of the host that launches nothing."""
        self._number += 1
        self._found.append({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 0.5,
                            "args": {"External id": self._number}})  # fmt: skip

    def parameters(self, at: float, name: str, elements: int, ranks: Sequence[int] = (0, 1), **given: Any) -> int:
        """What the host says of a collective; its External id."""
        self._number += 1
        self._found.append({
            "ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 1, "ts": at - 0.2, "dur": 3,
            "args": {"External id": self._number, "Collective name": name, "dtype": "Float", "In msg nelems": elements,
                     "Out msg nelems": elements, "Group size": len(ranks), "Process Group Ranks": str(list(ranks)),
                     "Process Group Name": "0", "Seq": self._number, **given},
        })  # fmt: skip
        return self._number

    def collective(self, launch: float, begin: float, end: float, name: str = "allreduce", elements: int = 256,
                   stream: int = NCCL, ranks: Sequence[int] = (0, 1), **given: Any) -> int:  # fmt: skip
        """A collective; what its end is known by, which `wait` takes."""
        external = self.parameters(launch, name, elements, ranks, **given)
        self._between(launch, stream, self.call(launch, "cudaEventRecord", external), COMPUTE, external)
        kept = ("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "Process Group Ranks")
        told = {key: value for key, value in self._found_of(external).items() if key in kept}
        self.kernel(launch + 0.1, begin, end, f"ncclDevKernel_{name}", stream, external, **told)
        return self.call(launch + 0.2, "cudaEventRecord", external)

    def wait(self, at: float, record: int, stream: int = COMPUTE, of: int = NCCL, external: int = 0) -> None:
        """A stream waits for what another had been given when the record was made."""
        self._between(at, stream, record, of, external)

    def hold(self, begin: float, end: float) -> None:
        """The host waits for the device."""
        correlation = self.call(begin, "cudaDeviceSynchronize", length=end - begin)
        if self._events:
            self._found.append({"ph": "X", "cat": "cuda_sync", "name": "Context Sync", "pid": 0, "tid": -1, "ts": begin,
                                "dur": end - begin, "args": {"cuda_sync_kind": "Context Sync", "stream": 4294967295,
                                                             "correlation": correlation, "device": 0}})  # fmt: skip

    def _between(self, at: float, stream: int, record: int, of: int, external: int) -> None:
        correlation = self.call(at, "cudaStreamWaitEvent", external)
        if self._events:
            self._found.append({
                "ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": stream, "ts": at, "dur": 0,
                "args": {"cuda_sync_kind": "Stream Wait Event", "stream": stream, "correlation": correlation,
                         "wait_on_stream": of if self._known else -1,
                         "wait_on_cuda_event_record_corr_id": record if self._known else -1, "device": 0},
            })  # fmt: skip

    def _found_of(self, external: int) -> dict[str, Any]:
        return next(one["args"] for one in self._found
                    if one["name"] == "record_param_comms" and one["args"]["External id"] == external)  # fmt: skip
