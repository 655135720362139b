"""Linkgauge measures every path that data can take between GPUs and host memory."""

__version__ = "0.1.0"
