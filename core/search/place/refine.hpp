// Fiduccia and Mattheyses' passes for many nodes: every vertex moves at most once a pass, the best move first even when
// it costs, and the pass is undone back to its cheapest moment.
//
// Annealing finds more in the time that `best` has. Partitioners get this plain refinement when they are measured
// beside `best`. It ends when no single feasible move improves any more.
#pragma once

#include "search/clock.hpp"
#include "search/assignment.hpp"

namespace penstock {

void refine(State &state, int passes_max, const Cap &cap);

}  // namespace penstock
