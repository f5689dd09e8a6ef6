// Maximum concurrent flow between all pairs of vertices, demand w_u * w_v, by Garg and Koenemann's lengths.
//
// The relaxation behind Leighton and Rao's cut (COLA's reference [24]), solved as COLA does (its reference [25]): every
// edge has a length that grows exponentially with the flow on it, and flow goes along shortest paths. Demands of one
// source are routed together along its whole shortest-path tree (Fleischer's and Karakostas's grouping), so a phase takes
// one tree for each vertex instead of one path for each pair.
// Any complete phases make a flow that shares out all demand, so 1 / congestion over them is a true lower bound on every
// cut's cut / demand parted; lengths give an upper bound on the flow. The run ends when both are within epsilon, which
// happens far below the worst case that the paper's number of phases guards against.
#pragma once

#include "search/clock.hpp"
#include "search/cut/cut_graph.hpp"

namespace penstock {

// Shortest paths from one vertex; arrays are reused from run to run.
class ShortestPaths {
  public:
    explicit ShortestPaths(const Rows &rows);
    void from(Vertex source, const std::vector<double> &length) { from_all({&source, 1}, length); }
    void from_all(std::span<const Vertex> sources, const std::vector<double> &length);
    // The same from an order in which most vertices come after the one before them on their path, such as that of
    // lengths a little different: no heap, one pass over the edges and little more. `order` is then no longer nearest first, but
    // still has every vertex after its parent; it replaces `hint`.
    void from_near(Vertex source, const std::vector<double> &length, std::vector<Vertex> &hint);
    std::vector<Vertex> order;          // reached vertices, nearest first
    std::vector<double> distance;       // of every vertex; infinite where it is not reached
    std::vector<Vertex> parent, via;    // the tree: vertex before, and edge from there; -1 at sources

  private:
    struct Entry {
        double distance;
        Vertex vertex;
        // The vertex breaks ties, so that the tree does not depend on the heap's own order.
        bool operator<(const Entry &other) const {
            return distance != other.distance ? distance > other.distance : vertex > other.vertex;
        }
    };
    bool settle(const std::vector<double> &length, const std::vector<Vertex> &hint);
    void order_by_parents(const std::vector<Vertex> &hint);
    const Rows &rows_;
    std::vector<Entry> heap_;
    std::vector<Vertex> path_;
    std::vector<std::uint8_t> placed_;
};

struct FlowOptions {
    double epsilon;      // largest gap between flow and lengths at which the run may end
    int phases_max;
    int sweep_every;     // phases between two looks at the balls of the lengths of that time; 0 for never
};

struct Flow {
    std::vector<double> length;  // of the smallest upper bound seen
    double throughput = 0;       // part of all demand that fits at once: a lower bound on cut / demand parted
    double upper = 0;            // the same from the lengths
    int phases = 0;
    BestCut best;                // of all balls that were looked at
};

// What a vertex sends to another: half of the pair's demand, since the other sends as much.
class Demand {
  public:
    explicit Demand(const CutGraph &graph);
    bool any(Vertex source) const;
    void of(Vertex source, std::vector<double> &to) const;

  private:
    const CutGraph &graph_;
};

// Rows of the linear program over trees: what each vertex's demand puts on every edge of its shortest-path tree.
struct TreeFlows {
    std::vector<std::int64_t> start;
    std::vector<Vertex> edge;
    std::vector<double> flow;
    std::vector<double> reach;  // sum of demand times distance, of each vertex
};

TreeFlows tree_flows(const CutGraph &graph, const std::vector<double> &length);

Flow concurrent_flow(const CutGraph &graph, const FlowOptions &options, const Cap &cap);

}  // namespace penstock
