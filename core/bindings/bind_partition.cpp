// Python's view of the placement core: a Network holds the graph and the limits once, and its methods search on it.
// Everything that Python hands over is checked here, so that the other files may index without checks.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "search/place/anneal.hpp"
#include "search/place/evolve.hpp"
#include "search/place/grow.hpp"
#include "search/place/halves.hpp"
#include "search/place/multilevel.hpp"
#include "search/place/refine.hpp"
#include "search/place/repair.hpp"
#include "search/place/split_workers.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {

namespace {

using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const Id, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IdsOut = nb::ndarray<nb::numpy, Id, nb::ndim<1>>;

template <class Array> auto view(const Array &array) {
    return std::span(array.data(), static_cast<std::size_t>(array.shape(0)));
}

[[noreturn]] void refuse(const std::string &what) { throw nb::value_error(what.c_str()); }

void require_ids(std::span<const Id> ids, Id bound, const char *name) {
    for (const Id id : ids) {
        if (id < 0 || id >= bound) {
            refuse(std::string(name) + " holds " + std::to_string(id) + "; it must be from 0 to " +
                   std::to_string(bound - 1));
        }
    }
}

void require_size(std::size_t size, std::size_t wanted, const char *name) {
    if (size != wanted) refuse(std::string(name) + " has " + std::to_string(size) + " entries; it must have " + std::to_string(wanted));
}

void require_amounts(std::span<const double> values, const char *name, bool infinite_allowed) {
    for (const double value : values) {
        if (!(value >= 0) || (!infinite_allowed && std::isinf(value))) {
            refuse(std::string(name) + " holds " + std::to_string(value) + "; it must be finite and 0 or more");
        }
    }
}

IdsOut to_numpy(std::vector<Id> &&values) {
    auto *kept = new std::vector<Id>(std::move(values));
    nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<Id> *>(p); });
    return IdsOut(kept->data(), {kept->size()}, owner);
}

