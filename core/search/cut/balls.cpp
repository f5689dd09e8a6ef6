#include "search/cut/balls.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "search/cut/concurrent_flow.hpp"

namespace penstock {

void Balls::offer(std::span<const Vertex> order, BestCut &best) {
    sides_.clear();
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
        sides_.flip(order[i]);
        best.offer(sides_);
    }
}

namespace {

struct Regions {
    std::vector<std::vector<Vertex>> members;
    std::vector<double> weight;
};

// Grows balls of at most `radius` one after the other and cuts each off where its boundary is smallest against its volume.
class Growth {
  public:
    Growth(const CutGraph &graph, const std::vector<double> &length, double radius)
        : graph_(graph), length_(length), radius_(radius), paths_(graph.streams), region_(graph.weight.size(), -1) {
        for (std::size_t e = 0; e < length.size(); ++e) volume_ += length[e] * graph.streams.weight[e];
    }

    Regions all() {
        Regions regions;
        for (Vertex v = 0; v < graph_.size(); ++v) {
            if (region_[v] < 0) grow(v, regions);
        }
        return regions;
    }

  private:
    // Edges to vertices that already have a region do not count any more: those are cut.
    void grow(Vertex centre, Regions &regions) {
        paths_.from(centre, blocked());
        std::size_t ends = 1;
        double boundary = 0, inner = volume_ / graph_.size(), least = std::numeric_limits<double>::infinity();
        const auto mark = static_cast<Vertex>(regions.members.size());
        std::size_t reached = 0;
        while (reached < paths_.order.size() && paths_.distance[paths_.order[reached]] <= radius_) {
            const Vertex v = paths_.order[reached++];
            enter(v, mark, boundary, inner);
            if (boundary < least * inner) {
                least = boundary / inner;
                ends = reached;
            }
        }
        for (std::size_t i = ends; i < reached; ++i) region_[paths_.order[i]] = -1;
        regions.members.emplace_back(paths_.order.begin(), paths_.order.begin() + static_cast<std::ptrdiff_t>(ends));
        double weight = 0;
        for (const Vertex v : regions.members.back()) weight += graph_.weight[v];
        regions.weight.push_back(weight);
    }

    void enter(Vertex v, Vertex mark, double &boundary, double &inner) {
        const Rows &rows = graph_.streams;
        for (Vertex i = rows.start[v]; i < rows.start[v + 1]; ++i) {
            const Vertex other = region_[rows.neighbour[i]];
            const double weight = rows.weight[rows.edge[i]];
            if (other == mark) {
                boundary -= weight;
                inner += weight * length_[rows.edge[i]];
            } else if (other < 0) {
                boundary += weight;
            }
        }
        region_[v] = mark;
    }

    const std::vector<double> &blocked() {
        blocked_ = length_;
        const Rows &rows = graph_.streams;
        for (Vertex v = 0; v < graph_.size(); ++v) {
            if (region_[v] < 0) continue;
            for (Vertex i = rows.start[v]; i < rows.start[v + 1]; ++i) {
                blocked_[rows.edge[i]] = std::numeric_limits<double>::infinity();
            }
        }
        return blocked_;
    }

    const CutGraph &graph_;
    const std::vector<double> &length_;
    double radius_, volume_ = 0;
    ShortestPaths paths_;
    std::vector<Vertex> region_;
    std::vector<double> blocked_;
};

// Heaviest region first, each to the lighter side: at least a third on either side when no region holds two thirds.
void offer_grouped(const CutGraph &graph, const Regions &regions, BestCut &best) {
    std::vector<std::size_t> order(regions.members.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return regions.weight[a] > regions.weight[b]; });
    Sides sides(graph);
    double inside = 0, outside = 0;
    for (const std::size_t r : order) {
        if (inside < outside) {
            for (const Vertex v : regions.members[r]) sides.flip(v);
            inside += regions.weight[r];
        } else {
            outside += regions.weight[r];
        }
    }
    if (sides.count() > 0 && sides.count() < graph.size()) best.offer(sides);
}

}  // namespace

BestCut round_lengths(const CutGraph &graph, const std::vector<double> &length) {
    BestCut best;
    Balls balls(graph);
    ShortestPaths paths(graph.streams);
    double reach = 0;
    std::vector<double> wanted(graph.weight.size());
    const Demand demand(graph);
    for (Vertex source = 0; source < graph.size(); ++source) {
        paths.from(source, length);
        balls.offer(paths.order, best);
        demand.of(source, wanted);
        for (const Vertex v : paths.order) reach += wanted[v] * paths.distance[v];
    }
    // Leighton and Rao's radius: a region of two thirds of the weight within it leaves enough distance outside of it.
    const double radius = reach / (2 * std::max(graph.total * graph.total, 1e-300));
    const Regions regions = Growth(graph, length, radius).all();
    offer_grouped(graph, regions, best);
    const auto heaviest = std::max_element(regions.weight.begin(), regions.weight.end()) - regions.weight.begin();
    if (3 * regions.weight[static_cast<std::size_t>(heaviest)] >= 2 * graph.total) {
        const auto &core = regions.members[static_cast<std::size_t>(heaviest)];
        paths.from_all(core, length);
        balls.offer(paths.order, best);
    }
    return best;
}

}  // namespace penstock
