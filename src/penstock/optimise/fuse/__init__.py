"""Fusion: which operators share a worker process (COLA, paper 004), and the cuts that decide it."""
