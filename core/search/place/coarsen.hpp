// Coarsening: vertices join the neighbouring cluster that they talk to most for its size, up to a size limit.
//
// Clusters rather than pairs, because nodes hold some 5 to 40 tasks: two or three levels reach clusters of a quarter of
// a node, and pairs would need twice as many. Dividing by the cluster's load keeps sizes even; without it the first
// clusters swallow their surroundings and the coarse graph packs badly.
#pragma once

#include <span>
#include <vector>

#include "search/graph.hpp"
#include "search/random.hpp"

namespace penstock {

struct Clustering {
    std::vector<Id> cluster;
    Id count = 0;
};

struct ClusterLimit {
    double load = 0;
    double memory = 0;
};

// `within` (empty, or a node for each vertex) forbids clusters across nodes, for coarsening a placed graph.
Clustering cluster(const Graph &graph, const ClusterLimit &limit, std::span<const Id> within, Random random);

}  // namespace penstock
