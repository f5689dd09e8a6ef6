// Python's view of the minimum-ratio cut: a CutNetwork holds a graph once, and its methods search on it.
// Everything that Python hands over is checked here, so that the other files may index without checks.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cmath>
#include <string>

#include "search/cut/anneal_cut.hpp"
#include "search/cut/balls.hpp"
#include "search/cut/concurrent_flow.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {

namespace {

using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Vertices = nb::ndarray<const Vertex, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Flags = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Array> auto view(const Array &array) {
    return std::span(array.data(), static_cast<std::size_t>(array.shape(0)));
}

template <class T> auto to_numpy(std::vector<T> &&values) {
    auto *kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<T> *>(p); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner);
}

[[noreturn]] void refuse(const std::string &what) { throw nb::value_error(what.c_str()); }

void require_size(std::size_t size, std::size_t wanted, const char *name) {
    if (size != wanted) refuse(std::string(name) + " has " + std::to_string(size) + " entries; it must have " + std::to_string(wanted));
}

void require_amounts(std::span<const double> values, const char *name, bool zero_allowed) {
    for (const double value : values) {
        if (!std::isfinite(value) || value < 0 || (!zero_allowed && value == 0)) {
            refuse(std::string(name) + " holds " + std::to_string(value) + "; it must be finite and " +
                   (zero_allowed ? "0 or more" : "above 0"));
        }
    }
}

Edges checked_edges(const Vertices &from, const Vertices &to, const Doubles &weight, std::size_t vertices, const char *name) {
    require_size(to.shape(0), from.shape(0), name);
    require_size(weight.shape(0), from.shape(0), name);
    if (from.shape(0) >= (1u << 30)) refuse("arrays are limited to 2^30 entries");
    for (std::size_t e = 0; e < from.shape(0); ++e) {
        const Vertex u = from.data()[e], v = to.data()[e];
        if (u < 0 || v < 0 || static_cast<std::size_t>(std::max(u, v)) >= vertices || u == v) {
            refuse(std::string(name) + " " + std::to_string(e) + " joins " + std::to_string(u) + " and " + std::to_string(v) +
                   "; ends must differ and be vertices");
        }
    }
    require_amounts(view(weight), name, false);
    return {view(from), view(to), view(weight)};
}

std::size_t checked_vertices(const Doubles &weight) {
    if (weight.shape(0) < 2 || weight.shape(0) >= (1u << 30)) refuse("a cut needs from 2 to 2^30 vertices");
    require_amounts(view(weight), "weight", true);
    return weight.shape(0);
}

class CutNetwork {
  public:
    CutNetwork(const Doubles &weight, const Vertices &from, const Vertices &to, const Doubles &stream_weight,
               const Vertices &demand_from, const Vertices &demand_to, const Doubles &demand)
        : graph_(view(weight), checked_edges(from, to, stream_weight, checked_vertices(weight), "stream"),
                 checked_edges(demand_from, demand_to, demand, weight.shape(0), "demand")) {}

    nb::tuple flow(double epsilon, int phases_max, int sweep_every, double seconds) const {
        if (!(epsilon > 0 && epsilon <= 1)) refuse("epsilon must be above 0 and at most 1");
        Flow flow;
        {
            nb::gil_scoped_release release;
            flow = concurrent_flow(graph_, {epsilon, phases_max, sweep_every}, Cap(seconds));
        }
        return nb::make_tuple(to_numpy(std::move(flow.length)), flow.throughput, flow.upper, flow.phases,
                              to_numpy(std::move(flow.best.side)), flow.best.ratio);
    }

    nb::tuple round(const Doubles &length) const {
        const std::vector<double> lengths = checked_lengths(length);
        BestCut best;
        {
            nb::gil_scoped_release release;
            best = round_lengths(graph_, lengths);
        }
        return nb::make_tuple(to_numpy(std::move(best.side)), best.ratio);
    }

    // For every vertex its demand along its shortest-path tree, as compressed rows of edges; and demand times distance.
    nb::tuple trees(const Doubles &length) const {
        const std::vector<double> lengths = checked_lengths(length);
        TreeFlows flows;
        {
            nb::gil_scoped_release release;
            flows = tree_flows(graph_, lengths);
        }
        return nb::make_tuple(to_numpy(std::move(flows.start)), to_numpy(std::move(flows.edge)),
                              to_numpy(std::move(flows.flow)), to_numpy(std::move(flows.reach)));
    }

    nb::tuple anneal(const Flags &side, std::uint64_t seed, int runs, double seconds) const {
        require_size(side.shape(0), graph_.weight.size(), "side");
        const std::vector<std::uint8_t> given(view(side).begin(), view(side).end());
        BestCut best;
        {
            nb::gil_scoped_release release;
            best = anneal_cut(graph_, given, seed, runs, Cap(seconds));
        }
        return nb::make_tuple(to_numpy(std::move(best.side)), best.ratio);
    }

  private:
    std::vector<double> checked_lengths(const Doubles &length) const {
        require_size(length.shape(0), graph_.streams.weight.size(), "length");
        require_amounts(view(length), "length", true);
        return {view(length).begin(), view(length).end()};
    }
    CutGraph graph_;
};

}  // namespace

}  // namespace penstock

void bind_ratio_cut(nb::module_ &module) {
    using penstock::CutNetwork;
    using penstock::Doubles;
    using penstock::Vertices;
    nb::class_<CutNetwork>(module, "CutNetwork")
        .def(nb::init<const Doubles &, const Vertices &, const Vertices &, const Doubles &, const Vertices &,
                      const Vertices &, const Doubles &>(),
             "weight"_a, "source"_a, "target"_a, "stream_weight"_a, "demand_source"_a, "demand_target"_a, "demand"_a)
        .def("flow", &CutNetwork::flow, "epsilon"_a, "phases_max"_a, "sweep_every"_a, "seconds"_a)
        .def("round", &CutNetwork::round, "length"_a)
        .def("trees", &CutNetwork::trees, "length"_a)
        .def("anneal", &CutNetwork::anneal, "side"_a, "seed"_a, "runs"_a, "seconds"_a);
}
