#!/bin/sh
# Prolog or Epilog of slurm.conf: where a link is slow, Slurm drains the node, and queues the job of a Prolog again.
options="--budget 20s --history /shared/fleet"
linkgauge health $options >&2
[ $? -ne 1 ]
