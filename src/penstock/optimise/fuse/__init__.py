"""Fusion: which tasks share a worker, and where the workers run (paper 004: COLA). `door.fuse` is the way in."""
