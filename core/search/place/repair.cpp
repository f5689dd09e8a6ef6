#include "search/place/repair.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace penstock {

namespace {

const NegativeLogs negative_logs;

std::vector<Id> overfull(const State &state) {
    std::vector<Id> nodes;
    for (Id k = 0; k < state.limits().size(); ++k) {
        if (state.overload(k) > 0) nodes.push_back(k);
    }
    return nodes;
}

// A node with much room for load: the best of a few random nodes. The exact answer is not worth a heap here.
Id roomy(const State &state, Random &random) {
    const auto count = static_cast<std::uint32_t>(state.limits().size());
    Id best = static_cast<Id>(random.below(count));
    for (int i = 0; i < 8; ++i) {
        const Id k = static_cast<Id>(random.below(count));
        if (state.limits().load[k] - state.load(k) > state.limits().load[best] - state.load(best)) best = k;
    }
    return best;
}

// Moves the member of `k` whose leaving costs least for the load that it takes away; false when none can leave.
bool move_one_out(State &state, Id k, Random &random) {
    Id best = -1, best_there = -1;
    double best_price = std::numeric_limits<double>::infinity();
    const double before = state.overload(k);
    for (const Id v : state.members(k)) {
        const auto consider = [&](Id there) {
            if (there == k || !state.move_fits(v, there)) return;
            const double relief = before + state.overload(there) - state.overload_after_move(v, there);
            if (relief <= 0) return;
            const double price = state.change_of_move(v, there) / relief;
            if (price < best_price) {
                best = v;
                best_there = there;
                best_price = price;
            }
        };
        for (const Arc &arc : state.graph().row(v)) consider(state.node_of(arc.to));
        consider(roomy(state, random));
    }
    if (best < 0) return false;
    state.move(best, best_there);
    return true;
}

// Proposals that involve an overfull node: one of its members leaves, comes, or changes places.
class Settling {
  public:
    Settling(State &state, Random random) : state_(state), random_(random), full_(overfull(state)) {}

    bool settled() {
        std::erase_if(full_, [&](Id k) { return state_.overload(k) <= 0; });
        if (full_.empty()) full_ = overfull(state_);  // a bandwidth can have been pushed over by an accepted step
        return full_.empty();
    }

    void propose(double price, double heat) {
        const Id k = full_[random_.below(static_cast<std::uint32_t>(full_.size()))];
        const std::uint64_t bits = random_.next();
        if (state_.members(k).empty()) return;
        const Id v = pick(state_.members(k));
        const Id there = (bits & 1) ? near(v) : any_node();
        if (there == k) return;
        const double now = state_.overload(k) + state_.overload(there);
        const double allowed = heat * negative_logs[bits >> 20];
        if ((bits & 2) && !state_.members(there).empty()) {
            const Id other = pick(state_.members(there));
            const double rise = state_.overload_after_swap(v, other) - now;
            if (price * rise + state_.change_of_swap(v, other) <= allowed) accept_swap(v, other, there);
        } else if ((bits & 12) == 0 && !state_.members(there).empty()) {
            const Id other = pick(state_.members(there));  // comes to the full node: a bandwidth may need it
            const double rise = state_.overload_after_move(other, k) - now;
            if (price * rise + state_.change_of_move(other, k) <= allowed) accept_move(other, k, there);
        } else {
            const double rise = state_.overload_after_move(v, there) - now;
            if (price * rise + state_.change_of_move(v, there) <= allowed) accept_move(v, there, there);
        }
    }

  private:
    Id pick(const std::vector<Id> &list) { return list[random_.below(static_cast<std::uint32_t>(list.size()))]; }
    Id any_node() { return static_cast<Id>(random_.below(static_cast<std::uint32_t>(state_.limits().size()))); }
    Id near(Id v) {
        const auto row = state_.graph().row(v);
        return row.empty() ? any_node() : state_.node_of(row[random_.below(static_cast<std::uint32_t>(row.size()))].to);
    }
    void accept_move(Id v, Id there, Id other_node) {
        state_.move(v, there);
        note(other_node);
    }
    void accept_swap(Id v, Id other, Id other_node) {
        state_.swap(v, other);
        note(other_node);
    }
    void note(Id k) {
        if (state_.overload(k) > 0 && std::find(full_.begin(), full_.end(), k) == full_.end()) full_.push_back(k);
    }

    State &state_;
    Random random_;
    std::vector<Id> full_;
};

}  // namespace

bool repair(State &state, Random random, std::int64_t tries, const Cap &cap) {
    for (const Id k : overfull(state)) {
        while (state.overload(k) > 0 && move_one_out(state, k, random)) {
        }
    }
    Settling settling(state, random);
    const double heat = std::max(1e-12, state.graph().mean_rate());
    double price = 10 * heat;
    constexpr std::int64_t rounds = 20;
    for (std::int64_t round = 0; round < rounds && !settling.settled(); ++round, price *= 3) {
        for (std::int64_t i = 0; i < tries / rounds; ++i) {
            settling.propose(price, heat);
            if ((i & 63) == 63 && (settling.settled() || cap.passed())) break;
        }
        if (cap.passed()) break;
    }
    return state.overload() <= 0;
}

}  // namespace penstock
