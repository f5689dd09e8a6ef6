"""Parallel regions: how a splitter shares rows out among replicas, and how a merger puts them back into order.

Everything here is pure: samples in, weights out; rows in, slices out; slices in, order out. The engine's splitter and
merger tasks and the simulation under virtual time call the same code.

    blocking_rate   cumulative blocking time of each connection -> smoothed rate
    rate_function   what has been seen of one connection -> blocking predicted for every weight
    clustering      alike functions -> groups that share what they know
    minimax         functions -> weights whose largest predicted blocking is smallest
    balancer        the decision step of the paper, from one sample to weights
    policies        every way to weigh a region, by name: one file, one signature each
    sharing         weights -> whose turn is next
    order           the splitter's numbering and the merger's reordering

The paper is "Dynamic Load Balancing for Ordered Data-Parallel Regions in Distributed Streaming Systems" (IBM).
"""
