// The ring: many producers, one consumer, across processes (TurboStream's OSRBuffer, paper 003, section IV).
//
//     Span span;                                        Record record;
//     while (!producer.try_reserve(span, task, size))   while (!consumer->poll(record))
//         producer.wait_for_space(deadline);                consumer->wait(deadline);
//     fill(span.data);                                  use(record.data, record.length);
//     producer.publish(span);                           consumer->release(record);
//
// A compare-and-swap on a head reserves; payload and head follow; a store of the status publishes. Records are read in
// place. A killed process leaves nothing that needs repair (`test_a_death_at_a_named_point_harms_nobody_else`). The
// steps, the differences from the paper, trust and rejected ways: docs/decisions/0014-ring.md.
#pragma once

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ring/ring_errors.hpp"
#include "ring/segment.hpp"
#include "ring/waiting.hpp"

namespace penstock::ring {

uint64_t seal_of(const Head& head, uint32_t ticket, uint64_t epoch);
uint64_t checksum_of(const std::byte* data, uint64_t length);

// Reserved space, as a plain value: any code may fill it.
struct Span {
    std::byte* data = nullptr;
    uint32_t length = 0;
    uint32_t target = 0;
    uint32_t ticket = 0;
    uint32_t units = 0;
    uint32_t flags = 0;
    uint64_t whole = 0;
    uint64_t sequence = 0;
};

struct ProducerCounts {
    uint64_t messages = 0, bytes = 0, blocked_ns = 0, waits = 0, wakes = 0, retries = 0;
};

// One thread's end; a process may have several. Not for use from two threads at once.
class Producer : public std::enable_shared_from_this<Producer> {
   public:
    Producer(std::shared_ptr<Segment> segment, uint32_t identity, bool checksum = false);
    Producer(const Producer&) = delete;
    Producer& operator=(const Producer&) = delete;
    ~Producer();

    // False when there is no space; the length is at most part_bytes_max.
    bool try_reserve(Span& span, uint32_t target, uint32_t length, uint32_t flags = 0, uint64_t whole = 0);
    // One slice of waiting; returns early when space may have come. Throws Gone when the consumer has died.
    void wait_for_space(const Deadline& deadline);
    // Both of the above until the deadline; for callers that need not check for signals.
    bool reserve(Span& span, uint32_t target, uint32_t length, const Deadline& deadline);
    void publish(const Span& span);
    void abandon(const Span& span);

    void check_consumer();
    void notify_space();
    void close();
    ProducerCounts counts() const;
    const Segment& segment() const { return *segment_; }

   private:
    enum class Room { yes, no, look_again };
    void enter();
    void check_usable() const;
    Room room_at(const Cursor& at, uint32_t units);
    bool take(Span& span, uint32_t units);
    void move_on(const Cursor& from, uint32_t units);
    void blocked(bool is_blocked);
    void wake_consumer();

    std::shared_ptr<Segment> segment_;
    uint32_t identity_;
    bool checksum_;
    uint32_t forks_;
    uint32_t number_ = 0;  // in the table of producers
    uint64_t holder_ = 0;  // what our entry says while we may write
    uint64_t sequence_ = 0;
    uint32_t under_way_ = 0;
    uint64_t released_seen_ = 0;  // when the last try was made
    bool closing_ = false;
    Witness consumer_;
    int64_t slice_ns_ = 0;
    int64_t blocked_since_ns_ = 0;
    ProducerCounts counts_;
};

// A message. `data` lies in the ring until the record is released, or in `owned` when it came in parts.
struct Record {
    const std::byte* data = nullptr;
    uint64_t length = 0;
    uint64_t sequence = 0;
    uint32_t target = 0;
    uint32_t producer = 0;  // its identity
    uint32_t flags = 0;
    uint32_t ticket = 0;
    std::unique_ptr<std::byte[]> owned;
    std::shared_ptr<const View> view;  // what `data` lies in, where that is not `owned`
};

// A count that the reading thread keeps without the mutex and any thread may look at.
class Tally {
   public:
    Tally() = default;
    Tally(const Tally& other) : count_(other) {}
    Tally& operator=(const Tally& other) {
        count_.store(other, std::memory_order_relaxed);
        return *this;
    }
    void operator++(int) { count_.fetch_add(1, std::memory_order_relaxed); }
    operator uint64_t() const { return count_.load(std::memory_order_relaxed); }

