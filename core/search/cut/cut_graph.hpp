// The graph of a minimum-ratio cut (COLA, paper 004, section 2.2) and the bookkeeping that every search on it shares.
//
// Vertices weigh what their operators cost, edges what their streams cost when cut. Further demand between single pairs
// (section 3.3, phase 1) counts as weight that a cut gains by parting the pair. The ratio is equation (2):
// cut weight / (weight of the lighter side + demand parted).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace penstock {

using Vertex = std::int32_t;

struct Edges {
    std::span<const Vertex> from, to;
    std::span<const double> weight;
};

// Compressed rows of an undirected weighted graph; `edge` numbers the edge so that both directions share its length.
struct Rows {
    std::vector<Vertex> start, neighbour, edge;
    std::vector<double> weight;  // by edge
    Rows(Vertex vertices, const Edges &edges);
};

struct CutGraph {
    std::vector<double> weight;
    double total;
    Rows streams, demands;
    CutGraph(std::span<const double> weights, const Edges &stream_edges, const Edges &demand_edges);
    Vertex size() const { return static_cast<Vertex>(weight.size()); }
    Vertex edge_count() const { return static_cast<Vertex>(streams.weight.size()); }
};

// A cut under construction: which vertices are inside, and what that costs and gains.
class Sides {
  public:
    explicit Sides(const CutGraph &graph) : graph_(&graph), inside_(graph.weight.size(), 0) {}
    Sides(const CutGraph &graph, std::span<const std::uint8_t> inside);
    void flip(Vertex v);
    double cut() const { return cut_; }
    double cut_after(Vertex v) const { return cut_ + change(graph_->streams, v); }
    double ratio() const { return ratio_of(cut_, weight_, parted_); }
    double exact_ratio() const;  // added up anew: many flips beside heavy edges lose light ones in rounding
    double ratio_after(Vertex v) const;
    bool has(Vertex v) const { return inside_[static_cast<std::size_t>(v)] != 0; }
    Vertex count() const { return count_; }
    const std::vector<std::uint8_t> &inside() const { return inside_; }
    void clear();

  private:
    double change(const Rows &rows, Vertex v) const;
    double ratio_of(double cut, double weight, double parted) const;
    const CutGraph *graph_;
    std::vector<std::uint8_t> inside_;
    double cut_ = 0, weight_ = 0, parted_ = 0;
    Vertex count_ = 0;
};

// The best cut seen, kept as a copy.
struct BestCut {
    std::vector<std::uint8_t> side;
    double ratio = std::numeric_limits<double>::infinity();
    void offer(const Sides &sides);
};

}  // namespace penstock
