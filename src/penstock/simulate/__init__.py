"""Virtual time: the engine's pure decisions, run against models of what surrounds them.

region   a parallel region: splitter, connections with buffers, replicas, in-order merger
"""
