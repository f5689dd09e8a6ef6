#include "search/cut/concurrent_flow.hpp"

#include <algorithm>
#include <cmath>

#include "search/cut/balls.hpp"

namespace penstock {

ShortestPaths::ShortestPaths(const Rows &rows)
    : distance(rows.start.size() - 1), parent(distance.size()), via(distance.size()), rows_(rows) {
    order.reserve(distance.size());
}

void ShortestPaths::from_all(std::span<const Vertex> sources, const std::vector<double> &length) {
    std::fill(distance.begin(), distance.end(), std::numeric_limits<double>::infinity());
    order.clear();
    heap_.clear();
    for (const Vertex source : sources) {
        distance[source] = 0;
        parent[source] = via[source] = -1;
        heap_.push_back({0.0, source});
    }
    std::make_heap(heap_.begin(), heap_.end());
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end());
        const Entry at = heap_.back();
        heap_.pop_back();
        if (at.distance > distance[at.vertex]) continue;  // an older, longer way
        order.push_back(at.vertex);
        for (Vertex i = rows_.start[at.vertex]; i < rows_.start[at.vertex + 1]; ++i) {
            const Vertex next = rows_.neighbour[i];
            const double reached = at.distance + length[rows_.edge[i]];
            if (reached < distance[next]) {
                distance[next] = reached;
                parent[next] = at.vertex;
                via[next] = rows_.edge[i];
                heap_.push_back({reached, next});
                std::push_heap(heap_.begin(), heap_.end());
            }
        }
    }
}

void ShortestPaths::from_near(Vertex source, const std::vector<double> &length, std::vector<Vertex> &hint) {
    if (!hint.empty()) {
        std::fill(distance.begin(), distance.end(), std::numeric_limits<double>::infinity());
        distance[source] = 0;
        parent[source] = via[source] = -1;
        if (settle(length, hint)) {
            order_by_parents(hint);
            hint = order;
            return;
        }
    }
    from(source, length);
    hint = order;
}

// One pass over all edges in the hint's order, then over those of vertices that got nearer after their turn, and so on;
// false when that takes too many turns.
bool ShortestPaths::settle(const std::vector<double> &length, const std::vector<Vertex> &hint) {
    placed_.assign(distance.size(), 0);
    path_.clear();
    const auto turn = [&](Vertex at) {
        placed_[at] = 1;
        const double here = distance[at];
        for (Vertex i = rows_.start[at]; i < rows_.start[at + 1]; ++i) {
            const Vertex next = rows_.neighbour[i];
            const double reached = here + length[rows_.edge[i]];
            if (!(reached < distance[next])) continue;
            distance[next] = reached;
            parent[next] = at;
            via[next] = rows_.edge[i];
            if (placed_[next]) {
                placed_[next] = 0;
                path_.push_back(next);
            }
        }
    };
    for (const Vertex at : hint) turn(at);
    for (std::size_t i = 0; i < path_.size(); ++i) {
        if (i > 4 * distance.size()) return false;
        turn(path_[i]);
    }
    return true;
}

// Sorting by distance does not suffice: a short edge may vanish in the rounding of a long distance, and among equal
// distances a child may come before its parent.
void ShortestPaths::order_by_parents(const std::vector<Vertex> &hint) {
    order.clear();
    placed_.assign(distance.size(), 0);
    for (const Vertex vertex : hint) {
        path_.clear();
        for (Vertex v = vertex; v >= 0 && !placed_[v]; v = parent[v]) {
            placed_[v] = 1;
            path_.push_back(v);
        }
        order.insert(order.end(), path_.rbegin(), path_.rend());
    }
}

Demand::Demand(const CutGraph &graph) : graph_(graph) {}

bool Demand::any(Vertex source) const {
    return graph_.weight[source] > 0 || graph_.demands.start[source] < graph_.demands.start[source + 1];
}

// A demand between a pair counts total times its amount: equation (2) then bounds flow and cut by the same factor, since
// w(S) w(V - S) is at least total / 2 times the lighter side.
void Demand::of(Vertex source, std::vector<double> &to) const {
    const double own = graph_.weight[source] / 2;
    for (Vertex v = 0; v < graph_.size(); ++v) to[v] = own * graph_.weight[v];
    const Rows &pairs = graph_.demands;
    const double unit = (graph_.total > 0 ? graph_.total : 1.0) / 2;
    for (Vertex i = pairs.start[source]; i < pairs.start[source + 1]; ++i) {
        to[pairs.neighbour[i]] += unit * pairs.weight[pairs.edge[i]];
    }
    to[source] = 0;
}

