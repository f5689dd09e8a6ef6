// System calls behind waiting.hpp; none of them throws except where a descriptor cannot be made.
#include "ring/waiting.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "ring/ring_errors.hpp"

namespace penstock::ring {

int64_t now_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

Deadline Deadline::in_seconds(double seconds) {
    if (!(seconds > 0)) return now();
    if (seconds > 1e8) return never();
    return Deadline(now_ns() + static_cast<int64_t>(seconds * 1e9));
}

int64_t Deadline::slice_ns(int64_t slice_max_ns) const {
    if (at_ns_ == INT64_MAX) return slice_max_ns;
    return std::clamp<int64_t>(at_ns_ - now_ns(), 0, slice_max_ns);
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_ns) {
    const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value, &timeout, nullptr, 0);
}

int futex_wake(std::atomic<uint32_t>& word, int count) {
    return static_cast<int>(
        syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, count, nullptr, nullptr, 0));
}

void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    if (this != &other) {
        reset();
        std::swap(number_, other.number_);
    }
    return *this;
}

void Descriptor::reset() {
    if (number_ >= 0) close(number_);
    number_ = -1;
}

Descriptor Descriptor::duplicate() const {
    const int copy = fcntl(number_, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) throw NoMemory(std::string("a descriptor could not be duplicated: ") + std::strerror(errno));
    return Descriptor(copy);
}

Descriptor make_eventfd() {
    const int number = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (number < 0) throw NoMemory(std::string("no eventfd could be made: ") + std::strerror(errno));
    return Descriptor(number);
}

void eventfd_signal(int number) {
    const uint64_t one = 1;
    // A write that fails needs no handling: a full counter signals already, and a closed reader needs no signal.
    [[maybe_unused]] const ssize_t written = write(number, &one, sizeof one);
}

void eventfd_take(int number) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = read(number, &count, sizeof count);
}

uint64_t process_started(uint32_t process) {
    char path[32];
    std::snprintf(path, sizeof path, "/proc/%u/stat", process);
    const Descriptor file(open(path, O_RDONLY | O_CLOEXEC));
    if (!file) return 0;
    char text[1024];
    const ssize_t length = read(file.number(), text, sizeof text - 1);
    if (length <= 0) return 0;
    text[length] = 0;
    const char* at = std::strrchr(text, ')');  // the name before it may hold anything
    for (int field = 2; at != nullptr && field < 22; field++) at = std::strchr(at + 1, ' ');
    return at == nullptr ? 0 : std::strtoull(at + 1, nullptr, 10);
}

Witness::Witness(uint32_t process, uint64_t started) : process_(process) {
    pidfd_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0)));
    // ESRCH: no such process, EINVAL: no such number. Any other error (a limit on descriptors, a filter on system calls)
    // says nothing about the process.
    is_gone_ = !pidfd_ && (errno == ESRCH || errno == EINVAL);
    // Open the descriptor first and read the start time afterwards, so that both belong to the same process. A time
    // that cannot be read proves nothing; if the process has ended meanwhile, the descriptor says so.
    const uint64_t found = is_gone_ || started == 0 ? 0 : process_started(process);
    if (found != 0 && found != started) is_gone_ = true;
}

bool Witness::alive() const {
    if (is_gone_) return false;
    if (!pidfd_) return kill(static_cast<pid_t>(process_), 0) == 0 || errno != ESRCH;
    pollfd poll_for{pidfd_.number(), POLLIN, 0};
    return poll(&poll_for, 1, 0) == 0 || (poll_for.revents & POLLIN) == 0;
}

namespace {
std::atomic<uint32_t> forks{0};
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
}  // namespace

uint32_t fork_generation() { return forks.load(std::memory_order_relaxed); }

}  // namespace penstock::ring
