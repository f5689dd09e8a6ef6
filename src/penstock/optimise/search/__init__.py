"""Searches that schedulers and fusion methods share (decision 4)."""
