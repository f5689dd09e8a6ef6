"""Virtual time: the engine's own code, run against models of what surrounds it.

workers       whole workers of a job under a seeded scheduler; `random_jobs` and `network` are what surrounds them
region        a parallel region: splitter, connections with buffers, replicas, in-order merger
experiments   the region under the conditions of the paper's figures
"""
