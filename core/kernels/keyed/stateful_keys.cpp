#include "kernels/keyed/stateful_keys.hpp"

#include <datetime.h>

#include "kernels/rows/builders.hpp"
#include "kernels/rows/python_errors.hpp"

namespace nb = nanobind;

namespace penstock {

namespace {

constexpr size_t PIECE_BYTES = 256 << 10;  // larger ones only where one key has so much

// Whether a key itself compares as in Arrow. `identity` knows more of these types and returns their keys as they are.
bool compares_itself(PyObject* key) {
    return PyUnicode_CheckExact(key) || PyLong_CheckExact(key) || key == Py_None || PyBool_Check(key) ||
           PyBytes_CheckExact(key) || PyDateTime_CheckExact(key) || PyDate_CheckExact(key);
}

bool parts_compare_themselves(PyObject* key) {
    if (!PyTuple_CheckExact(key)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++)
        if (!compares_itself(PyTuple_GET_ITEM(key, i))) return false;
    return true;
}

}  // namespace

nb::object KeyedTable::row_key(RowSource* source, const std::vector<Py_ssize_t>& columns, int64_t row) const {
    if (columns.size() == 1) return nb::steal(source->value(columns[0], row));
    nb::object key = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(columns.size())));
    for (size_t i = 0; key.is_valid() && i < columns.size(); i++) {
        PyObject* part = source->value(columns[i], row);
        if (part == nullptr) return {};
        PyTuple_SET_ITEM(key.ptr(), static_cast<Py_ssize_t>(i), part);
    }
    return key;
}

nb::object KeyedTable::stand_in(nb::handle key) const {
    if (PyDateTimeAPI == nullptr) PyDateTime_IMPORT;
    if (PyDateTimeAPI == nullptr) throw nb::python_error();
    if (compares_itself(key.ptr()) || parts_compare_themselves(key.ptr())) return nb::borrow(key);
    return identity_(key);
}

nb::object KeyedTable::find(const nb::object& key) {
    nb::object hashed = stand_in(key);
    PyObject* known = PyDict_GetItemWithError(states_.ptr(), hashed.ptr());
    if (known != nullptr) return nb::borrow(known);
    if (PyErr_Occurred()) throw nb::python_error();
    nb::object state = make_state_();
    if (!is_key_state(state.ptr())) throw nb::type_error("states are made by a type of StateDict");
    KeyStateObject* made = as_key_state(state.ptr());
    made->key = nb::object(key).release().ptr();
    made->hashed = hashed.release().ptr();
    made->written = writing_;
    return state;
}

void KeyedTable::begin(nb::handle given) {
    if (!is_key_state(given.ptr())) throw nb::type_error("begin takes a state of this table");
    touch(as_key_state(given.ptr()));
    running_ = nb::borrow(given);
}

void KeyedTable::touch(KeyStateObject* state) {
    if (!writer_ || state->written == writing_) return;
    writer_->entry(state);
    state->written = writing_;
}

void KeyedTable::begin_writing(nb::object other) {
    if (writer_) throw std::runtime_error("the keys are being written already");
    unwritten_ = nb::steal<nb::list>(PyDict_Values(states_.ptr()));
    if (!unwritten_.is_valid()) throw nb::python_error();
    writer_.emplace(std::move(other));
    next_ = 0;
    writing_++;
}

nb::object KeyedTable::write(size_t most) {
    if (!writer_) return nb::none();
    const Py_ssize_t count = PyList_GET_SIZE(unwritten_.ptr());
    for (size_t i = 0; i < most && next_ < count && writer_->size() < PIECE_BYTES; i++, next_++) {
        touch(as_key_state(PyList_GET_ITEM(unwritten_.ptr(), next_)));
        PyList_SetItem(unwritten_.ptr(), next_, nb::none().release().ptr());  // so that the end has little to let go of
    }
    if (writer_->size() > 0) return writer_->take();
    if (next_ < count) return nb::bytes("", 0);
    writer_.reset();
    unwritten_ = nb::list();
    return nb::none();
}

void KeyedTable::settle(nb::handle given) {
    running_.reset();
    if (!is_key_state(given.ptr())) throw nb::type_error("settle takes a state of this table");
    KeyStateObject* state = as_key_state(given.ptr());
    const bool keep = PyDict_GET_SIZE(given.ptr()) > 0 || (state->timers != nullptr && !state->timers->none());
    if (keep == state->stored) return;
    state->stored = keep;
    const int failed = keep ? PyDict_SetItem(states_.ptr(), state->hashed, given.ptr())
                            : PyDict_DelItem(states_.ptr(), state->hashed);
    if (failed != 0) throw nb::python_error();
}

