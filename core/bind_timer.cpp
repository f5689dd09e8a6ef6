// A timer that epoll can wait for, to the microsecond: Python's own epoll rounds its timeout up to a millisecond.
#include <cerrno>
#include <ctime>
#include <nanobind/nanobind.h>
#include <sys/timerfd.h>
#include <system_error>

namespace nb = nanobind;

namespace {

int make_timer() {
    int descriptor = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (descriptor < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        throw nb::python_error();
    }
    return descriptor;
}

// Readable so many nanoseconds from now; 0 takes a time that was set before back, and what has come of it.
void set_timer(int descriptor, int64_t nanoseconds) {
    itimerspec when{};
    when.it_value.tv_sec = nanoseconds / 1'000'000'000;
    when.it_value.tv_nsec = nanoseconds % 1'000'000'000;
    if (timerfd_settime(descriptor, 0, &when, nullptr) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        throw nb::python_error();
    }
}

}  // namespace

namespace penstock {
void bind_timer(nb::module_& module) {
    module.def("make_timer", &make_timer);
    module.def("set_timer", &set_timer, nb::arg("descriptor"), nb::arg("nanoseconds"));
}
}  // namespace penstock
