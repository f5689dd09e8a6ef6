"""Operators as tasks, one file per family; each is driven by calls alone and holds its state where it can be taken."""
