"""Installed peers (OSU, nccl-tests, nvbandwidth) driven alternately with our cases, compared by the peer's own estimator."""
