"""Minimum-ratio cuts: split a graph of operators in two, cheaply and not too unevenly (COLA, paper 004, equation (2)).

    >>> import numpy as np
    >>> cut = minimum_ratio_cut(np.ones(4), [0, 1, 2], [1, 2, 3], [5.0, 1.0, 5.0], method="exact")
    >>> cut.side.tolist(), cut.ratio, cut.proved
    ([False, False, True, True], 0.5, True)

`contract.py` has the one signature and the registry; every method is a file of its own.
"""

from penstock.optimise.fuse.ratio_cut.contract import METHODS, Cut, minimum_ratio_cut

__all__ = ["METHODS", "Cut", "minimum_ratio_cut"]
