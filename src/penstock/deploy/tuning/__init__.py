"""Tuning: profile iterations on real jobs."""
