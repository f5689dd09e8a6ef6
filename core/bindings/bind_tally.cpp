// The core's Tally as Python sees it; what it does is in tally.hpp.
#include "bindings/tally.hpp"

using namespace nanobind::literals;

namespace penstock {

void bind_tally(nanobind::module_& module) {
    namespace nb = nanobind;
    using tally::Tally;
    module.attr("SLICE_NS") = tally::SLICE_NS;
    module.def("latency_bucket", &tally::bucket_of, "latency_us"_a);
    nb::class_<Tally>(module, "Tally")
        .def(nb::init<size_t, const std::vector<nb::object>&, nb::object, nb::object>(), "tasks"_a, "codecs"_a,
             "clock"_a.none() = nb::none(), "cpu_clock"_a.none() = nb::none())
        .def_prop_ro("loop", &Tally::loop)
        .def_prop_ro("waiting", &Tally::waiting)
        .def_prop_ro("arriving", &Tally::arriving)
        .def_prop_ro("reporting", &Tally::reporting)
        .def("start", &Tally::start)
        .def("switch_to", &Tally::switch_to, "to"_a)
        .def("run", &Tally::run, "task"_a, "rows"_a)
        .def("due", &Tally::due, "task"_a, "runs"_a)
        .def("handing", &Tally::handing, "edge"_a)
        .def("sending", &Tally::sending, "edge"_a)
        .def("receiving", &Tally::receiving, "edge"_a)
        .def("rest", &Tally::rest)
        .def("sent", &Tally::sent, "task"_a, "edge"_a, "batch"_a, "rows"_a)
        .def("kept", &Tally::kept, "task"_a, "edge"_a, "image"_a)
        .def("held", &Tally::held, "task"_a, "edge"_a, "image"_a)
        .def("sent_image", &Tally::sent_image, "task"_a, "edge"_a, "image"_a)
        .def("joined", &Tally::joined, "edge"_a)
        .def("passed", &Tally::passed, "task"_a, "edge"_a, "batch"_a, "rows"_a)
        .def("taken", &Tally::taken, "edge"_a, "kind"_a, "sent_ns"_a, "size"_a)
        .def("queued", &Tally::queued, "edge"_a)
        .def("dequeued", &Tally::dequeued, "packets"_a)
        .def("woken", &Tally::woken, "woken_ns"_a)
        .def("looked", &Tally::looked)
        .def("settle", &Tally::settle, "at_once"_a = false)
        .def("arrived", &Tally::arrived, "task"_a, "latency_us"_a, "rows"_a = 1)
        .def("arrived_now", &Tally::arrived_now, "task"_a, "origin_ns"_a, "rows"_a = 1)
        .def("take_tasks", &Tally::take_tasks)
        .def("take_edges", &Tally::take_edges)
        .def("take_latency", &Tally::take_latency);
}

}  // namespace penstock
