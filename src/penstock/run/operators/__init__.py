"""Operators as tasks, one file per family; the machine drives each by calls, and `take_state` gives its state."""
