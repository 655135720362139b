#!/bin/sh
# Prolog or Epilog of slurm.conf: where a link is slow, Slurm drains the node, and queues the job of a Prolog again.
export PATH=/usr/local/bin:/usr/bin:/bin # of linkgauge: Slurm sets none
options="--budget 20s --history /shared/fleet"
linkgauge health $options >&2
[ $? -ne 1 ]
