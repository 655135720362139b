"""Make the generators of planted causes and of run folders importable by their plain names."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
