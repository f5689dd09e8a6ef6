// KeyStateObject: what a stateful operator knows about one key, as a Python dict that also carries the key's timers.
//
// It is a subtype of dict in C: nearly every row puts a value in, and a Python `__setitem__` costs more than all the
// rest of a counter. It refuses values that cannot be saved. Checking a whole list at each put would make appending to
// it quadratic, so the ends of a container are checked at the put (ENDS_CHECKED) and the rest when state is written
// (`test_a_long_list_is_not_looked_through_at_every_put`). Timers are kept with their key, so that clearing them does
// not look at those of other keys.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>

namespace penstock {

constexpr int QUEUES = 2;  // event time, processing time

struct KeyTimers {
    std::map<int64_t, int64_t> orders[QUEUES];  // time -> order of setting
    int64_t delays = 0;                         // delays that wait for the time to be known
    int64_t delays_cleared = 0;                 // how often they were cleared

    bool none() const { return orders[0].empty() && orders[1].empty() && delays == 0; }
};

struct KeyStateObject {
    PyDictObject dict;
    PyObject* key;
    PyObject* hashed;   // the key's stand-in in the table
    KeyTimers* timers;  // nullptr until the first is set
    bool stored;        // it is in the table
    uint32_t written;   // the last writing of the table that has it, or that it came too late for
};

inline KeyStateObject* as_key_state(PyObject* object) { return reinterpret_cast<KeyStateObject*>(object); }
inline PyObject* as_object(KeyStateObject* state) { return reinterpret_cast<PyObject*>(state); }

bool is_key_state(PyObject* object);
bool init_key_state_type(nanobind::module_& module);

}  // namespace penstock
