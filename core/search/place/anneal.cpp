#include "search/place/anneal.hpp"

#include <cmath>

namespace penstock {

namespace {

const NegativeLogs negative_logs;
constexpr std::uint32_t random_target_one_in = 64;  // a vertex with outside neighbours tries any node this often
constexpr int partners_max = 3;                     // draws of a partner whose load fits
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
        const auto row = graph_.row(v);
        if (row.size() > nodes_.size()) nodes_.resize(row.size());
        float to_here = 0;
        const Id there = choose(row, here, bits, to_here);
        if (there < 0) return 0;
        float to_there = 0;
        for (std::size_t at = 0; at < row.size(); ++at) to_there += nodes_[at] == there ? row[at].rate : 0.0f;
        const float change = to_here - to_there;
        const float allowed = temperature * negative_logs[bits];
        // In an acceptable swap at least one of the two moves is acceptable alone. So `v` must be: a swap that this
        // refuses is proposed again from the other side.
        if (change > allowed) return 0;
        if (limited ? state_.move_fits(v, there) : state_.load_fits(v, there)) {
            state_.move(v, there);
            return change;
        }
        return try_swap(v, here, there, change, allowed);
    }

    // The node of the first outside neighbour at or after a random place in the row; -1 when there is none. The
    // neighbours' nodes are kept for the second look. Selections replace branches, which the processor could not
    // predict.
    Id choose(std::span<const Arc> row, Id here, std::uint64_t bits, float &to_here) {
        const auto size = static_cast<std::uint32_t>(row.size());
        const std::uint32_t pivot = Random::scale(static_cast<std::uint32_t>(bits >> 32), size);
        const std::vector<Id> &node_of = state_.node();
        Id before = -1, after = -1, heavy = -1;
        float heaviest = -0.5f;
        for (std::uint32_t at = size; at-- > pivot;) {
            const Id node = nodes_[at] = node_of[row[at].to];
            to_here += node == here ? row[at].rate : 0.0f;
            after = node == here ? after : node;
            const float away = node == here ? -1.0f : row[at].rate;
            heavy = away > heaviest ? node : heavy;
            heaviest = std::max(away, heaviest);
        }
        for (std::uint32_t at = pivot; at-- > 0;) {
            const Id node = nodes_[at] = node_of[row[at].to];
            to_here += node == here ? row[at].rate : 0.0f;
            before = node == here ? before : node;
            const float away = node == here ? -1.0f : row[at].rate;
            heavy = away > heaviest ? node : heavy;
            heaviest = std::max(away, heaviest);
        }
        const Id found = (bits & (1u << 20)) ? heavy : after >= 0 ? after : before;
        if (found >= 0 && ((bits >> 12) & (random_target_one_in - 1)) == 0) {
            const auto any = static_cast<Id>(random_.below(static_cast<std::uint32_t>(state_.limits().size())));
            return any == here ? found : any;
        }
        return found;
    }

    double try_swap(Id v, Id here, Id there, float change, float allowed) {
        const auto &others = state_.members(there);
        if (others.empty()) return 0;
        Id other = -1;
        for (int tries = 0; tries < partners_max && other < 0; ++tries) {
            const Id drawn = others[random_.below(static_cast<std::uint32_t>(others.size()))];
            if (limited ? state_.swap_fits(v, drawn) : state_.loads_swap(v, drawn)) other = drawn;
        }
        if (other < 0) return 0;
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
    std::vector<Id> nodes_ = std::vector<Id>(64);  // of the neighbours of the vertex being visited
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
