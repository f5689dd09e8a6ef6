#include "search/place/split_workers.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>

#include "search/place/anneal.hpp"
#include "search/place/grow.hpp"

namespace penstock {

namespace {

constexpr double visits_per_task = 100;    // of annealing, at effort 1: beyond it the cut hardly falls
constexpr Id large_node = 4096;            // above it a node gets fewer sweeps, so that one node cannot take seconds

Id divided_up(Id a, Id b) { return (a + b - 1) / b; }

// Counts tasks instead of load: each weighs 1 and a worker takes `most`.
void split_one(const Graph &graph, std::span<const Id> tasks, Id slots, Id most, double effort, Random random,
               std::vector<Id> &number, std::vector<Id> &worker) {
    const auto t = static_cast<Id>(tasks.size());
    const Id workers = std::max<Id>(1, std::min(divided_up(t, most), slots));
    if (workers == 1) return;  // `worker` is 0 already
    Graph own = induced(graph, tasks, number);
    own.memory.clear();
    own.outward.clear();
    own.inward.clear();
    own.load.assign(own.load.size(), 1.0);
    const Limits limits{std::vector<double>(workers, static_cast<double>(std::max(most, divided_up(t, workers)))), {}, {}};
    std::vector<Id> order(workers);
    std::iota(order.begin(), order.end(), 0);
    State state(own, limits, grow(own, limits, order));
    const double unit = own.mean_rate();
    if (unit > 0) {
        const auto sweeps = static_cast<Id>(std::clamp(effort * visits_per_task * std::min(1.0, 1.0 * large_node / t), 4.0, 1e5));
        anneal(state, {0.6 * unit, 0.03 * unit, sweeps}, random, Cap(1e6));
    }
    std::vector<Id> renamed(workers, -1);
    Id next = 0;
    for (Id i = 0; i < t; ++i) {
        Id &name = renamed[state.node_of(i)];
        if (name < 0) name = next++;
        worker[tasks[i]] = name;
    }
}

}  // namespace

std::vector<Id> split_workers(const Graph &graph, std::span<const Id> node, std::span<const Id> slots, Id most,
                              double effort, std::uint64_t seed) {
    const auto count = static_cast<Id>(slots.size());
    std::vector<Id> first(count + 1, 0), listed(graph.size()), worker(graph.size(), 0);
    for (const Id k : node) ++first[k + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<Id> next(first.begin(), first.end() - 1);
    for (Id v = 0; v < graph.size(); ++v) listed[next[node[v]]++] = v;
    // Nodes share nothing, so two threads take alternate nodes; each writes only its own tasks' workers.
    const auto work = [&](Id begin, Id step) {
        std::vector<Id> number(graph.size(), -1);
        for (Id k = begin; k < count; k += step) {
            const std::span<const Id> tasks(listed.data() + first[k], listed.data() + first[k + 1]);
            split_one(graph, tasks, slots[k], most, effort, Random::split(seed, static_cast<std::uint64_t>(k)), number,
                      worker);
        }
    };
    if (graph.size() < 2000) {
        work(0, 1);
    } else {
        std::thread other(work, 1, 2);
        work(0, 2);
        other.join();
    }
    return worker;
}

}  // namespace penstock