bool any_finite(std::span<const double> values) {
    return std::any_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

class Network {
  public:
    Network(const Doubles &load, const Doubles &memory, const Ids &source, const Ids &target, const Doubles &rate,
            const Doubles &load_max, const Doubles &memory_max, const Doubles &bandwidth_max) {
        constexpr std::size_t most = 1u << 30;  // arcs are counted in 32 bits
        require_size(memory.shape(0), load.shape(0), "memory");
        require_size(target.shape(0), source.shape(0), "target");
        require_size(rate.shape(0), source.shape(0), "rate");
        require_size(memory_max.shape(0), load_max.shape(0), "memory_max");
        require_size(bandwidth_max.shape(0), load_max.shape(0), "bandwidth_max");
        if (load.shape(0) == 0 || load_max.shape(0) == 0) refuse("a network needs at least one task and one node");
        if (load.shape(0) >= most || source.shape(0) >= most || load_max.shape(0) >= most) refuse("arrays are limited to 2^30 entries");
        const Id n = static_cast<Id>(load.shape(0));
        require_ids(view(source), n, "source");
        require_ids(view(target), n, "target");
        require_amounts(view(load), "load", false);
        require_amounts(view(memory), "memory", false);
        require_amounts(view(rate), "rate", false);
        require_amounts(view(load_max), "load_max", true);
        require_amounts(view(memory_max), "memory_max", true);
        require_amounts(view(bandwidth_max), "bandwidth_max", true);
        const auto copied = [](std::span<const double> values) { return std::vector<double>(values.begin(), values.end()); };
        limits_.load = copied(view(load_max));
        const bool by_memory = any_finite(view(memory_max)), by_bandwidth = any_finite(view(bandwidth_max));
        if (by_memory) limits_.memory = copied(view(memory_max));
        if (by_bandwidth) limits_.bandwidth = copied(view(bandwidth_max));
        graph_ = make_graph(view(load), by_memory ? view(memory) : std::span<const double>{},
                            {view(source), view(target), view(rate)}, by_bandwidth);
    }

    State state(const Ids &node) const {
        require_size(node.shape(0), graph_.size(), "node");
        require_ids(view(node), limits_.size(), "node");
        return State(graph_, limits_, view(node));
    }

    const Graph &graph() const { return graph_; }
    const Limits &limits() const { return limits_; }

  private:
    Graph graph_;
    Limits limits_;
};

template <class Work> IdsOut without_gil(Work work) {
    std::vector<Id> result;
    {
        nb::gil_scoped_release release;
        result = work();
    }
    return to_numpy(std::move(result));
}

Cooling cooling(const Network &network, double hot, double cold, Id sweeps) {
    if (!(hot >= cold && cold > 0) || sweeps < 0) refuse("temperatures must have hot >= cold > 0 and sweeps must be 0 or more");
    const double unit = std::max(network.graph().mean_rate(), 1e-300);
    return {hot * unit, cold * unit, sweeps};
}

// Random moves and swaps; the cost follows by the predicted changes. For tests of the state's book-keeping.
nb::tuple trial(State &state, std::uint64_t seed, int changes) {
    Random random(seed);
    double cost = state.cost();
    const auto tasks = static_cast<std::uint32_t>(state.graph().size());
    for (int i = 0; i < changes; ++i) {
        const auto a = static_cast<Id>(random.below(tasks)), b = static_cast<Id>(random.below(tasks));
        if (i % 2 == 0) {
            const auto there = static_cast<Id>(random.below(static_cast<std::uint32_t>(state.limits().size())));
            if (there == state.node_of(a)) continue;
            cost += state.change_of_move(a, there);
            state.move(a, there);
        } else if (state.node_of(a) != state.node_of(b)) {
            cost += state.change_of_swap(a, b);
            state.swap(a, b);
        }
    }
    nb::list load, sent, received;
    for (Id k = 0; k < state.limits().size(); ++k) {
        load.append(state.load(k));
        sent.append(state.sent(k));
        received.append(state.received(k));
    }
    return nb::make_tuple(to_numpy(std::vector<Id>(state.node())), cost, load, sent, received);
}

}  // namespace

}  // namespace penstock

