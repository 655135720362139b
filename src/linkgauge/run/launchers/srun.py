"""Slurm's srun."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence

from linkgauge.children import NoAnswerError, output_of
from linkgauge.model.names import host_names
from linkgauge.run.launchers.base import Launcher, LaunchRequest, NodeShell

_PATIENCE_S = 30
_AT_ONCE_S = 5
_OVER = ("BOOT_FAIL", "CANCELED", "COMPLETED", "COMPLETING", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
         "PREEMPTED", "REVOKED", "TIMEOUT")  # fmt: skip
"""States of a job (squeue(1)) in which no more steps start."""


class Srun(Launcher):
    """Slurm's srun, with the process-management interface that the library speaks."""

    kind = "srun"
    word = "srun"
    says = "slurm"
    programs = ("srun",)
    job_variable = "SLURM_JOB_ID"
    signal_names_pattern = r"\btasks? [\d,-]+: ([^:\n]+?)(?: \(core dumped\))?$"
    node_pattern = r"Node failure on (\S+)"
    rank_pattern = r"\btask (\d+): "
    status_patterns = (r"[Ee]xited with exit code\s*:?\s*(\d+)",)

    @classmethod
    def rank_in(cls, environment: Mapping[str, str]) -> str | None:
        """Return the task's number. srun gives PMI's variables too, and is the better word for what started it."""
        step = environment.get("SLURM_STEP_ID")
        if step is None:
            return None
        for name in ("PMIX_RANK", "PMI_RANK"):
            if name in environment:
                return environment[name]
        # Batch and interactive steps have numbers from 4294967290 on; they are one process, as it should be.
        ranks_step = step.isdecimal() and int(step) < 4_294_967_290
        several = environment.get("SLURM_STEP_NUM_TASKS", "1") != "1"
        return environment.get("SLURM_PROCID", "0") if ranks_step and several else None

    @classmethod
    def hosts_of_job(cls) -> tuple[str, ...] | None:
        """Return the job's nodes as Slurm lists them."""
        listed = os.environ.get("SLURM_JOB_NODELIST")
        return None if listed is None else tuple(host_names(listed))

    @classmethod
    def job_step(cls, launcher_args: Sequence[str]) -> NodeShell | None:
        """Return srun for one task on one node, beside whatever runs there.

        It gives up where the step cannot start at once, as under a Slurm before 20.11, which has no --overlap.
        """
        program = cls.in_allocation()
        if program is None:
            return None
        one = ("--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--cpus-per-task=1")
        own = (*launcher_args, *one, "--mpi=none", "--cpu-bind=none", "--export=ALL", "--overlap", "--overcommit")
        return NodeShell((str(program), *own, f"--immediate={_AT_ONCE_S}"), "--nodelist", of_job=True)

    @classmethod
    def job_is_over(cls) -> bool:
        """Whether Slurm has the job no more, or as one that ends: of a canceled one salloc's command hears nothing."""
        job, program = os.environ.get("SLURM_JOB_ID"), shutil.which("squeue")
        if job is None or program is None:
            return False
        try:
            done = output_of([program, "-h", "-j", job, "-o", "%T"], _PATIENCE_S)
        except NoAnswerError:
            return False
        if done.returncode != 0:
            return "Invalid job id" in done.stderr
        return done.stdout.strip() in ("", *_OVER)

    def command(self, request: LaunchRequest) -> list[str]:
        """Return srun -n N; a rank that dies ends the step."""
        assert self.mpi is not None
        interface = "pmix" if self.mpi.abi == "openmpi" else "cray_shasta" if self.mpi.vendor == "cray" else "pmi2"
        return [
            str(self.mpi.launcher),
            f"--mpi={interface}",
            f"--cpu-bind={'cores' if request.bind == 'core' else 'none'}",
            f"--kill-on-bad-exit={0 if request.others_stay else 1}",
            "--export=ALL",
            # Else a step waits for the end of those on its cores (from Slurm 20.11, which brought both).
            *(["--overlap"] if request.beside else []),
            *_placing(request),
            *request.launcher_args,
            "-n",
            str(request.ranks),
            *request.command,
        ]

    @classmethod
    def exporting(cls, environment: Mapping[str, str]) -> str:
        """Return srun with --export, of whose values none may have a comma: srun passes its own environment on too."""
        if any("," in value for value in environment.values()):
            return super().exporting(environment)
        said = ",".join(["ALL", *(f"{name}={value}" for name, value in environment.items())])
        return f"{cls.word} --export={shlex.quote(said)}"

    def failed_by_chance(self, output: Sequence[str]) -> bool:
        """Whether mpi/pmi2 cut off a request, of which it reads 1024 bytes (Slurm 22.05, handle_pmi1_cmd of pmi1.c).

        MPICH 5.0 puts 4 KB of memory in, whatever lies there, runs of zeros shortened: 780 to 990 bytes a request were
        seen, so that some starts of some programs are beyond.
        """
        return any("mpi/pmi2: value not properly terminated" in line for line in output)


def _placing(request: LaunchRequest) -> list[str]:
    if not request.hosts:
        return []
    # More ranks than cores are allowed, since the plan has said so and stores it.
    return [f"--nodes={len(request.hosts)}", f"--nodelist={','.join(request.hosts)}",
            f"--ntasks-per-node={request.ranks_on_each}", "--distribution=block", "--overcommit"]  # fmt: skip
