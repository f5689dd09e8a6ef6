// Keyed state, timers and the loop of a stateful operator, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "kernels/keyed/stateful_keys.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

using Times = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void process_rows(KeyedTable& table, nb::object layout, nb::object batch, nb::object names,
                  const std::vector<Py_ssize_t>& key, nb::object times, nb::handle on_row, nb::handle timers,
                  nb::handle emit, nb::handle fault, nb::handle fire) {
    RowSource* source = new RowSource(std::move(layout), std::move(batch), std::move(names));
    struct Hold {
        RowSource* source;
        ~Hold() { source->drop(); }
    } const hold{source};
    for (const Py_ssize_t column : key)
        if (column < 0 || column >= static_cast<Py_ssize_t>(source->batch->columns.size()))
            throw nb::index_error("a key's column is not in the batch");
    const Times ordered = times.is_none() ? Times() : nb::cast<Times>(times);
    if (ordered.is_valid() && static_cast<int64_t>(ordered.size()) != source->batch->rows)
        throw nb::value_error("there must be one time for each row");
    const KeyedTable::Calls calls{on_row, timers, emit, fault, fire};
    table.rows(source, key, ordered.is_valid() ? ordered.data() : nullptr, calls);
}

// The timers of the key whose function runs. Users see this part of the table.
struct Timers {
    nb::object table;
    KeyedTable& keyed;

    explicit Timers(nb::object given) : table(std::move(given)), keyed(nb::cast<KeyedTable&>(table)) {}
};

}  // namespace

void bind_process(nb::module_& module) {
    if (!init_key_state_type(module)) throw nb::python_error();
    module.def("read_states", &read_states);
    nb::enum_<Clock>(module, "Clock").value("EVENT", EVENT).value("PROCESSING", PROCESSING);
    nb::class_<KeyedTable>(module, "KeyedTable")
        .def(nb::init<nb::object, nb::object, nb::object, nb::object, bool>())
        .def("process_rows", &process_rows, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(),
             nb::arg(), nb::arg(), nb::arg(), nb::arg())
        .def("pop_due", &KeyedTable::pop_due)
        .def("begin", &KeyedTable::begin)
        .def("settle", &KeyedTable::settle)
        .def("start_delays", &KeyedTable::start_delays)
        .def("earliest", &KeyedTable::earliest)
        .def("order", &KeyedTable::order)
        .def("entries", &KeyedTable::entries)
        .def("states", &KeyedTable::states)
        .def("begin_writing", &KeyedTable::begin_writing)
        .def("write", &KeyedTable::write)
        .def("timers", &KeyedTable::timers)
        .def("delays", &KeyedTable::delays)
        .def("put", &KeyedTable::put, nb::arg().none(), nb::arg())
        .def("put_timer", &KeyedTable::put_timer, nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
        .def("put_delay", &KeyedTable::put_delay, nb::arg(), nb::arg().none())
        .def_prop_ro("key", &KeyedTable::key)
        .def_prop_ro("has_delays", &KeyedTable::has_delays);
    nb::class_<Timers>(module, "Timers", "The timers of one key, while its function runs.")
        .def(nb::init<nb::object>())
        .def("at", [](Timers& timers, nb::handle moment) { timers.keyed.at(moment, EVENT); }, nb::arg("time").none(),
             "Fire when event time has passed this moment: a datetime such as row.ts + timedelta(minutes=30).")
        .def("at_processing", [](Timers& timers, nb::handle moment) { timers.keyed.at(moment, PROCESSING); },
             nb::arg("time").none(), "Fire when the worker's clock reaches this moment, a datetime with a zone.")
        .def("after", [](Timers& timers, nb::handle delay) { timers.keyed.after(delay); }, nb::arg("delay").none(),
             "Fire when this delay has passed on the worker's clock: \"10 seconds\", or a timedelta.")
        .def("clear", [](Timers& timers) { timers.keyed.clear(); }, "Forget all timers of this key.");
}

}  // namespace penstock
