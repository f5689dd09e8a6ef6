// Python's view of a region under virtual time. Everything that Python hands over is checked here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "simulate/virtual_region.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {

namespace {

using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using DoublesOut = nb::ndarray<nb::numpy, double, nb::ndim<1>>;

constexpr std::int64_t rows_most = std::int64_t{1} << 40;

void require(bool held, const std::string &what) {
    if (!held) throw nb::value_error(what.c_str());
}

DoublesOut copied(const std::vector<double> &values) {
    auto *kept = new std::vector<double>(values);
    nb::capsule owner(kept, [](void *p) noexcept { delete static_cast<std::vector<double> *>(p); });
    return DoublesOut(kept->data(), {kept->size()}, owner);
}

class RegionSimulation {
  public:
    RegionSimulation(const Matrix &cost, const Doubles &from_seconds, const Doubles &from_row, std::int64_t buffer,
                     std::int64_t low_water, std::int64_t merger_rows, double send_seconds, double merge_seconds,
                     double jitter, bool charge_laggard, std::uint64_t seed)
        : replicas_(cost.shape(1)) {
        require(cost.shape(0) >= 1 && replicas_ >= 1 && replicas_ <= 4096, "cost must have a row for each phase and 1 to 4096 replicas");
        require(from_seconds.shape(0) == cost.shape(0) && from_row.shape(0) == cost.shape(0), "every phase needs its beginning");
        require(buffer >= 1 && buffer <= (1 << 24) && low_water >= 1 && low_water <= buffer, "buffer must be 1 to 2^24 rows and low_water 1 to buffer");
        require(merger_rows >= 0 && merger_rows <= (1 << 24), "merger_rows must be 0 to 2^24");
        require(send_seconds > 0 && std::isfinite(send_seconds), "send_seconds must be above 0");
        require(merge_seconds >= 0 && std::isfinite(merge_seconds), "merge_seconds must be 0 or more");
        require(jitter >= 0 && jitter <= 1, "jitter must be from 0 to 1");
        std::vector<Phase> phases;
        for (std::size_t i = 0; i < cost.shape(0); ++i) {
            const double *row = cost.data() + i * replicas_;
            phases.push_back({from_seconds.data()[i], from_row.data()[i], std::vector<double>(row, row + replicas_)});
            for (const double value : phases.back().cost) require(value >= 0 && std::isfinite(value), "costs must be finite and 0 or more");
        }
        const RegionShape shape{buffer, low_water, merger_rows, send_seconds, merge_seconds, jitter, charge_laggard};
        region_ = std::make_unique<Region>(replicas_, shape, std::move(phases), seed);
    }

    void set_turns(const Ids &turns, int routing) {
        require(turns.shape(0) >= 1, "a cycle of turns must not be empty");
        require(routing >= 0 && routing <= 2, "routing must be 0 (turns), 1 (reroute) or 2 (rebalance)");
        for (std::size_t i = 0; i < turns.shape(0); ++i) {
            const std::int32_t turn = turns.data()[i];
            require(turn >= 0 && static_cast<std::size_t>(turn) < replicas_, "turns holds " + std::to_string(turn) + "; it must be a replica");
        }
        region_->set_turns({turns.data(), turns.shape(0)}, static_cast<Routing>(routing));
        ready_ = true;
    }

    void advance(double until, std::int64_t rows) {
        require(ready_, "set_turns must come before advance");
        require(std::isfinite(until), "until must be finite");
        nb::gil_scoped_release release;
        region_->advance(until, std::min(rows, rows_most));
    }

    std::int64_t left_by(double time) { return region_->left_by(time); }
    std::int64_t held_at(double time) const { return region_->held_at(time); }
    double clock() const { return region_->clock(); }
    std::size_t turn() const { return region_->turn(); }
    double last_exit() const { return region_->last_exit(); }
    std::int64_t sent() const { return region_->sent(); }
    DoublesOut blocked_seconds() const { return copied(region_->blocked_seconds()); }
    DoublesOut sent_rows() const { return copied(region_->sent_rows()); }
    void note_worked_off(double time) { region_->note_worked_off(time); }
    DoublesOut worked_off_rows() const { return copied(region_->worked_off_rows()); }
    DoublesOut took_seconds() const { return copied(region_->took_seconds()); }

  private:
    std::size_t replicas_;
    bool ready_ = false;
    std::unique_ptr<Region> region_;
};

}  // namespace

void bind_region(nb::module_ &module) {
    nb::class_<RegionSimulation>(module, "RegionSimulation")
        .def(nb::init<const Matrix &, const Doubles &, const Doubles &, std::int64_t, std::int64_t, std::int64_t, double,
                      double, double, bool, std::uint64_t>(),
             "cost"_a, "from_seconds"_a, "from_row"_a, "buffer"_a, "low_water"_a, "merger_rows"_a, "send_seconds"_a,
             "merge_seconds"_a, "jitter"_a, "charge_laggard"_a, "seed"_a)
        .def("set_turns", &RegionSimulation::set_turns, "turns"_a, "routing"_a)
        .def("advance", &RegionSimulation::advance, "until"_a, "rows"_a)
        .def("left_by", &RegionSimulation::left_by, "time"_a)
        .def("held_at", &RegionSimulation::held_at, "time"_a)
        .def("clock", &RegionSimulation::clock)
        .def("turn", &RegionSimulation::turn)
        .def("last_exit", &RegionSimulation::last_exit)
        .def("sent", &RegionSimulation::sent)
        .def("blocked_seconds", &RegionSimulation::blocked_seconds)
        .def("sent_rows", &RegionSimulation::sent_rows)
        .def("note_worked_off", &RegionSimulation::note_worked_off, "time"_a)
        .def("worked_off_rows", &RegionSimulation::worked_off_rows)
        .def("took_seconds", &RegionSimulation::took_seconds);
}

}  // namespace penstock
