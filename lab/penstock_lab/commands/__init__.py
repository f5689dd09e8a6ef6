"""Verbs that the laboratory adds to the `penstock` command, found by entry points."""
