#include "search/cut/cut_graph.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {

Rows::Rows(Vertex vertices, const Edges &edges) : weight(edges.weight.begin(), edges.weight.end()) {
    start.assign(static_cast<std::size_t>(vertices) + 1, 0);
    for (std::size_t e = 0; e < weight.size(); ++e) {
        ++start[edges.from[e] + 1];
        ++start[edges.to[e] + 1];
    }
    std::partial_sum(start.begin(), start.end(), start.begin());
    neighbour.resize(2 * weight.size());
    edge.resize(2 * weight.size());
    std::vector<Vertex> next(start.begin(), start.end() - 1);
    for (std::size_t e = 0; e < weight.size(); ++e) {
        const auto put = [&](Vertex at, Vertex other) {
            neighbour[next[at]] = other;
            edge[next[at]++] = static_cast<Vertex>(e);
        };
        put(edges.from[e], edges.to[e]);
        put(edges.to[e], edges.from[e]);
    }
}

CutGraph::CutGraph(std::span<const double> weights, const Edges &stream_edges, const Edges &demand_edges)
    : weight(weights.begin(), weights.end()),
      total(std::accumulate(weights.begin(), weights.end(), 0.0)),
      streams(static_cast<Vertex>(weights.size()), stream_edges),
      demands(static_cast<Vertex>(weights.size()), demand_edges) {}

Sides::Sides(const CutGraph &graph, std::span<const std::uint8_t> inside) : Sides(graph) {
    for (Vertex v = 0; v < graph.size(); ++v) {
        if (inside[v]) flip(v);
    }
}

double Sides::change(const Rows &rows, Vertex v) const {
    double change = 0;
    for (Vertex i = rows.start[v]; i < rows.start[v + 1]; ++i) {
        const double weight = rows.weight[rows.edge[i]];
        change += inside_[rows.neighbour[i]] == inside_[v] ? weight : -weight;
    }
    return change;
}

double Sides::ratio_of(double cut, double weight, double parted) const {
    const double gained = std::max(0.0, std::min(weight, graph_->total - weight)) + std::max(0.0, parted);
    // Sums that should be 0 are rounding of the total at most; a side that weighs nothing balances nothing.
    if (gained <= 1e-12 * graph_->total || gained <= 0) return std::numeric_limits<double>::infinity();
    return std::max(0.0, cut) / gained;
}

double Sides::exact_ratio() const {
    const auto crossing = [&](const Rows &rows) {
        double sum = 0;
        for (Vertex v = 0; v < graph_->size(); ++v) {
            for (Vertex i = rows.start[v]; has(v) && i < rows.start[v + 1]; ++i) {
                if (!has(rows.neighbour[i])) sum += rows.weight[rows.edge[i]];
            }
        }
        return sum;
    };
    double weight = 0;
    for (Vertex v = 0; v < graph_->size(); ++v) weight += has(v) ? graph_->weight[v] : 0.0;
    return ratio_of(crossing(graph_->streams), weight, crossing(graph_->demands));
}

double Sides::ratio_after(Vertex v) const {
    const double weight = weight_ + (has(v) ? -graph_->weight[v] : graph_->weight[v]);
    const double parted = graph_->demands.weight.empty() ? 0.0 : parted_ + change(graph_->demands, v);
    return ratio_of(cut_after(v), weight, parted);
}

void Sides::flip(Vertex v) {
    cut_ += change(graph_->streams, v);
    if (!graph_->demands.weight.empty()) parted_ += change(graph_->demands, v);
    weight_ += has(v) ? -graph_->weight[v] : graph_->weight[v];
    count_ += has(v) ? -1 : 1;
    inside_[v] ^= 1;
}

void Sides::clear() {
    std::fill(inside_.begin(), inside_.end(), 0);
    cut_ = weight_ = parted_ = 0;
    count_ = 0;
}

void BestCut::offer(const Sides &sides) {
    if (!(sides.ratio() < ratio)) return;
    if (const double exact = sides.exact_ratio(); exact < ratio) {
        ratio = exact;
        side = sides.inside();
    }
}

}  // namespace penstock
