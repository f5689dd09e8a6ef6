#include "anneal.hpp"

#include <cmath>

namespace penstock {

namespace {

const NegativeLogs negative_logs;
constexpr std::uint32_t random_target_one_in = 64;  // a vertex with outside neighbours tries any node this often
constexpr Id quench_sweeps = 2;                     // at temperature 0 when the cap passes in the middle of cooling

template <bool limited> class Annealer {
  public:
    Annealer(State &state, Random random) : state_(state), graph_(state.graph()), random_(random) {}

    // One sweep; returns what it added to the cost.
    double sweep(float temperature) {
        double change = 0;
        for (Id v = 0; v < graph_.size(); ++v) change += visit(v, temperature);
        return change;
    }

  private:
    double visit(Id v, float temperature) {
        const std::uint64_t bits = random_.next();
        const Id here = state_.node_of(v);
        float to_here = 0;
        const Id there = choose(v, here, bits, to_here);
        if (there < 0) return 0;
        const float allowed = temperature * negative_logs[bits];
        float to_there = 0;
        for (const Arc &arc : graph_.row(v)) {
            if (state_.node_of(arc.to) == there) to_there += arc.rate;
        }
        const float change = to_here - to_there;
        if (limited ? state_.move_fits(v, there) : state_.load_fits(v, there)) {
            if (change > allowed) return 0;
            state_.move(v, there);
            return change;
        }
        return try_swap(v, here, there, change, allowed);
    }

    // The node of the first outside neighbour at or after a random place in the row; -1 when there is none.
    Id choose(Id v, Id here, std::uint64_t bits, float &to_here) {
        const auto row = graph_.row(v);
        if (row.empty()) return -1;
        const auto pivot = Random::scale(static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(row.size()));
        Id before = -1, after = -1;
        for (std::uint32_t at = 0; at < row.size(); ++at) {
            const Id node = state_.node_of(row[at].to);
            if (node == here) {
                to_here += row[at].rate;
            } else if (at < pivot) {
                if (before < 0) before = node;
            } else if (after < 0) {
                after = node;
            }
        }
        const Id found = after >= 0 ? after : before;
        if (found >= 0 && ((bits >> 12) & (random_target_one_in - 1)) == 0) {
            const auto any = static_cast<Id>(random_.below(static_cast<std::uint32_t>(state_.limits().size())));
            return any == here ? found : any;
        }
        return found;
    }

    double try_swap(Id v, Id here, Id there, float change, float allowed) {
        const auto &others = state_.members(there);
        if (others.empty()) return 0;
        const Id other = others[random_.below(static_cast<std::uint32_t>(others.size()))];
        if (limited ? !state_.swap_fits(v, other) : !state_.loads_swap(v, other)) return 0;
        for (const Arc &arc : graph_.row(other)) {
            const Id node = state_.node_of(arc.to);
            if (arc.to == v) {
                change += arc.rate;  // the pair is apart before and after; both moves counted it as gained
            } else if (node == here) {
                change -= arc.rate;
            } else if (node == there) {
                change += arc.rate;
            }
        }
        if (change > allowed) return 0;
        state_.swap(v, other);
        return change;
    }

    State &state_;
    const Graph &graph_;
    Random random_;
};

template <bool limited> void run(State &state, const Cooling &cooling, Random random, const Cap &cap) {
    Annealer<limited> annealer(state, random);
    double change = 0, best_change = 0;
    std::vector<Id> best = state.node();
    const double factor = cooling.sweeps > 1 ? std::pow(cooling.cold / cooling.hot, 1.0 / (cooling.sweeps - 1)) : 1.0;
    double temperature = cooling.hot;
    Id quench = 0;
    for (Id sweep = 0; sweep < cooling.sweeps && quench < quench_sweeps; ++sweep, temperature *= factor) {
        if (quench > 0 || cap.passed()) ++quench;
        change += annealer.sweep(quench > 0 ? 0.0f : static_cast<float>(temperature));
        if (cooling.keep_best && change < best_change) {
            best_change = change;
            best = state.node();
        }
    }
    if (cooling.keep_best && best_change < change) state = State(state.graph(), state.limits(), best);
}

}  // namespace

void anneal(State &state, const Cooling &cooling, Random random, const Cap &cap) {
    if (state.limited()) {
        run<true>(state, cooling, random, cap);
    } else {
        run<false>(state, cooling, random, cap);
    }
}

}  // namespace penstock
