// One wait for all descriptors of a worker, to the nanosecond: Python's own epoll rounds its timeout up to a millisecond,
// which alone would be most of the latency of a source that has a row every 50 us.
#include <nanobind/nanobind.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {

namespace {

constexpr int EVENTS_MAX = 64;  // the others come with the next call
constexpr int64_t MILLISECOND_NS = 1'000'000;
constexpr int64_t LONGEST_NS = 3'600'000'000'000;  // a wait of an hour may end once for nothing

// Kernels before 5.11 know just milliseconds, and some containers forbid the newer call.
std::atomic<bool> knows_nanoseconds{true};

int wait_for(int descriptor, epoll_event* events, int64_t timeout_ns) {
    if (timeout_ns > 0 && knows_nanoseconds.load(std::memory_order_relaxed)) {
        const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
        const auto count =
            static_cast<int>(syscall(SYS_epoll_pwait2, descriptor, events, EVENTS_MAX, &timeout, nullptr, 0));
        if (count >= 0 || (errno != ENOSYS && errno != EPERM && errno != EACCES)) return count;
        knows_nanoseconds.store(false, std::memory_order_relaxed);
    }
    return epoll_wait(descriptor, events, EVENTS_MAX, static_cast<int>((timeout_ns + MILLISECOND_NS - 1) / MILLISECOND_NS));
}

// Pairs of a readable descriptor and its events; none after the time, or after a signal, which the caller then looks at.
nb::list epoll_wait_ns(int descriptor, int64_t timeout_ns) {
    epoll_event events[EVENTS_MAX];
    int count = 0, error = 0;
    if (timeout_ns <= 0) {
        count = wait_for(descriptor, events, 0);
        error = errno;
    } else {
        const nb::gil_scoped_release free;
        count = wait_for(descriptor, events, std::min(timeout_ns, LONGEST_NS));
        error = errno;  // before the interpreter's lock is asked for, which may set it
    }
    if (count < 0) {
        if (error != EINTR) {
            errno = error;
            PyErr_SetFromErrno(PyExc_OSError);
            throw nb::python_error();
        }
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    nb::list found;
    for (int i = 0; i < count; i++) found.append(nb::make_tuple(int{events[i].data.fd}, uint32_t{events[i].events}));
    return found;
}

// Sets how late the kernel may fire this thread's timers in order to wake the processor less often; the default is 50
// us. Returns the former value; where the kernel refuses, that stays.
int64_t set_timer_slack(int64_t nanoseconds) {
    const int before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(std::max<int64_t>(nanoseconds, 1)), 0, 0, 0);
    return before;
}

}  // namespace

void bind_waiting(nb::module_& module) {
    module.def("set_timer_slack", &set_timer_slack, "nanoseconds"_a);
    module.def("epoll_wait_ns", &epoll_wait_ns, "descriptor"_a, "timeout_ns"_a);
}

}  // namespace penstock
