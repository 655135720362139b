"""Installed peers (OSU, nccl-tests, nvbandwidth) alternated with our cases, compared by their own estimators."""
