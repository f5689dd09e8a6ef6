// A first placement by growth: one node after the other is filled from a seed task with the tasks that talk to it most.
//
// It is fast and places every task, but may overload nodes: a task that fits nowhere goes where it overloads least, and
// `repair` follows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "search/graph.hpp"

namespace penstock {

// Fills the nodes of `order` in that order; the other nodes only take what is left over. Seed 0 starts each node from
// the most talkative task left, any other from a random one.
std::vector<Id> grow(const Graph &graph, const Limits &limits, std::span<const Id> order, std::uint64_t seed = 0);

// Best-fit decreasing, blind to traffic: `share` weighs load (1) against memory (0) in a task's size.
std::vector<Id> pack(const Graph &graph, const Limits &limits, double share);

}  // namespace penstock
