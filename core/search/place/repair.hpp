// From a placement that overloads nodes to one that does not.
//
// Partitioners and growth overshoot. First come the cheapest moves out of overfull nodes to nodes with room. Overload
// that remains is annealed together with the cost, at a higher price each round: a tight packing can need steps that
// look bad on the way, and so can a bandwidth that falls when two tasks meet.
#pragma once

#include "search/clock.hpp"
#include "search/random.hpp"
#include "search/assignment.hpp"

namespace penstock {

// True when no limit is exceeded any more. `tries` bounds the annealing, in proposals.
bool repair(State &state, Random random, std::int64_t tries, const Cap &cap);

}  // namespace penstock
