// From a placement that overloads nodes to one that does not.
//
// Partitioners and growth overshoot. First the cheapest moves out of overfull nodes to nodes with room; what remains is
// annealed on overload and cost together, with overload dearer each round, because a tight packing (or a bandwidth that
// falls only when two tasks meet) can need steps that look bad on the way.
#pragma once

#include "clock.hpp"
#include "random.hpp"
#include "state.hpp"

namespace penstock {

// True when no limit is exceeded any more. `tries` bounds the annealing, in proposals.
bool repair(State &state, Random random, std::int64_t tries, const Cap &cap);

}  // namespace penstock
