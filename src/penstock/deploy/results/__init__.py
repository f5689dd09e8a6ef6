"""Rows that come back from workers: over the control line, as files, as DataFrames."""
