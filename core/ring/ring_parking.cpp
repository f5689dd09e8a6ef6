// The reading end's sleep: spinning, parking, and going back to the start of an empty ring.
//
// In a large ring every message goes to memory that has long left the caches, although a reader that sleeps between
// messages needs little of the ring. So a reader that is about to sleep, has read everything and holds nothing steps
// over the rest of the area: it takes the next slot for a `flush` mark, as a producer does whose record does not fit,
// and frees it at once. Producers see an ordinary wrap. Where a producer takes the slot first, its record simply comes
// next. Rejected: producers that wrap early themselves. A burst could not use the space they skip until the reader
// wakes.
#include <algorithm>

#include "ring/ring.hpp"
#include "ring/ring_kill_points.hpp"

namespace penstock::ring {

bool Consumer::is_far_from_start() const {
    const uint32_t into_the_lap = read_position_ & (segment_->capacity_units() - 1);
    return into_the_lap >= restart_units_ && broken_.empty() && forks_ == fork_generation() &&
           left_.load(std::memory_order_relaxed) == read_.load(std::memory_order_relaxed);
}

// False when the ring is found damaged, which the next poll says.
bool Consumer::go_to_start() try {
    const uint32_t rest = segment_->capacity_units() - (read_position_ & (segment_->capacity_units() - 1));
    const uint32_t read = read_.load(std::memory_order_relaxed);
    const Word mark{Status::flush, 0, rest, read};
    uint64_t found = Word::blank(read);
    if (!segment_->slot(read).word.compare_exchange_strong(found, mark.pack(), std::memory_order_seq_cst)) return true;
    RING_POINT("restarted");
    counts_.restarts++;
    Record none;
    absorb(mark, none);
    return true;
} catch (const Fault&) {
    return false;
}

bool Consumer::ready() const {
    std::bitset<PRODUCERS_MAX + 1> held;
    for (const Pending& at : pending_) {
        if (held[at.producer]) continue;
        const Word word = Word::unpack(segment_->slot(at.ticket).word.load(std::memory_order_seq_cst));
        if (word.status != Status::is_writing) return true;
        held[at.producer] = true;
    }
    if (!may_look_right()) {
        // A release frees the record's slot before it moves `left_`. A producer that takes the slot in between finds
        // the reader awake and does not call it. So a reader that is about to sleep looks again after that step, under
        // the lock.
        const std::lock_guard lock(mutex_);
        if (!may_look_right()) return false;
    }
    const uint32_t read = read_.load(std::memory_order_relaxed);
    return segment_->slot(read).word.load(std::memory_order_seq_cst) != Word::blank(read);
}

void Consumer::note_gap(int64_t gap_ns) {
    // The gap is bounded, so that a few short gaps outweigh a long silence.
    gap_ns_ = (3 * gap_ns_ + std::min(gap_ns, 16 * limits_.spin_ns)) / 4;
}

void Consumer::wait(const Deadline& deadline) {
    const int64_t began = now_ns();
    if (gap_ns_ < limits_.spin_ns) {
        counts_.spins++;
        for (int64_t spun = 0; spun < limits_.spin_ns; spun = now_ns() - began) {
            for (int i = 0; i < 16; i++) {
                if (ready()) return note_gap(spun);
                pause_core();
            }
        }
    }
    Header& header = segment_->header();
    const bool unfinished = !pending_.empty();
    slice_ns_ = unfinished ? std::clamp<int64_t>(slice_ns_ * 2, 1'000'000, 16'000'000) : SLICE_NS;
    {
        const std::lock_guard lock(mutex_);
        if (relieve()) slice_ns_ = std::min(slice_ns_, limits_.pin_ns);
        if (is_far_from_start() && !go_to_start()) return;
    }
    header.parked.store(ON_FUTEX, std::memory_order_seq_cst);
    if (!ready()) {
        counts_.parks++;
        RING_POINT("parked");
        futex_wait(header.parked, ON_FUTEX, deadline.slice_ns(slice_ns_));
    }
    if (header.parked.load(std::memory_order_relaxed) != AWAKE) header.parked.store(AWAKE, std::memory_order_relaxed);
    note_gap(now_ns() - began);
    if (unfinished && !ready()) skip_dead();
    if (pending_.empty()) slice_ns_ = 0;
}

bool Consumer::arm() {
    Header& header = segment_->header();
    {
        const std::lock_guard lock(mutex_);
        if (relieve()) return false;  // held records keep producers waiting: look again soon instead of sleeping
        if (is_far_from_start() && !go_to_start()) return false;
    }
    header.parked.store(ON_EVENTFD, std::memory_order_seq_cst);
    bool is_called = ready();
    if (!is_called) {  // a producer that asked for space before the flag went up has not called
        const std::lock_guard lock(mutex_);
        is_called = holds_up();
    }
    if (is_called)
        header.parked.store(AWAKE, std::memory_order_relaxed);
    else
        counts_.parks++;
    return !is_called;
}

void Consumer::disarm() {
    // A producer that found the flag up has called or is about to. Then one call comes for nothing, which does no harm.
    segment_->header().parked.store(AWAKE, std::memory_order_relaxed);
    eventfd_take(segment_->wake());
}

}  // namespace penstock::ring
