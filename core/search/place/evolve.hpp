// A small population of annealed placements, improved by crossing them: what two placements agree on is kept together.
//
// The landscape is rugged: single chains end 5 to 10 % apart, because which groups share a node is decided early and
// single tasks cannot undo it. Two good placements agree on most groups. Contracting every set of tasks that share a
// node in both parents leaves a small graph of exactly the undecided pieces; annealing it is cheap and moves whole
// groups. This is the overlap crossover of evolutionary partitioners. Rejected: a soft capacity with a price on
// overload, the other way over barriers; measured, it brought nothing.
#pragma once

#include <span>
#include <vector>

#include "search/clock.hpp"
#include "search/graph.hpp"

namespace penstock {

struct Breeding {
    Id population = 8;
    Id children = 64;
    Id first_sweeps = 500;   // of the annealing that makes a first placement
    Id coarse_sweeps = 300;  // of a child's contracted graph
    Id fine_sweeps = 100;    // of a child
};

// The cheapest placement found; `starts` must be feasible, and the answer is never dearer than the cheapest of them.
std::vector<Id> evolve(const Graph &graph, const Limits &limits, std::span<const std::vector<Id>> starts,
                       const Breeding &breeding, std::uint64_t seed, const Cap &cap);

}  // namespace penstock
