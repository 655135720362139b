"""Flux's `flux run`. Not seen on a machine of ours: by its manual (flux-run(1), flux-hostlist(1))."""

from __future__ import annotations

from linkgauge.children import NoAnswerError, output_of
from linkgauge.model.names import host_names
from linkgauge.run.launchers.base import Launcher, LaunchRequest

_PATIENCE_S = 30


class Flux(Launcher):
    """`flux run`, which starts ranks of any library that speaks PMI."""

    kind = "flux"
    word = "flux run"
    says = "libflux-core"
    programs = ("flux",)
    job_variable = "FLUX_URI"
    host_options = ("--requires",)
    rank_variables = ("FLUX_TASK_RANK",)
    status_patterns = (r"[Ee]xited with exit code\s*:?\s*(\d+)",)

    @classmethod
    def hosts_of_job(cls) -> tuple[str, ...] | None:
        """Return the instance's nodes, as `flux hostlist` expands them."""
        program = cls.in_allocation()
        if program is None:
            return None
        try:
            done = output_of([str(program), "hostlist", "--expand", "--delimiter=,", "instance"], _PATIENCE_S)
        except NoAnswerError:
            return None
        return tuple(host_names(done.stdout.strip())) if done.returncode == 0 else None

    def command(self, request: LaunchRequest) -> list[str]:
        """Return flux run -n N; a rank that dies ends the job."""
        assert self.mpi is not None
        placing = []
        if request.hosts:
            placing = [f"--nodes={len(request.hosts)}", f"--requires=host:{','.join(request.hosts)}"]
        return [
            str(self.mpi.launcher),
            "run",
            "-o",
            f"cpu-affinity={'per-task' if request.bind == 'core' else 'off'}",
            "-o",
            "exit-on-error",
            *placing,
            *request.launcher_args,
            "-n",
            str(request.ranks),
            *request.command,
        ]
