"""The control line between driver and workers: proofs, limits and messages."""
