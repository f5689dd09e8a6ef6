"""Types of the native core; written by hand beside core/bind_*.cpp."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

class Effort:
    """How hard the multilevel search works; see core/multilevel.hpp."""

    def __init__(
        self,
        visits: float,
        hot: float,
        warm: float,
        cold: float,
        coarse_share: float,
        cluster_share: float,
        rounds: int,
    ) -> None: ...

class Network:
    """Tasks, traffic and node limits, checked and in the core's own form."""

    def __init__(
        self,
        load: NDArray[np.float64],
        memory: NDArray[np.float64],
        source: NDArray[np.int32],
        target: NDArray[np.int32],
        rate: NDArray[np.float64],
        load_max: NDArray[np.float64],
        memory_max: NDArray[np.float64],
        bandwidth_max: NDArray[np.float64],
    ) -> None: ...
    def cost(self, node: NDArray[np.int32]) -> float: ...
    def overload(self, node: NDArray[np.int32]) -> float: ...
    def grow(self, order: NDArray[np.int32], seed: int) -> NDArray[np.int32]: ...
    def pack(self, share: float) -> NDArray[np.int32]: ...
    def repair(self, node: NDArray[np.int32], seed: int, tries: int, seconds: float) -> NDArray[np.int32]: ...
    def refine(self, node: NDArray[np.int32], passes_max: int, seconds: float) -> NDArray[np.int32]: ...
    def anneal(
        self, node: NDArray[np.int32], hot: float, cold: float, sweeps: int, seed: int, seconds: float
    ) -> NDArray[np.int32]: ...
    def anneal_in_halves(
        self, node: NDArray[np.int32], hot: float, cold: float, sweeps: int, rounds: int, seed: int, seconds: float
    ) -> NDArray[np.int32]: ...
    def multilevel(
        self, order: NDArray[np.int32], effort: Effort, seed: int, seconds: float
    ) -> NDArray[np.int32]: ...
    def vcycle(self, node: NDArray[np.int32], effort: Effort, seed: int, seconds: float) -> NDArray[np.int32]: ...
    def evolve(
        self,
        starts: Sequence[NDArray[np.int32]],
        population: int,
        children: int,
        first_sweeps: int,
        coarse_sweeps: int,
        fine_sweeps: int,
        seed: int,
        seconds: float,
    ) -> NDArray[np.int32]: ...
    def trial(
        self, node: NDArray[np.int32], seed: int, changes: int
    ) -> tuple[NDArray[np.int32], float, list[float], list[float], list[float]]: ...
    def split_workers(
        self, node: NDArray[np.int32], slots: NDArray[np.int32], most: int, effort: float, seed: int
    ) -> NDArray[np.int32]: ...
