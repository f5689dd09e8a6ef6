// Simulated annealing of a cut's ratio by moves of single vertices across its boundary.
//
// Not part of Leighton and Rao's method, hence only in the methods that say so. Many short runs from one good cut beat
// few long ones, and passes of best moves (Fiduccia and Mattheyses) found nothing: operators of a chain have to cross
// one after the other, and every step but the last makes the ratio worse.
#pragma once

#include "clock.hpp"
#include "cut_graph.hpp"

namespace penstock {

// The best cut of so many runs, each of which starts from the best so far; never worse than `start`.
BestCut anneal_cut(const CutGraph &graph, std::span<const std::uint8_t> start, std::uint64_t seed, int runs,
                   const Cap &cap);

}  // namespace penstock
