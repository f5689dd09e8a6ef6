// The set that pricing is building: what it carries, sends and trips. Shared by the search and the guesses.
#pragma once

#include "search/exact/pricing.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace penstock {

constexpr double kSmallestLoad = 1e-12;  // keeps densities finite for items without load

inline double density(double worth, double load) { return worth / std::max(load, kSmallestLoad); }

// What a set carries and trips, kept up to date as items join and leave.
struct Chosen {
    explicit Chosen(const Knapsack& k)
        : knapsack(k), watches_bandwidth(std::isfinite(k.bandwidth)), held(k.cuts, 0), cuts_of(k.items),
          of_two(k.cuts, 0) {
        for (int c = 0; c < k.cuts; ++c) {
            int count = 0;
            for (int i = 0; i < k.items; ++i)
                if (k.cut_share[c * k.items + i]) cuts_of[i].push_back(c), ++count;
            of_two[c] = count == 2;
        }
    }

    struct Totals {
        double value = 0, load = 0, memory = 0, sent = 0, received = 0;
    };

    // The price of cuts that the item would trip right now: those of which the set holds an odd number.
    double tripped_by(int item) const {
        double price = 0;
        for (const int cut : cuts_of[item])
            if (held[cut] % 2) price += knapsack.cut_price[cut];
        return price;
    }

    // What may be charged to every candidate at once: q of them on top of an odd number trip (q + 1) / 2 times, so half
    // a price each is never too much. Where the cut has two items, one is left, and it pays the whole price.
    double charge(int item) const {
        double price = 0;
        for (const int cut : cuts_of[item])
            if (held[cut] % 2) price += of_two[cut] ? knapsack.cut_price[cut] : knapsack.cut_price[cut] / 2;
        return price;
    }

    Totals with(const Totals& before, int item, double gain) const {
        Totals after = before;
        after.value += gain - tripped_by(item);
        after.load += knapsack.load[item];
        after.memory += knapsack.memory[item];
        if (watches_bandwidth) {
            const int n = knapsack.items;
            for (int j = 0; j < n; ++j) {
                after.sent += knapsack.outward[item * n + j];
                after.received += knapsack.outward[j * n + item];
            }
            for (const int j : set) {
                const double both = knapsack.outward[item * n + j] + knapsack.outward[j * n + item];
                after.sent -= both;
                after.received -= both;
            }
        }
        return after;
    }

    void join(int item) {
        set.push_back(item);
        for (const int cut : cuts_of[item]) ++held[cut];
    }
    void leave() {
        for (const int cut : cuts_of[set.back()]) --held[cut];
        set.pop_back();
    }

    bool fits(const Totals& totals) const {
        return totals.load <= knapsack.capacity && totals.memory <= knapsack.memory_limit;
    }
    bool sendable(const Totals& totals) const {
        return !watches_bandwidth || (totals.sent <= knapsack.bandwidth && totals.received <= knapsack.bandwidth);
    }

    const Knapsack& knapsack;
    bool watches_bandwidth;
    std::vector<int> set;
    std::vector<int> held;
    std::vector<std::vector<int>> cuts_of;
    std::vector<char> of_two;  // cuts on two items
};

}  // namespace penstock