namespace {

// How much longer an edge becomes when it is filled once falls with the square root of the phases, as the theory of
// multiplicative weights has it: long steps find the right edges, short ones balance them. Tried at 200 operators and
// epsilon 0.1: a constant step of epsilon takes 370 to 600 phases, a constant 1.0 may never end, this 80 to 160.
constexpr double step_falls = 0.7;
constexpr Vertex hints_max = 6000;  // vertices: an order for each of them takes 144 MB at most
constexpr int steps_max = 200;  // trees for one source in a phase; beyond, the last one takes all that is left

// The multiplicative-weights run: lengths, flows since the last restart of the average, and both bounds.
class Run {
  public:
    Run(const CutGraph &graph, const FlowOptions &options)
        : graph_(graph), options_(options), demand_(graph), paths_(graph.streams), balls_(graph),
          length_(graph.edge_count()), inverse_(graph.edge_count()), flow_(graph.edge_count(), 0.0), average_(graph.edge_count(), 0.0), wanted_(graph.weight.size()) {
        for (std::size_t e = 0; e < length_.size(); ++e) length_[e] = inverse_[e] = 1.0 / graph.streams.weight[e];
        result_.upper = std::numeric_limits<double>::infinity();
        result_.length = length_;
        if (graph.size() <= hints_max) hints_.resize(graph.weight.size());
    }

    Flow run(const Cap &cap) {
        measure();
        int since = 0, restart = 2;
        while (result_.phases < options_.phases_max && !cap.passed() && !within()) {
            const bool sweep = options_.sweep_every > 0 && result_.phases % options_.sweep_every == 0;
            if (!phase(sweep, cap)) break;
            ++result_.phases;
            ++since;
            result_.throughput = std::max(result_.throughput, since * scale_ / congestion());
            if (since % 8 == 0 || since == 4) judge_average();
            // Early phases route badly. Any complete phases make a flow, so the average starts anew at powers of two.
            if (result_.phases == restart) {
                std::fill(flow_.begin(), flow_.end(), 0.0);
                std::fill(average_.begin(), average_.end(), 0.0);
                since = 0;
                restart *= 2;
                if (result_.phases >= 16) step_ *= step_falls;
            }
        }
        return std::move(result_);
    }

  private:
    void walk(Vertex source, const std::vector<double> &length) {
        if (hints_.empty()) {
            paths_.from(source, length);
        } else {
            paths_.from_near(source, length, hints_[source]);
        }
    }

    bool within() const { return result_.throughput * (1 + options_.epsilon) >= result_.upper; }

    double congestion() const {
        double most = 0;
        for (std::size_t e = 0; e < flow_.size(); ++e) most = std::max(most, flow_[e] / graph_.streams.weight[e]);
        return std::max(most, 1e-300);
    }

    // One routing along shortest paths of 1 / capacity: how much demand a phase may send without filling edges too far.
    void measure() {
        scale_ = 1.0;
        for (Vertex source = 0; source < graph_.size(); ++source) {
            if (!demand_.any(source)) continue;
            paths_.from(source, length_);
            load_tree(source);
            for (const Vertex v : paths_.order) {
                if (paths_.via[v] >= 0) flow_[paths_.via[v]] += wanted_[v];
            }
        }
        const double fullest = congestion();
        result_.throughput = 1 / fullest;
        scale_ = 1 / fullest;
        std::fill(flow_.begin(), flow_.end(), 0.0);
    }

    // After this, wanted_[v] is what flows into v along its tree edge: its own demand and that of all beyond it.
    double load_tree(Vertex source) {
        demand_.of(source, wanted_);
        double reach = 0;  // sum of demand times distance
        for (const Vertex v : paths_.order) reach += wanted_[v] * paths_.distance[v];
        for (double &wanted : wanted_) wanted *= scale_;
        for (auto v = paths_.order.rbegin(); v != paths_.order.rend(); ++v) {
            if (paths_.parent[*v] >= 0) wanted_[paths_.parent[*v]] += wanted_[*v];
        }
        return reach;
    }

