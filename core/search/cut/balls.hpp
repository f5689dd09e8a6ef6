// Leighton and Rao's rounding of lengths to a cut: balls around vertices, and distances from a heavy region.
//
// Their proof takes one ball of small boundary around a vertex, or the vertices beyond some distance from a region that
// holds most of the weight. This code looks at every ball of every vertex. These include the balls of the proof, and
// cost no more than the shortest paths, which are needed anyway.
#pragma once

#include "search/cut/cut_graph.hpp"

namespace penstock {

// Looks at all prefixes of an order of vertices.
class Balls {
  public:
    explicit Balls(const CutGraph &graph) : graph_(graph), sides_(graph) {}
    void offer(std::span<const Vertex> order, BestCut &best);

  private:
    const CutGraph &graph_;
    Sides sides_;
};

// The best cut by balls and by regions for these lengths.
BestCut round_lengths(const CutGraph &graph, const std::vector<double> &length);

}  // namespace penstock
