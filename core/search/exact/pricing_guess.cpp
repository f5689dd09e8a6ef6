// Good sets for one node without proof: most rounds of column generation need no more than these.
#include "search/exact/chosen_set.hpp"
#include "search/exact/pricing.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace penstock {
namespace {

// Greedy growth from one item, then exchanges; quick, and good enough for most rounds of column generation.
class Guess {
public:
    explicit Guess(const Knapsack& knapsack) : k_(knapsack), in_(knapsack.items), link_(knapsack.items) {}

    // The best set found from this seed, or an empty one.
    std::vector<int> from(int seed, double& best_value) {
        std::fill(in_.begin(), in_.end(), 0);
        std::fill(link_.begin(), link_.end(), 0.0);
        load_ = memory_ = 0;
        if (k_.load[seed] > k_.capacity || k_.memory[seed] > k_.memory_limit) return {};
        toggle(seed);
        std::vector<int> best;
        best_value = -std::numeric_limits<double>::infinity();
        grow(best, best_value);
        for (int round = 0; round < 2 * k_.items && improve(); ++round) keep_better(best, best_value);
        return best;
    }

private:
    std::vector<int> members() const {
        std::vector<int> set;
        for (int i = 0; i < k_.items; ++i)
            if (in_[i]) set.push_back(i);
        return set;
    }
    void toggle(int item) {
        const double sign = in_[item] ? -1 : 1;
        in_[item] ^= 1;
        load_ += sign * k_.load[item];
        memory_ += sign * k_.memory[item];
        for (int j = 0; j < k_.items; ++j) link_[j] += sign * k_.weight[item * k_.items + j];
    }
    double gain(int item) const { return k_.profit[item] + link_[item]; }
    bool allowed(int item, int leaving = -1) const {
        const double load = load_ - (leaving >= 0 ? k_.load[leaving] : 0);
        const double memory = memory_ - (leaving >= 0 ? k_.memory[leaving] : 0);
        return !in_[item] && load + k_.load[item] <= k_.capacity && memory + k_.memory[item] <= k_.memory_limit;
    }
    double value() const {
        Chosen chosen(k_);
        Chosen::Totals totals;
        for (const int i : members()) {
            double traffic = k_.profit[i];
            for (const int j : chosen.set) traffic += k_.weight[i * k_.items + j];
            totals = chosen.with(totals, i, traffic);
            chosen.join(i);
        }
        const bool valid = chosen.fits(totals) && chosen.sendable(totals);
        return valid ? totals.value : -std::numeric_limits<double>::infinity();
    }
    void keep_better(std::vector<int>& best, double& best_value) const {
        if (const double now = value(); now > best_value) {
            best_value = now;
            best = members();
        }
    }
    void grow(std::vector<int>& best, double& best_value) {
        keep_better(best, best_value);
        while (true) {
            int pick = -1;
            double most = -std::numeric_limits<double>::infinity();
            for (int i = 0; i < k_.items; ++i) {
                if (!allowed(i)) continue;
                const double d = gain(i) >= 0 ? density(gain(i), k_.load[i]) : gain(i) * k_.load[i];
                if (link_[i] > 0 && d > most) most = d, pick = i;
            }
            if (pick < 0) return;
            toggle(pick);
            keep_better(best, best_value);
        }
    }
    // The best of: one in, one out, one for another. False when none helps.
    bool improve() {
        double most = 1e-9;
        int joins = -1, leaves = -1;
        for (int i = 0; i < k_.items; ++i) {
            if (in_[i]) {
                if (-gain(i) > most) most = -gain(i), joins = -1, leaves = i;
                for (int j = 0; j < k_.items; ++j) {
                    const double delta = gain(j) - gain(i) - k_.weight[i * k_.items + j];
                    if (!in_[j] && delta > most && allowed(j, i)) most = delta, joins = j, leaves = i;
                }
            } else if (gain(i) > most && allowed(i)) {
                most = gain(i), joins = i, leaves = -1;
            }
        }
        if (joins < 0 && leaves < 0) return false;
        if (leaves >= 0) toggle(leaves);
        if (joins >= 0) toggle(joins);
        return true;
    }

    const Knapsack& k_;
    std::vector<char> in_;
    std::vector<double> link_;
    double load_ = 0, memory_ = 0;
};

}  // namespace

PricedSets guess_sets(const Knapsack& knapsack, double threshold, int sets_max) {
    struct Found {
        double value;
        std::vector<int> set;
    };
    std::vector<Found> found;
    Guess guess(knapsack);
    std::vector<char> begun(knapsack.items, 0);
    for (int seed = 0; seed < knapsack.items; ++seed) {
        if (std::exchange(begun[knapsack.kind[seed]], 1)) continue;
        double value = 0;
        auto set = guess.from(seed, value);
        if (!set.empty() && value > threshold) found.push_back({value, std::move(set)});
    }
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
        return a.value != b.value ? a.value > b.value : a.set < b.set;
    });
    const auto same = [](const Found& a, const Found& b) { return a.set == b.set; };
    found.erase(std::unique(found.begin(), found.end(), same), found.end());
    PricedSets sets;
    sets.bound = std::numeric_limits<double>::infinity();
    sets.complete = false;
    for (std::size_t f = 0; f < found.size() && f < static_cast<std::size_t>(sets_max); ++f) {
        sets.item.insert(sets.item.end(), found[f].set.begin(), found[f].set.end());
        sets.start.push_back(static_cast<std::int32_t>(sets.item.size()));
        sets.value.push_back(found[f].value);
    }
    return sets;
}

}  // namespace penstock
