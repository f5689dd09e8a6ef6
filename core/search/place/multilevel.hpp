// Placement of large graphs: coarsen to clusters of a fraction of a node, place and anneal those, then undo the
// coarsening level by level and anneal each level, cooler each time.
//
// A step of a coarse level moves several tasks at once over barriers that single moves cannot cross, and its sweeps are
// cheap. Recursive bisection for the first placement was rejected: with nodes of 5 to 40 tasks there is hardly a level
// above the nodes to bisect, and annealing forgets the start anyway.
#pragma once

#include <span>
#include <vector>

#include "search/clock.hpp"
#include "search/graph.hpp"
#include "search/assignment.hpp"

namespace penstock {

struct Effort {
    double visits = 0;          // proposals in all, over all levels
    double hot = 1.0;           // first temperature at the coarsest level, in mean rates of that level
    double warm = 0.3;          // first temperature at finer levels
    double cold = 0.05;         // last temperature everywhere
    double coarse_share = 0.5;  // of the visits go to coarse levels
    double cluster_share = 0.25;  // of a mean node's capacity may be one cluster
    Id rounds = 4;              // of drawing regions for two threads at each level; 0: one thread
};

// Places on the nodes of `order` first (others take what does not fit).
std::vector<Id> multilevel(const Graph &graph, const Limits &limits, std::span<const Id> order, const Effort &effort,
                           std::uint64_t seed, const Cap &cap);

}  // namespace penstock