    // Distances are concave in lengths, so the average of lengths has a smaller upper bound than they have on average.
    void judge_average() {
        double reach = 0, volume = 0;
        for (Vertex source = 0; source < graph_.size(); ++source) {
            if (!demand_.any(source)) continue;
            walk(source, average_);
            demand_.of(source, wanted_);
            for (const Vertex v : paths_.order) reach += wanted_[v] * paths_.distance[v];
        }
        for (std::size_t e = 0; e < average_.size(); ++e) volume += average_[e] * graph_.streams.weight[e];
        if (volume < result_.upper * reach) {
            result_.upper = volume / reach;
            result_.length = average_;
        }
    }

    bool phase(bool sweep, const Cap &cap) {
        double reach = 0;
        for (Vertex source = 0; source < graph_.size(); ++source) {
            if (!demand_.any(source)) continue;
            if ((source & 63) == 63 && cap.passed()) return false;
            reach += route(source, sweep);
        }
        double volume = 0;
        for (std::size_t e = 0; e < length_.size(); ++e) volume += length_[e] * graph_.streams.weight[e];
        // Lengths only grew since the distances were taken, so the true quotient is smaller still.
        if (volume < result_.upper * reach) {
            result_.upper = volume / reach;
            result_.length = length_;
        }
        for (std::size_t e = 0; e < length_.size(); ++e) average_[e] += length_[e] / volume;
        if (volume > 1e100) {
            for (double &length : length_) length /= volume;
        }
        return true;
    }

    // Sends all of one source's demand along one tree after another, so that no step fills an edge more than once.
    double route(Vertex source, bool sweep) {
        double left = 1.0, reach = 0;
        for (int step = 0; left > 0; ++step) {
            if (step == 0 && sweep) {
                paths_.from(source, length_);
                balls_.offer(paths_.order, result_.best);
            } else {
                walk(source, length_);
            }
            const double reached = load_tree(source);
            if (step == 0) reach = reached;
            double part = left;
            for (const Vertex v : paths_.order) {
                const Vertex e = paths_.via[v];
                if (e >= 0 && step < steps_max && wanted_[v] * part > graph_.streams.weight[e]) {
                    part = graph_.streams.weight[e] / wanted_[v];
                }
            }
            for (const Vertex v : paths_.order) {
                const Vertex e = paths_.via[v];
                if (e < 0) continue;
                const double sent = part * wanted_[v];
                flow_[e] += sent;
                length_[e] *= 1 + step_ * sent * inverse_[e];
            }
            left = part < left * (1 - 1e-12) ? left - part : 0.0;
        }
        return reach;
    }

    const CutGraph &graph_;
    const FlowOptions &options_;
    Demand demand_;
    ShortestPaths paths_;
    Balls balls_;
    std::vector<double> length_, inverse_, flow_, average_, wanted_;
    std::vector<std::vector<Vertex>> hints_;
    double scale_ = 1.0, step_ = 1.0;
    Flow result_;
};

}  // namespace

TreeFlows tree_flows(const CutGraph &graph, const std::vector<double> &length) {
    TreeFlows flows;
    flows.start.push_back(0);
    ShortestPaths paths(graph.streams);
    const Demand demand(graph);
    std::vector<double> wanted(graph.weight.size());
    for (Vertex source = 0; source < graph.size(); ++source) {
        paths.from(source, length);
        demand.of(source, wanted);
        double reach = 0;
        for (const Vertex v : paths.order) reach += wanted[v] * paths.distance[v];
        for (auto v = paths.order.rbegin(); v != paths.order.rend(); ++v) {
            if (paths.parent[*v] < 0 || wanted[*v] <= 0) continue;
            wanted[paths.parent[*v]] += wanted[*v];
            flows.edge.push_back(paths.via[*v]);
            flows.flow.push_back(wanted[*v]);
        }
        flows.start.push_back(static_cast<std::int64_t>(flows.edge.size()));
        flows.reach.push_back(reach);
    }
    return flows;
}

Flow concurrent_flow(const CutGraph &graph, const FlowOptions &options, const Cap &cap) {
    return Run(graph, options).run(cap);
}

}  // namespace penstock
