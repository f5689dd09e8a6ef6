// Simulated annealing by moves and swaps inside the feasible region
// (`test_no_search_leaves_a_feasible_region_or_raises_the_cost`).
//
// Sweeps visit vertices in order, which reads rows in the order of memory. A vertex proposes to go where one of its
// neighbours is; when there is no room it proposes to change places with a random vertex there. Vertices all of whose
// neighbours share their node have nothing to gain; they cost one read of their row.
#pragma once

#include "search/clock.hpp"
#include "search/random.hpp"
#include "search/assignment.hpp"

namespace penstock {

struct Cooling {
    double hot = 0;   // first temperature, in units of rate
    double cold = 0;  // last temperature
    Id sweeps = 0;    // temperatures fall geometrically, one for each sweep
    bool keep_best = true;
};

// Cools `state` in place. With `keep_best` it leaves the cheapest state that ended a sweep, never one above the start;
// without, the last one, which is what a hot part of a longer schedule wants.
void anneal(State &state, const Cooling &cooling, Random random, const Cap &cap);

}  // namespace penstock
