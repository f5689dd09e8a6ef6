#include "search/graph.hpp"

#include <numeric>

namespace penstock {

double Graph::mean_rate() const {
    double total = 0;
    for (const Arc &arc : arcs) total += arc.rate;
    return arcs.empty() ? 0.0 : total / static_cast<double>(arcs.size());
}

Graph make_graph(std::span<const double> load, std::span<const double> memory, const Edges &edges, bool directions) {
    Graph graph;
    graph.load.assign(load.begin(), load.end());
    graph.memory.assign(memory.begin(), memory.end());
    const std::size_t n = load.size(), m = edges.source.size();
    graph.start.assign(n + 1, 0);
    for (std::size_t e = 0; e < m; ++e) {
        if (edges.source[e] == edges.target[e]) continue;
        ++graph.start[edges.source[e] + 1];
        ++graph.start[edges.target[e] + 1];
    }
    std::partial_sum(graph.start.begin(), graph.start.end(), graph.start.begin());
    graph.arcs.resize(graph.start[n]);
    if (directions) {
        graph.outward.resize(graph.arcs.size());
        graph.inward.resize(graph.arcs.size());
    }
    std::vector<Id> next(graph.start.begin(), graph.start.end() - 1);
    for (std::size_t e = 0; e < m; ++e) {
        const Id from = edges.source[e], to = edges.target[e];
        if (from == to) continue;
        const Id here = next[from]++, there = next[to]++;
        graph.arcs[here] = {to, static_cast<float>(edges.rate[e])};
        graph.arcs[there] = {from, static_cast<float>(edges.rate[e])};
        if (directions) {
            graph.outward[here] = graph.inward[there] = edges.rate[e];
            graph.inward[here] = graph.outward[there] = 0;
        }
    }
    return graph;
}

Graph induced(const Graph &graph, std::span<const Id> members, std::vector<Id> &number) {
    const bool directions = !graph.outward.empty();
    Graph part;
    part.load.reserve(members.size());
    part.start.reserve(members.size() + 1);
    part.start.push_back(0);
    std::size_t arcs_max = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
        number[members[i]] = static_cast<Id>(i);
        arcs_max += graph.row(members[i]).size();
    }
    part.arcs.reserve(arcs_max);  // growing by doubling would touch twice the memory
    for (const Id vertex : members) {
        part.load.push_back(graph.load[vertex]);
        if (!graph.memory.empty()) part.memory.push_back(graph.memory[vertex]);
        for (Id at = graph.start[vertex]; at < graph.start[vertex + 1]; ++at) {
            const Id to = number[graph.arcs[at].to];
            if (to < 0) continue;
            part.arcs.push_back({to, graph.arcs[at].rate});
            if (directions) {
                part.outward.push_back(graph.outward[at]);
                part.inward.push_back(graph.inward[at]);
            }
        }
        part.start.push_back(static_cast<Id>(part.arcs.size()));
    }
    for (const Id vertex : members) number[vertex] = -1;
    return part;
}

namespace {

// Vertices listed cluster by cluster: a counting sort.
void list_members(std::span<const Id> cluster, Id count, std::vector<Id> &first, std::vector<Id> &member) {
    first.assign(count + 1, 0);
    for (const Id c : cluster) ++first[c + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<Id> next(first.begin(), first.end() - 1);
    member.resize(cluster.size());
    for (std::size_t v = 0; v < cluster.size(); ++v) member[next[cluster[v]]++] = static_cast<Id>(v);
}

}  // namespace

Graph contract(const Graph &graph, std::span<const Id> cluster, Id count) {
    const bool directions = !graph.outward.empty();
    std::vector<Id> first, member;
    list_members(cluster, count, first, member);
    Graph coarse;
    coarse.load.assign(count, 0.0);
    if (!graph.memory.empty()) coarse.memory.assign(count, 0.0);
    coarse.start.assign(1, 0);
    coarse.arcs.reserve(graph.arcs.size() / 2);
    std::vector<Id> place(count, -1);  // where the arc to a cluster is in the row being written
    for (Id c = 0; c < count; ++c) {
        const auto row_begin = static_cast<Id>(coarse.arcs.size());
        for (Id at = first[c]; at < first[c + 1]; ++at) {
            const Id vertex = member[at];
            coarse.load[c] += graph.load[vertex];
            if (!graph.memory.empty()) coarse.memory[c] += graph.memory[vertex];
            for (Id arc = graph.start[vertex]; arc < graph.start[vertex + 1]; ++arc) {
                const Id to = cluster[graph.arcs[arc].to];
                if (to == c) continue;
                if (place[to] < row_begin) {
                    place[to] = static_cast<Id>(coarse.arcs.size());
                    coarse.arcs.push_back({to, 0.0f});
                    if (directions) {
                        coarse.outward.push_back(0.0);
                        coarse.inward.push_back(0.0);
                    }
                }
                coarse.arcs[place[to]].rate += graph.arcs[arc].rate;
                if (directions) {
                    coarse.outward[place[to]] += graph.outward[arc];
                    coarse.inward[place[to]] += graph.inward[arc];
                }
            }
        }
        coarse.start.push_back(static_cast<Id>(coarse.arcs.size()));
    }
    return coarse;
}

}  // namespace penstock
