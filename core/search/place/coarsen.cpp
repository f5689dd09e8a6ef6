#include "search/place/coarsen.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {

namespace {

// Clusters under construction, each named by the vertex that founded it.
struct Growing {
    std::vector<Id> founder;
    std::vector<double> load, memory;
    std::vector<char> joined;  // founder[v] is final, or others have come to v

    explicit Growing(const Graph &graph)
        : founder(graph.size()), load(graph.load), memory(graph.memory), joined(graph.size(), 0) {
        std::iota(founder.begin(), founder.end(), 0);
    }
    bool has_room(const Graph &graph, Id v, Id c, const ClusterLimit &limit) const {
        return load[c] + graph.load[v] <= limit.load &&
               (memory.empty() || memory[c] + graph.memory[v] <= limit.memory);
    }
    void join(const Graph &graph, Id v, Id c) {
        founder[v] = c;
        joined[v] = joined[c] = 1;
        load[c] += graph.load[v];
        if (!memory.empty()) memory[c] += graph.memory[v];
    }
};

Clustering numbered(const std::vector<Id> &founder) {
    Clustering result{std::vector<Id>(founder.size()), 0};
    std::vector<Id> number(founder.size(), -1);
    for (std::size_t v = 0; v < founder.size(); ++v) {
        Id &c = number[founder[v]];
        if (c < 0) c = result.count++;
        result.cluster[v] = c;
    }
    return result;
}

// Random in blocks of consecutive vertices: as diverse as a full shuffle for the result, but rows come from memory in
// runs, which halves the time on 100,000 tasks.
std::vector<Id> visiting_order(Id size, Random &random) {
    constexpr Id block = 16;
    std::vector<Id> blocks((size + block - 1) / block), order;
    std::iota(blocks.begin(), blocks.end(), 0);
    random.shuffle(blocks);
    order.reserve(size);
    for (const Id b : blocks) {
        for (Id v = b * block; v < std::min(size, (b + 1) * block); ++v) order.push_back(v);
    }
    return order;
}

}  // namespace

Clustering cluster(const Graph &graph, const ClusterLimit &limit, std::span<const Id> within, Random random) {
    Growing growing(graph);
    std::vector<float> rate(graph.size(), 0.0f);
    std::vector<Id> touched;
    const std::vector<Id> order = visiting_order(graph.size(), random);
    const double mean_load = std::accumulate(graph.load.begin(), graph.load.end(), 1e-300) / std::max(1, graph.size());
    for (const Id v : order) {
        if (growing.joined[v]) continue;
        touched.clear();
        for (const Arc &arc : graph.row(v)) {
            if (!within.empty() && within[arc.to] != within[v]) continue;
            const Id c = growing.founder[arc.to];
            if (rate[c] == 0.0f) touched.push_back(c);
            rate[c] += arc.rate;
        }
        Id best = -1;
        double best_rating = 0;
        for (const Id c : touched) {
            const double rating = rate[c] / (growing.load[c] + 0.1 * mean_load);
            rate[c] = 0.0f;
            if (rating > best_rating && c != v && growing.has_room(graph, v, c, limit)) {
                best = c;
                best_rating = rating;
            }
        }
        if (best >= 0) growing.join(graph, v, best);
    }
    return numbered(growing.founder);
}

}  // namespace penstock
