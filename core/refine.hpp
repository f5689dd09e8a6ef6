// Fiduccia and Mattheyses' passes for many nodes: every vertex moves at most once a pass, the best move first even when
// it costs, and the pass is undone back to its cheapest moment.
//
// Annealing finds more in the time that `best` has; this is the plain refinement that partitioners are given when they
// are measured beside it, and it is exact about when it stops: no single feasible move improves any more.
#pragma once

#include "clock.hpp"
#include "state.hpp"

namespace penstock {

void refine(State &state, int passes_max, const Cap &cap);

}  // namespace penstock
