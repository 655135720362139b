"""The arrays of this room, and sums by place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def sums(place: Ints, weights: Any, shape: int | tuple[int, ...]) -> Floats:
    """What falls on each place of a table of this shape; places count through it in order."""
    size = shape if isinstance(shape, int) else int(np.prod(shape))
    counted: Any = np.bincount(place.reshape(-1), weights=np.asarray(weights, dtype=float).reshape(-1), minlength=size)
    found: Floats = counted.reshape(shape)
    return found