bool KeyedTable::hand_over(const nb::object& key, const nb::object& row, const Calls& calls) {
    running_ = find(key);
    const nb::object state = running_;
    touch(as_key_state(state.ptr()));
    PyObject* given[] = {nullptr, key.ptr(), row.ptr(), state.ptr(), calls.timers.ptr(), calls.emit.ptr()};
    PyObject* answer = PyObject_Vectorcall(calls.on_row.ptr(), given + 1, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    if (answer == nullptr) return false;  // the key stays the one that runs: the error may name it
    Py_DECREF(answer);
    settle(state);
    return true;
}

void KeyedTable::rows(RowSource* source, const std::vector<Py_ssize_t>& columns, const int64_t* times, const Calls& calls) {
    nb::object row;
    for (int64_t i = 0; i < source->batch->rows; i++) {
        if (times != nullptr) {
            const Timer* next = queues_[EVENT].earliest();
            if (next != nullptr && next->at < times[i]) calls.fire(times[i]);
        }
        move_row(row, source, i);
        const nb::object key = row_key(source, columns, i);
        if (!key.is_valid() || !hand_over(key, row, calls)) calls.fault(i, take_exception(), row);
    }
}

KeyStateObject* KeyedTable::running() const {
    if (running_.is_valid()) return as_key_state(running_.ptr());
    throw std::runtime_error("timers belong to a key: set them while its on_row or on_timer runs, and not later");
}

nb::object KeyedTable::key() const {
    return running_.is_valid() ? nb::borrow(as_key_state(running_.ptr())->key) : nb::none();
}

int64_t KeyedTable::moment(nb::handle given, Clock clock) const {
    int64_t us = 0;
    const bool plain = utc_moments_ && PyDateTimeAPI != nullptr && PyDateTime_CheckExact(given.ptr()) &&
                       PyDateTime_DATE_GET_TZINFO(given.ptr()) == PyDateTime_TimeZone_UTC;
    if (plain && timestamp_us(given.ptr(), us)) return us;
    return nb::cast<int64_t>(moment_us_(given, static_cast<int>(clock)));
}

void KeyedTable::at(nb::handle given, Clock clock) { queues_[clock].set(running(), moment(given, clock)); }

void KeyedTable::delay(KeyStateObject* state, int64_t us) {
    if (state->timers == nullptr) state->timers = new KeyTimers();
    state->timers->delays++;
    delays_.push_back({us, state->timers->delays_cleared, nb::borrow(as_object(state))});
}

void KeyedTable::after(nb::handle given) { delay(running(), nb::cast<int64_t>(delay_us_(given))); }

void KeyedTable::clear() {
    KeyStateObject* state = running();
    if (state->timers == nullptr) return;
    for (TimerQueue& queue : queues_) queue.clear(state);
    state->timers->delays = 0;
    state->timers->delays_cleared++;
}

nb::object KeyedTable::pop_due(Clock clock, int64_t before) {
    const Timer* next = queues_[clock].earliest();
    if (next == nullptr || next->at >= before) return nb::none();
    touch(as_key_state(next->state.ptr()));
    const Timer timer = queues_[clock].pop();
    running_ = timer.state;
    return nb::make_tuple(timer.at, timer.order, nb::borrow(as_key_state(timer.state.ptr())->key), timer.state);
}

void KeyedTable::start_delays(int64_t now_us) {
    std::vector<Delay> waiting;
    waiting.swap(delays_);
    for (const Delay& delay : waiting) {
        if (!delay.alive()) continue;
        touch(as_key_state(delay.state.ptr()));
        as_key_state(delay.state.ptr())->timers->delays--;
        queues_[PROCESSING].set(as_key_state(delay.state.ptr()), now_us + delay.us);
    }
}

nb::object KeyedTable::earliest(Clock clock) {
    const Timer* next = queues_[clock].earliest();
    return next == nullptr ? nb::none() : nb::object(nb::int_(next->at));
}

nb::list KeyedTable::states() const {
    nb::list found;
    for (nb::handle state : states_.values())
        if (PyDict_GET_SIZE(state.ptr()) > 0) found.append(nb::make_tuple(nb::borrow(as_key_state(state.ptr())->key), state));
    return found;
}

nb::list KeyedTable::timers(Clock clock) const {
    nb::list found;
    for (const Timer& timer : queues_[clock].sorted())
        found.append(nb::make_tuple(timer.at, nb::borrow(as_key_state(timer.state.ptr())->key)));
    return found;
}

nb::list KeyedTable::delays() const {
    nb::list found;
    for (const Delay& delay : delays_)
        if (delay.alive()) found.append(nb::make_tuple(delay.us, nb::borrow(as_key_state(delay.state.ptr())->key)));
    return found;
}

void KeyedTable::put(nb::object key, nb::object values) {
    const nb::object state = find(key);
    if (PyDict_Update(state.ptr(), values.ptr()) != 0) throw nb::python_error();
    settle(state);
}

void KeyedTable::put_timer(Clock clock, int64_t at, int64_t order, nb::object key) {
    const nb::object state = find(key);
    queues_[clock].put(as_key_state(state.ptr()), at, order);
    settle(state);
}

void KeyedTable::put_delay(int64_t us, nb::object key) {
    const nb::object state = find(key);
    delay(as_key_state(state.ptr()), us);
    settle(state);
}

}  // namespace penstock
