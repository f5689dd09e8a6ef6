"""Parallel regions: how a splitter shares rows out among replicas, and how a merger puts them back into order.

Pure code, which the engine and the simulation under virtual time call alike; `tasks` alone runs inside a worker:
`blocking_rate` (cumulative blocking time -> smoothed rate), `rate_function` (what has been seen of a connection ->
blocking at every weight), `clustering` (alike functions share what they know), `minimax` (functions -> weights),
`balancer` (the paper's step from a sample to weights), `policies` (every way to weigh a region, by name), `sharing`
(whose turn is next), `order` (numbers out, order back), `slices` (slices on their way through a machine).

The paper is "Dynamic Load Balancing for Ordered Data-Parallel Regions in Distributed Streaming Systems" (IBM).
"""
