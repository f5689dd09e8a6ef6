// How Python waits for a ring: without the interpreter's lock, in slices, so that signals are seen.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "ring/ring.hpp"

namespace penstock {

using Timeout = std::optional<double>;  // seconds; none: for ever

inline ring::Deadline deadline_of(const Timeout& timeout) {
    return timeout ? ring::Deadline::in_seconds(*timeout) : ring::Deadline::never();
}

inline void look_after_signals() {
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

// False when there was no space until the timeout.
inline bool reserve(ring::Producer& producer, ring::Span& span, uint32_t target, uint32_t length,
                    const ring::Deadline& deadline, uint32_t flags = 0, uint64_t whole = 0) {
    while (!producer.try_reserve(span, target, length, flags, whole)) {
        if (deadline.passed()) return false;
        {
            const nanobind::gil_scoped_release free;
            producer.wait_for_space(deadline);
        }
        look_after_signals();
    }
    return true;
}

// The next record that is there, also behind records that dead producers left unfinished.
inline bool poll(ring::Consumer& consumer, ring::Record& record) {
    if (consumer.poll(record)) return true;
    if (!consumer.has_unfinished()) return false;
    consumer.skip_dead();
    return consumer.poll(record);
}

// False when nothing has come until the timeout.
inline bool await_record(ring::Consumer& consumer, ring::Record& record, const Timeout& timeout) {
    if (consumer.poll(record)) return true;
    const ring::Deadline deadline = deadline_of(timeout);
    while (!deadline.passed()) {
        {
            const nanobind::gil_scoped_release free;
            consumer.wait(deadline);
        }
        if (consumer.poll(record)) return true;
        look_after_signals();
    }
    return poll(consumer, record);
}

}  // namespace penstock
