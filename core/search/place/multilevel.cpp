#include "search/place/multilevel.hpp"

#include <algorithm>
#include <list>

#include "search/place/coarsen.hpp"
#include "search/place/grow.hpp"
#include "search/place/halves.hpp"
#include "search/place/repair.hpp"

namespace penstock {

namespace {

constexpr int levels_max = 12;
constexpr double shrink_min = 0.9;  // a level that keeps more of its vertices than this is not worth its sweeps

struct Level {
    Graph graph;
    std::vector<Id> cluster;  // of each vertex of the finer level
};

ClusterLimit cluster_limit(const Limits &limits, std::span<const Id> order, double share) {
    ClusterLimit limit;
    for (const Id k : order) {
        limit.load += limits.load[k] * share / static_cast<double>(order.size());
        if (!limits.memory.empty()) limit.memory += limits.memory[k] * share / static_cast<double>(order.size());
    }
    return limit;
}

// Finest first.
std::list<Level> coarsen(const Graph &graph, const ClusterLimit &limit, std::size_t enough, std::uint64_t seed,
                         const Cap &cap) {
    std::list<Level> levels;
    const Graph *finer = &graph;
    for (int depth = 0; depth < levels_max && static_cast<std::size_t>(finer->size()) > enough; ++depth) {
        Clustering found = cluster(*finer, limit, {}, Random::split(seed, 100 + static_cast<std::uint64_t>(depth)));
        if (found.count > shrink_min * finer->size() || cap.passed()) break;
        levels.push_back({contract(*finer, found.cluster, found.count), std::move(found.cluster)});
        finer = &levels.back().graph;
    }
    return levels;
}

std::vector<Id> projected(const std::vector<Id> &cluster, const std::vector<Id> &node) {
    std::vector<Id> finer(cluster.size());
    for (std::size_t v = 0; v < cluster.size(); ++v) finer[v] = node[cluster[v]];
    return finer;
}

void cool(State &state, double hot, double cold, double visits, const Effort &effort, std::uint64_t seed,
          const Cap &cap, bool keep_best) {
    const double unit = state.graph().mean_rate();
    const auto sweeps = static_cast<Id>(std::clamp(visits / std::max<Id>(1, state.graph().size()), 2.0, 1e6));
    if (unit <= 0) return;
    const Cooling cooling{hot * unit, cold * unit, sweeps, keep_best};
    if (effort.rounds == 0) {
        anneal(state, cooling, Random::split(seed, 0), cap);
    } else {
        anneal_in_halves(state, cooling, std::min(effort.rounds, sweeps), seed, cap);
    }
}

// From the coarsest level, already placed by `node`, back to `graph`.
std::vector<Id> uncoarsen(const Graph &graph, const Limits &limits, std::list<Level> &levels, std::vector<Id> node,
                          const Effort &effort, double first_heat, std::uint64_t seed, const Cap &cap) {
    const double share = levels.empty() ? 0.0 : effort.coarse_share / static_cast<double>(levels.size());
    const double fine_share = levels.empty() ? 1.0 : 1.0 - effort.coarse_share;
    double heat = first_heat;
    std::uint64_t stream = 1000;
    while (!levels.empty()) {
        State state(levels.back().graph, limits, node);
        cool(state, heat, effort.cold, effort.visits * share, effort, spread(seed + stream++), cap, false);
        node = projected(levels.back().cluster, state.node());
        levels.pop_back();
        heat = effort.warm;
    }
    State state(graph, limits, node);
    if (state.overload() > 0) repair(state, Random::split(seed, 7), 20ll * graph.size(), cap);
    cool(state, heat, effort.cold, effort.visits * fine_share, effort, spread(seed + stream), cap, true);
    return state.node();
}

}  // namespace

std::vector<Id> multilevel(const Graph &graph, const Limits &limits, std::span<const Id> order, const Effort &effort,
                           std::uint64_t seed, const Cap &cap) {
    const ClusterLimit limit = cluster_limit(limits, order, effort.cluster_share);
    auto levels = coarsen(graph, limit, 2 * order.size(), seed, cap);
    const Graph &coarsest = levels.empty() ? graph : levels.back().graph;
    State state(coarsest, limits, grow(coarsest, limits, order));
    if (state.overload() > 0) repair(state, Random::split(seed, 3), 20ll * coarsest.size(), cap);
    return uncoarsen(graph, limits, levels, state.node(), effort, effort.hot, seed, cap);
}

}  // namespace penstock
