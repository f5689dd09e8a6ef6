// The second level: the tasks of each node are shared out to its workers so that little traffic passes between them.
#pragma once

#include <span>
#include <vector>

#include "search/graph.hpp"

namespace penstock {

// A worker number from 0 for each task, without gaps on a node. A node with t tasks gets min(ceil(t / most), slots)
// workers of at most max(most, ceil(t / workers)) tasks.
std::vector<Id> split_workers(const Graph &graph, std::span<const Id> node, std::span<const Id> slots, Id most,
                              double effort, std::uint64_t seed);

}  // namespace penstock
