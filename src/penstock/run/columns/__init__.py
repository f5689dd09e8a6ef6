"""Columnar work: aggregates, row functions and expressions over Arrow batches, by the kernels of the core."""
