"""Operators over rows with equal keys: aggregates, windows, joins and rankings."""
