"""The parts of `exact`: packing models, column generation and proofs of optimality (decision 3)."""
