// Pricing of node configurations: the best sets of items for one node, at given prices per item.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

// One node type and the tasks (items) that may go on it.
// All matrices are dense, row by row: pricing is only asked of problems of some hundreds of items at most.
struct Knapsack {
    int items = 0;
    const double* profit = nullptr;      // value of an item alone, at the current prices; any sign
    const double* weight = nullptr;      // items x items, symmetric, not negative: value of a pair on one node
    const double* load = nullptr;
    const double* memory = nullptr;
    const double* outward = nullptr;     // items x items, directed rates, diagonal 0; read where bandwidth is finite
    // Items of one kind are alike in load, memory and rates and join in their order; profit, weight and cuts may differ.
    const std::int32_t* kind = nullptr;
    int cuts = 0;
    const std::uint8_t* cut_share = nullptr;  // cuts x items: 1 where the item counts in the cut
    const double* cut_price = nullptr;        // taken off a set once for every two items in it that count in the cut
    double capacity = 0, memory_limit = 0, bandwidth = 0;
};

struct PricingLimits {
    double threshold = 0;   // sets of a lower value are left out
    bool all = false;       // every set above the threshold; else the best one, and those that improved on the way
    long long nodes_max = 0;
    long long columns_max = 0;
    double seconds = 0;
};

struct PricedSets {
    std::vector<std::int32_t> start{0};  // set k is item[start[k] .. start[k + 1])
    std::vector<std::int32_t> item;
    std::vector<double> value;
    double bound = 0;       // no set is worth more than this, or than the threshold, whichever is larger
    bool complete = true;   // false: a limit stopped the search; `bound` holds all the same
    long long nodes = 0;
};

PricedSets search_sets(const Knapsack& knapsack, const PricingLimits& limits);
PricedSets guess_sets(const Knapsack& knapsack, double threshold, int sets_max);

}  // namespace penstock
