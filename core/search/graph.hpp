// The graph that cuts are counted on: tasks (or clusters of them) with loads, and traffic between them without direction.
//
// Compressed rows of (neighbour, rate) pairs, because a search reads whole rows at random places and both values of an
// arc at once: 8 bytes an arc keep 100,000 tasks inside a last-level cache. Rates are floats here; every cost that
// leaves the core is summed again in doubles from the caller's edges. Where some node limits its bandwidth, the flow in
// each direction is kept too, in doubles, because it is compared with a hard limit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

using Id = std::int32_t;

struct Arc {
    Id to;
    float rate;
};

struct Graph {
    std::vector<Id> start;  // arcs of vertex v are start[v] .. start[v + 1] - 1
    std::vector<Arc> arcs;
    std::vector<double> load;
    std::vector<double> memory;    // empty where no node limits it
    std::vector<double> outward;   // per arc, flow from the row's vertex; empty where no node limits bandwidth
    std::vector<double> inward;    // per arc, flow to the row's vertex

    Id size() const { return static_cast<Id>(load.size()); }
    std::span<const Arc> row(Id vertex) const {
        return {arcs.data() + start[vertex], arcs.data() + start[vertex + 1]};
    }
    double mean_rate() const;
};

// What each node can take. Memory and bandwidth are empty where no node limits them.
struct Limits {
    std::vector<double> load;
    std::vector<double> memory;
    std::vector<double> bandwidth;  // on what is sent and on what is received, separately

    Id size() const { return static_cast<Id>(load.size()); }
};

struct Edges {
    std::span<const Id> source;
    std::span<const Id> target;
    std::span<const double> rate;
};

// Rows from directed edges in two counting passes; self-loops never cross and are left out.
Graph make_graph(std::span<const double> load, std::span<const double> memory, const Edges &edges, bool directions);

// The graph on `members` alone, renumbered in that order; arcs that leave it are dropped. `number` is scratch of
// graph.size() entries, -1 everywhere before and after.
Graph induced(const Graph &graph, std::span<const Id> members, std::vector<Id> &number);

// The graph of clusters 0 .. count - 1: loads added up, parallel arcs merged, arcs inside a cluster dropped.
Graph contract(const Graph &graph, std::span<const Id> cluster, Id count);

}  // namespace penstock
