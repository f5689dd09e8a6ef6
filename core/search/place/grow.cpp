#include "search/place/grow.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>

#include "search/random.hpp"

namespace penstock {

namespace {

struct Filling {
    const Graph &graph;
    const Limits &limits;
    std::vector<Id> node;
    std::vector<double> load, memory;

    Filling(const Graph &g, const Limits &l)
        : graph(g), limits(l), node(g.size(), -1), load(l.size(), 0.0), memory(l.size(), 0.0) {}
    bool fits(Id v, Id k) const {
        return load[k] + graph.load[v] <= limits.load[k] &&
               (limits.memory.empty() || memory[k] + graph.memory[v] <= limits.memory[k]);
    }
    void put(Id v, Id k) {
        node[v] = k;
        load[k] += graph.load[v];
        if (!limits.memory.empty()) memory[k] += graph.memory[v];
    }
    double fullness_with(Id v, Id k) const {
        const double by_load = (load[k] + graph.load[v]) / limits.load[k];
        return limits.memory.empty() ? by_load : std::max(by_load, (memory[k] + graph.memory[v]) / limits.memory[k]);
    }
};

void fill(Filling &filling, Id k, Id seed, std::vector<float> &rate, std::vector<Id> &touched) {
    std::priority_queue<std::pair<float, Id>> waiting;
    waiting.emplace(0.0f, seed);
    while (!waiting.empty()) {
        const auto [key, v] = waiting.top();
        waiting.pop();
        if (filling.node[v] >= 0 || key < rate[v] || !filling.fits(v, k)) continue;  // placed, stale, or too large
        filling.put(v, k);
        for (const Arc &arc : filling.graph.row(v)) {
            if (filling.node[arc.to] >= 0) continue;
            if (rate[arc.to] == 0.0f) touched.push_back(arc.to);
            rate[arc.to] += arc.rate;
            waiting.emplace(rate[arc.to], arc.to);
        }
    }
    for (const Id v : touched) rate[v] = 0.0f;
    touched.clear();
}

constexpr Id many_nodes = 256;  // from here the next node with room will do: looking at all took a third of a growth

// The node with room that `v` talks to most; else the one that it would fill least, or with many nodes the next one from
// `turn` on that has room.
Id best_home(const Filling &filling, Id v, std::vector<float> &rate, Id &turn) {
    Id best = -1;
    for (const Arc &arc : filling.graph.row(v)) {
        const Id k = filling.node[arc.to];
        if (k < 0) continue;
        rate[k] += arc.rate;
        if (filling.fits(v, k) && (best < 0 || rate[k] > rate[best])) best = k;
    }
    for (const Arc &arc : filling.graph.row(v)) {
        if (filling.node[arc.to] >= 0) rate[filling.node[arc.to]] = 0.0f;
    }
    if (best >= 0) return best;
    const Id count = filling.limits.size();
    for (Id tries = 0; count >= many_nodes && tries < count; ++tries) {
        turn = turn == 0 ? count - 1 : turn - 1;
        if (filling.fits(v, turn)) return turn;
    }
    best = 0;
    for (Id k = 1; k < filling.limits.size(); ++k) {
        if (filling.fullness_with(v, k) < filling.fullness_with(v, best)) best = k;
    }
    return best;
}

// Seed 0: the most talkative first, so that heavy groups are not torn apart. Others: at random.
std::vector<Id> seed_order(const Graph &graph, std::uint64_t seed) {
    std::vector<Id> seeds(graph.size());
    std::iota(seeds.begin(), seeds.end(), 0);
    if (seed != 0) {
        Random(seed).shuffle(seeds);
        return seeds;
    }
    std::vector<double> talk(graph.size(), 0.0);
    for (Id v = 0; v < graph.size(); ++v) {
        for (const Arc &arc : graph.row(v)) talk[v] += arc.rate;
    }
    std::stable_sort(seeds.begin(), seeds.end(), [&](Id a, Id b) { return talk[a] > talk[b]; });
    return seeds;
}

}  // namespace

std::vector<Id> grow(const Graph &graph, const Limits &limits, std::span<const Id> order, std::uint64_t seed) {
    Filling filling(graph, limits);
    const std::vector<Id> seeds = seed_order(graph, seed);
    std::vector<float> rate(graph.size(), 0.0f);
    std::vector<Id> touched;
    std::size_t next = 0;
    for (const Id k : order) {
        // A part that runs dry before the node is full is followed by another seed, up to a limit on vain attempts.
        std::size_t at = next;
        for (int vain = 0; at < seeds.size() && vain < 64; ++at) {
            if (filling.node[seeds[at]] >= 0) continue;
            if (filling.fits(seeds[at], k)) {
                fill(filling, k, seeds[at], rate, touched);
            } else {
                ++vain;
            }
        }
        while (next < seeds.size() && filling.node[seeds[next]] >= 0) ++next;
    }
    std::vector<Id> left;
    for (Id v = 0; v < graph.size(); ++v) {
        if (filling.node[v] < 0) left.push_back(v);
    }
    std::stable_sort(left.begin(), left.end(), [&](Id a, Id b) { return graph.load[a] > graph.load[b]; });
    std::vector<float> rate_to_node(limits.size(), 0.0f);
    Id turn = 0;
    for (const Id v : left) filling.put(v, best_home(filling, v, rate_to_node, turn));
    return filling.node;
}

std::vector<Id> pack(const Graph &graph, const Limits &limits, double share) {
    Filling filling(graph, limits);
    const auto largest = [](const std::vector<double> &values) {
        return std::max(1e-300, values.empty() ? 1.0 : *std::max_element(values.begin(), values.end()));
    };
    const double load_unit = largest(graph.load), memory_unit = largest(graph.memory);
    const auto size = [&](Id v) {
        return share * graph.load[v] / load_unit + (graph.memory.empty() ? 0.0 : (1 - share) * graph.memory[v] / memory_unit);
    };
    std::vector<Id> order(graph.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](Id a, Id b) { return size(a) > size(b); });
    for (const Id v : order) {
        Id best = -1, least_full = 0;
        double best_room = std::numeric_limits<double>::infinity();
        for (Id k = 0; k < limits.size(); ++k) {
            if (filling.fullness_with(v, k) < filling.fullness_with(v, least_full)) least_full = k;
            if (!filling.fits(v, k)) continue;
            double room = share * (limits.load[k] - filling.load[k] - graph.load[v]) / load_unit;
            if (!limits.memory.empty()) {
                room += (1 - share) * (limits.memory[k] - filling.memory[k] - graph.memory[v]) / memory_unit;
            }
            if (room < best_room) {
                best = k;
                best_room = room;
            }
        }
        filling.put(v, best >= 0 ? best : least_full);
    }
    return filling.node;
}

}  // namespace penstock
