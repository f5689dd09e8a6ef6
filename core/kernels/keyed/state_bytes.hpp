// Keyed Python state as bytes and back: for each key the key, its values and its timers.
//
// A value is a tag and its bytes; None, bool, int, float, str, bytes, list, tuple and dict have forms of their own, a
// tenth of what JSON by Python costs. For all others Python is asked, and answers with JSON. Containers nest as deep as
// keyed_state.py allows; what is deeper is given to Python, which refuses it with the name of the state.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/keyed/key_state.hpp"

namespace penstock {

class StateWriter {
   public:
    // `other(value, name, key)` gives the bytes of a value that has no form here; the name is None for a key itself.
    explicit StateWriter(nanobind::object other) : other_(std::move(other)) {}

    void entry(KeyStateObject* state);
    size_t size() const { return out_.size(); }
    nanobind::bytes take();  // what has been written since this was last asked

   private:
    bool put(PyObject* value, int depth);  // false: it is nested too deep
    bool put_items(char tag, PyObject* values, int depth);
    bool put_dict(PyObject* values, int depth);
    void put_named(PyObject* value, PyObject* name, PyObject* key);
    void put_other(PyObject* value);
    void put_text(char tag, std::string_view text);
    template <class T>
    void append(T value) {
        out_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    }

    nanobind::object other_;
    PyObject *name_ = nullptr, *key_ = nullptr;  // of the value that is being written
    std::string out_;
};

// Up to `most` entries from byte `at` on, as (key, values, event timers, clock timers) with timers as (time, order), and
// the byte behind them. std::invalid_argument where the bytes are no such entries.
nanobind::tuple read_states(nanobind::bytes data, size_t at, size_t most, nanobind::object other);

}  // namespace penstock