   private:
    std::atomic<uint64_t> count_{0};
};

struct ConsumerCounts {
    uint64_t messages = 0, bytes = 0, skipped = 0, refused = 0, abandoned = 0, parts = 0;
    uint64_t squared_units = 0;  // summed over messages; divided by all units: the mean size of a byte's message
    uint64_t longest = 0;
    uint64_t space_wakes = 0, pinned_bytes = 0, unfinished = 0, evictions = 0, restarts = 0;
    Tally parks, spins;
};

struct ConsumerLimits {
    uint32_t window = 256;         // records looked at beyond the first unfinished one
    int64_t spin_ns = 10'000;      // spin this long while messages come faster than this
    uint64_t message_max = 1 << 28;  // bytes of a message that comes in parts
    int64_t pin_ns = 1'000'000;      // how long held records may keep producers waiting before they move out of the ring
    uint32_t restart_bytes = 64 << 10;  // a sleeper this far or farther into an empty ring goes back to its start
};

// The inbox's reader. poll, wait, arm and disarm belong to one thread; release to any, and it may restart the ring.
class Consumer : public std::enable_shared_from_this<Consumer> {
   public:
    explicit Consumer(std::shared_ptr<Segment> segment, const ConsumerLimits& limits = {});
    Consumer(const Consumer&) = delete;
    Consumer& operator=(const Consumer&) = delete;
    ~Consumer();

    bool poll(Record& record);
    void release(const Record& record) noexcept;
    // One slice of waiting; returns early when something may have come.
    void wait(const Deadline& deadline);
    bool arm();
    void disarm();

    // Producers whose process has died, or closed without a last record, and whose records are all read; each is told
    // once.
    std::vector<uint32_t> departed();
    void revoke(uint32_t identity);
    void wake_for_space(uint32_t identity, int wake);
    // Skips unfinished records of dead producers, so that poll finds the records behind them.
    void skip_dead();
    bool has_unfinished() const { return !pending_.empty(); }  // for the reading thread
    void close();
    ConsumerCounts counts() const;
    const Segment& segment() const { return *segment_; }

   private:
    enum class Taken : uint8_t { blank, unfinished, delivered, released };
    struct Place {  // the consumer's own note on a ticket between left_ and read_
        Taken taken = Taken::blank;
        uint32_t units = 0;
    };
    struct Pending {
        uint32_t ticket, position, units, producer;
        uint64_t sequence;
    };
    struct Assembly {
        std::unique_ptr<std::byte[]> bytes;
        uint64_t whole = 0, filled = 0, sequence = 0;
    };
    struct Known {  // one registered producer
        bool met = false, revoked = false, ended = false, dying = false;
        uint32_t generation = 0, identity = 0, last_ticket = 0, pending = 0;
        uint64_t expected = 0;  // sequence of its next record
        std::unique_ptr<Witness> witness;
        Assembly assembly;
    };

    bool look_left(Record& record);
    bool look_right(Record& record);
    bool may_look_right() const;
    bool ready() const;
    bool absorb(const Word& word, Record& record);
    bool deliver(const Pending& at, Record& record);
    bool assemble(const Head& head, const Pending& at, Known& known, Record& record);
    void check_head(const Head& head, const Pending& at);
    void meet(Known& known, uint32_t number);
    bool is_alive(uint32_t number);
    void step_over(uint32_t ticket);
    void advance();
    bool holds_up() const;
    bool relieve();
    bool evict();
    void keep_cursor_ahead(uint32_t left);
    void wake_producers(int at_most = INT32_MAX);
    void note_gap(int64_t gap_ns);
    bool is_far_from_start() const;
    bool go_to_start();
    bool all_read_of(uint32_t number) const;
    [[noreturn]] void fail(const std::string& what);

    std::shared_ptr<Segment> segment_;
    ConsumerLimits limits_;
    uint32_t forks_;
    mutable std::mutex mutex_;  // between the reading thread and those that release
    std::vector<Place> places_;
    std::atomic<uint32_t> left_{0};          // the oldest record that is not released; set under the mutex
    uint32_t left_position_ = 0;
    std::atomic<uint32_t> read_{0};          // the first that was never looked at; set under the mutex, and left_ may
    uint32_t read_position_ = 0;             // then follow: a thread without the mutex must load left_ first
    uint32_t freed_units_ = 0, freed_slots_ = 0;  // since producers were last woken
    uint32_t cursor_seen_ = 0;
    std::vector<Pending> pending_;
    std::vector<Known> known_;
    uint32_t restart_units_;
    std::vector<std::pair<uint32_t, int>> space_wakes_;  // identity, eventfd
    std::shared_ptr<View> view_;
    uint32_t stuck_left_ = 0;  // where the window's left edge was when producers were first seen waiting
    int64_t stuck_since_ns_ = 0;
    int64_t evict_after_ns_ = 0;  // there was no memory to move held records to; try again at this time
    int64_t gap_ns_;
    int64_t slice_ns_ = 0;
    std::string broken_;
    ConsumerCounts counts_;
};

}  // namespace penstock::ring
