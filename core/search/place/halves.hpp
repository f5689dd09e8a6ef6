// Annealing on two threads with one answer: the nodes are parted into two regions, each thread cools its own, and the
// regions are drawn anew each round.
//
// Inside a round no task may cross the border, so the threads share nothing and the answer does not depend on their
// pace. Extracting a region also renumbers its vertices node by node, which puts tasks that talk side by side in
// memory.
#pragma once

#include "search/place/anneal.hpp"

namespace penstock {

void anneal_in_halves(State &state, const Cooling &cooling, Id rounds, std::uint64_t seed, const Cap &cap);

}  // namespace penstock
