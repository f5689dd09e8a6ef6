// Waiting and liveness: futex, eventfd, pidfd, and deadlines, which may be infinite.
//
// Every wait looks again after at most one SLICE: a producer killed between publishing and waking must not leave the
// consumer asleep, and the interpreter must see signals.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace penstock::ring {

inline constexpr int64_t SLICE_NS = 50'000'000;

int64_t now_ns();

class Deadline {
   public:
    static Deadline never() { return Deadline(INT64_MAX); }
    static Deadline now() { return Deadline(0); }
    static Deadline in_seconds(double seconds);

    bool is_now() const { return at_ns_ == 0; }
    bool passed() const { return at_ns_ != INT64_MAX && (at_ns_ == 0 || now_ns() >= at_ns_); }
    // How long to wait at most, in one slice.
    int64_t slice_ns(int64_t slice_max_ns) const;

   private:
    explicit Deadline(int64_t at_ns) : at_ns_(at_ns) {}
    int64_t at_ns_;
};

// Sleeps while the word holds this value, at most `timeout_ns`; works between processes. Waking returns how many it
// woke.
void futex_wait(std::atomic<uint32_t>& word, uint32_t value, int64_t timeout_ns);
int futex_wake(std::atomic<uint32_t>& word, int count);

void pause_core();

// A descriptor that is closed when its holder goes.
class Descriptor {
   public:
    Descriptor() = default;
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(other.number_) { other.number_ = -1; }
    Descriptor& operator=(Descriptor&& other) noexcept;
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() { reset(); }

    int number() const { return number_; }
    explicit operator bool() const { return number_ >= 0; }
    void reset();
    Descriptor duplicate() const;

   private:
    int number_ = -1;
};

Descriptor make_eventfd();
void eventfd_signal(int number);
void eventfd_take(int number);

// The start time of a process in clock ticks since boot; 0 when there is no such process.
uint64_t process_started(uint32_t process);

// Another process, known beyond the reuse of its number.
class Witness {
   public:
    Witness() = default;
    Witness(uint32_t process, uint64_t started);
    // False only where death is certain: a producer taken for dead loses its reserved space to others.
    bool alive() const;
    uint32_t process() const { return process_; }

   private:
    uint32_t process_ = 0;
    bool is_gone_ = true;
    Descriptor pidfd_;  // empty where no descriptor could be had
};

// Counts forks of this process: handles made before one must not be used after it in the child.
uint32_t fork_generation();

}  // namespace penstock::ring
