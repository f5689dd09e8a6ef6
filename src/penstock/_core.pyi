"""Types of the native functions; each group belongs to the C++ file named above it."""

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int32]
_Longs = NDArray[np.int64]
_Bytes = NDArray[np.uint8]

# core/pricing.cpp
def price_sets(
    profit: _Floats,
    weight: _Floats,
    resources: _Floats,
    outward: _Floats,
    kind: _Ints,
    cut_share: _Bytes,
    cut_price: _Floats,
    limits: _Floats,
    threshold: float,
    all: bool,  # noqa: A002
    nodes_max: int,
    columns_max: int,
    seconds: float,
) -> tuple[_Ints, _Ints, _Floats, float, bool, int]: ...
def guess_sets(
    profit: _Floats,
    weight: _Floats,
    resources: _Floats,
    outward: _Floats,
    kind: _Ints,
    cut_share: _Bytes,
    cut_price: _Floats,
    limits: _Floats,
    threshold: float,
    sets_max: int,
) -> tuple[_Ints, _Ints, _Floats, float, bool, int]: ...

# core/warm_start.cpp
def starting_placements(
    start: _Longs,
    neighbour: _Ints,
    weight: _Floats,
    outward: _Floats,
    load: _Floats,
    memory: _Floats,
    capacity: _Floats,
    memory_limit: _Floats,
    bandwidth: _Floats,
    initial: _Ints,
    seed: int,
    runs: int,
    moves: int,
    seconds: float,
) -> tuple[_Ints, _Floats]: ...