void bind_partition(nb::module_ &module) {
    using namespace penstock;
    nb::class_<Effort>(module, "Effort", "How hard the multilevel search works; see core/search/place/multilevel.hpp.")
        .def("__init__",
             [](Effort *self, double visits, double hot, double warm, double cold, double coarse_share,
                double cluster_share, Id rounds) {
                 if (!(visits >= 0) || !(hot >= cold && warm >= cold && cold > 0) || rounds < 0) {
                     refuse("an effort needs visits >= 0, hot and warm >= cold > 0 and rounds >= 0");
                 }
                 new (self) Effort{visits, hot, warm, cold, coarse_share, cluster_share, rounds};
             },
             "visits"_a, "hot"_a, "warm"_a, "cold"_a, "coarse_share"_a, "cluster_share"_a, "rounds"_a);
    nb::class_<Network>(module, "Network", "Tasks, traffic and node limits, checked and in the core's own form.")
        .def(nb::init<const Doubles &, const Doubles &, const Ids &, const Ids &, const Doubles &, const Doubles &,
                      const Doubles &, const Doubles &>(),
             "load"_a, "memory"_a, "source"_a, "target"_a, "rate"_a, "load_max"_a, "memory_max"_a, "bandwidth_max"_a)
        .def("cost", [](const Network &self, const Ids &node) { return self.state(node).cost(); }, "node"_a)
        .def("overload", [](const Network &self, const Ids &node) { return self.state(node).overload(); }, "node"_a)
        .def("grow",
             [](const Network &self, const Ids &order, std::uint64_t seed) {
                 require_ids(view(order), self.limits().size(), "order");
                 return without_gil([&] { return grow(self.graph(), self.limits(), view(order), seed); });
             },
             "order"_a, "seed"_a)
        .def("pack",
             [](const Network &self, double share) {
                 return without_gil([&] { return pack(self.graph(), self.limits(), share); });
             },
             "share"_a)
        .def("repair",
             [](const Network &self, const Ids &node, std::uint64_t seed, std::int64_t tries, double seconds) {
                 State state = self.state(node);
                 return without_gil([&] {
                     repair(state, Random::split(seed, 0), tries, Cap(seconds));
                     return state.node();
                 });
             },
             "node"_a, "seed"_a, "tries"_a, "seconds"_a)
        .def("refine",
             [](const Network &self, const Ids &node, int passes_max, double seconds) {
                 State state = self.state(node);
                 return without_gil([&] {
                     refine(state, passes_max, Cap(seconds));
                     return state.node();
                 });
             },
             "node"_a, "passes_max"_a, "seconds"_a)
        .def("anneal",
             [](const Network &self, const Ids &node, double hot, double cold, Id sweeps, std::uint64_t seed,
                double seconds) {
                 State state = self.state(node);
                 const Cooling schedule = cooling(self, hot, cold, sweeps);
                 return without_gil([&] {
                     anneal(state, schedule, Random::split(seed, 0), Cap(seconds));
                     return state.node();
                 });
             },
             "node"_a, "hot"_a, "cold"_a, "sweeps"_a, "seed"_a, "seconds"_a)
        .def("anneal_in_halves",
             [](const Network &self, const Ids &node, double hot, double cold, Id sweeps, Id rounds, std::uint64_t seed,
                double seconds) {
                 State state = self.state(node);
                 const Cooling schedule = cooling(self, hot, cold, sweeps);
                 return without_gil([&] {
                     anneal_in_halves(state, schedule, rounds, seed, Cap(seconds));
                     return state.node();
                 });
             },
             "node"_a, "hot"_a, "cold"_a, "sweeps"_a, "rounds"_a, "seed"_a, "seconds"_a)
        .def("multilevel",
             [](const Network &self, const Ids &order, const Effort &effort, std::uint64_t seed, double seconds) {
                 require_ids(view(order), self.limits().size(), "order");
                 if (order.shape(0) == 0) refuse("order is empty; name at least one node");
                 return without_gil([&] {
                     return multilevel(self.graph(), self.limits(), view(order), effort, seed, Cap(seconds));
                 });
             },
             "order"_a, "effort"_a, "seed"_a, "seconds"_a)
        .def("evolve",
             [](const Network &self, const std::vector<Ids> &starts, Id population, Id children, Id first_sweeps,
                Id coarse_sweeps, Id fine_sweeps, std::uint64_t seed, double seconds) {
                 if (starts.empty() || population < 2 || children < 0) {
                     refuse("a population needs at least one start and two individuals");
                 }
                 std::vector<std::vector<Id>> nodes;
                 for (const Ids &start : starts) nodes.push_back(self.state(start).node());
                 const Breeding breeding{population, children, first_sweeps, coarse_sweeps, fine_sweeps};
                 return without_gil(
                     [&] { return evolve(self.graph(), self.limits(), nodes, breeding, seed, Cap(seconds)); });
             },
             "starts"_a, "population"_a, "children"_a, "first_sweeps"_a, "coarse_sweeps"_a, "fine_sweeps"_a, "seed"_a,
             "seconds"_a)
        .def("trial",
             [](const Network &self, const Ids &node, std::uint64_t seed, int changes) {
                 State state = self.state(node);
                 return trial(state, seed, changes);
             },
             "node"_a, "seed"_a, "changes"_a)
        .def("split_workers",
             [](const Network &self, const Ids &node, const Ids &slots, Id most, double effort, std::uint64_t seed) {
                 const State state = self.state(node);
                 require_size(slots.shape(0), self.limits().size(), "slots");
                 if (most < 1) refuse("a worker must take at least one task");
                 return without_gil(
                     [&] { return split_workers(self.graph(), state.node(), view(slots), most, effort, seed); });
             },
             "node"_a, "slots"_a, "most"_a, "effort"_a, "seed"_a);
}
