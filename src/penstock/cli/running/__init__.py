"""Verbs for jobs that run in other processes."""
