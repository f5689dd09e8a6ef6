// Simulated annealing of a cut's ratio by moves of single vertices across its boundary.
//
// Leighton and Rao's method does not have this step, so it runs just in the methods that name it. Many short runs from
// one good cut beat few long ones. Passes of best moves (Fiduccia and Mattheyses) found nothing: operators of a chain
// have to cross one after the other, and every step but the last makes the ratio worse.
#pragma once

#include "search/clock.hpp"
#include "search/cut/cut_graph.hpp"

namespace penstock {

// The best cut of `runs` runs, each of which starts from the best so far; at least as good as `start`.
BestCut anneal_cut(const CutGraph &graph, std::span<const std::uint8_t> start, std::uint64_t seed, int runs,
                   const Cap &cap);

}  // namespace penstock
