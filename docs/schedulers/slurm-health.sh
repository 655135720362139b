#!/bin/sh
# HealthCheckProgram of slurm.conf: drains this node where a link is slow. Slurm ends the program after 60 s.
export PATH=/usr/local/bin:/usr/bin:/bin # of linkgauge and scontrol: Slurm sets none
options="--budget 45s --history /shared/fleet --partner /shared/partners"
reason=$(linkgauge health $options) && exit 0
[ $? -eq 1 ] || exit 0 # nothing to judge by, or it could not run: the node stays
scontrol update NodeName="${SLURMD_NODENAME:-$(hostname -s)}" State=DRAIN Reason="linkgauge $reason"
