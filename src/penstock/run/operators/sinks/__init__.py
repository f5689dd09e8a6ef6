"""Sinks: rows kept for the driver, written to files, or given to a user's function."""
