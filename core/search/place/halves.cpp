#include "search/place/halves.hpp"

#include <array>
#include <cmath>
#include <thread>

namespace penstock {

namespace {

// 0 or 1 for each node: region 0 is grown breadth-first from a random vertex until it holds half the vertices.
std::vector<char> draw_regions(const State &state, Random &random) {
    const Graph &graph = state.graph();
    const Id half = graph.size() / 2;
    std::vector<char> region(state.limits().size(), 1), seen(graph.size(), 0);
    std::vector<Id> queue;
    queue.reserve(graph.size());
    Id covered = 0;
    const Id offset = static_cast<Id>(random.below(static_cast<std::uint32_t>(graph.size())));
    const auto take = [&](Id node) {
        if (region[node] == 0) return;
        region[node] = 0;
        for (const Id v : state.members(node)) {
            seen[v] = 1;
            queue.push_back(v);
        }
        covered += static_cast<Id>(state.members(node).size());
    };
    std::size_t head = 0;
    for (Id i = 0; i < graph.size() && covered < half; ++i) {
        const Id root = (offset + i) % graph.size();
        if (!seen[root]) take(state.node_of(root));
        for (; head < queue.size() && covered < half; ++head) {
            for (const Arc &arc : graph.row(queue[head])) {
                if (!seen[arc.to] && covered < half) take(state.node_of(arc.to));
            }
        }
    }
    for (Id k = 0; k < state.limits().size(); ++k) {  // empty nodes are room for either side
        if (state.members(k).empty()) region[k] = static_cast<char>(random.below(2));
    }
    return region;
}

struct Half {
    std::vector<Id> nodes, members, node;
    Limits limits;
    Graph graph;
};

Half extract(const State &state, const std::vector<char> &region, char which) {
    Half half;
    const Limits &limits = state.limits();
    for (Id k = 0; k < limits.size(); ++k) {
        if (region[k] != which) continue;
        for (const Id v : state.members(k)) {
            half.members.push_back(v);
            half.node.push_back(static_cast<Id>(half.nodes.size()));
        }
        half.nodes.push_back(k);
        half.limits.load.push_back(limits.load[k]);
        if (!limits.memory.empty()) half.limits.memory.push_back(limits.memory[k]);
    }
    std::vector<Id> number(state.graph().size(), -1);
    half.graph = induced(state.graph(), half.members, number);
    return half;
}

}  // namespace

void anneal_in_halves(State &state, const Cooling &cooling, Id rounds, std::uint64_t seed, const Cap &cap) {
    // What a node sends across the border is unknown inside a region, so bandwidths need the whole graph at once.
    if (!state.limits().bandwidth.empty() || state.limits().size() < 4) {
        return anneal(state, cooling, Random::split(seed, 0), cap);
    }
    Random random = Random::split(seed, 1);
    const double factor = std::pow(cooling.cold / cooling.hot, 1.0 / std::max<Id>(1, rounds));
    Cooling part{cooling.hot, cooling.hot * factor, 0, false};
    const double start_cost = cooling.keep_best ? state.cost() : 0.0;
    const std::vector<Id> start = cooling.keep_best ? state.node() : std::vector<Id>{};
    for (Id round = 0; round < rounds && !cap.passed(); ++round) {
        part.sweeps = cooling.sweeps * (round + 1) / rounds - cooling.sweeps * round / rounds;
        const auto region = draw_regions(state, random);
        std::array<Half, 2> halves;
        const auto work = [&](int which) {
            Half &half = halves[which];
            half = extract(state, region, static_cast<char>(which));
            if (half.members.empty()) return;
            State own(half.graph, half.limits, half.node);
            anneal(own, part, Random::split(seed, 2 + 2 * static_cast<std::uint64_t>(round) + which), cap);
            half.node = own.node();
        };
        std::thread other(work, 1);
        work(0);
        other.join();
        std::vector<Id> node = state.node();
        for (const Half &half : halves) {
            for (std::size_t i = 0; i < half.members.size(); ++i) node[half.members[i]] = half.nodes[half.node[i]];
        }
        state = State(state.graph(), state.limits(), node);
        part.hot *= factor;
        part.cold *= factor;
    }
    if (cooling.keep_best && state.cost() > start_cost) state = State(state.graph(), state.limits(), start);
}

}  // namespace penstock
