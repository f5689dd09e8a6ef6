// The writing end: reserve, publish, wait for space.
#include <unistd.h>

#include <algorithm>

#include "kernels/columns/hash.hpp"
#include "ring/ring.hpp"
#include "ring/ring_kill_points.hpp"

namespace penstock::ring {

namespace {

constexpr int ATTEMPTS_MAX = 10'000;  // each failed attempt means that another producer succeeded
constexpr int64_t SLICE_FIRST_NS = 1'000'000;
constexpr int64_t SLICE_LAST_NS = 20'000'000;

uint32_t units_of(uint32_t length) { return (length + UNIT - 1) / UNIT; }

}  // namespace

uint64_t seal_of(const Head& head, uint32_t ticket, uint64_t epoch) {
    uint64_t state = fold(epoch ^ K0, uint64_t{ticket} ^ K1);
    state = fold(state ^ (uint64_t{head.target} << 32 | head.length), K2);
    state = fold(state ^ head.sequence, K1);
    state = fold(state ^ head.whole, K3);
    state = fold(state ^ (uint64_t{head.generation} << 32 | head.flags), K2);
    return fold(state ^ head.checksum, K0);
}

uint64_t checksum_of(const std::byte* data, uint64_t length) {
    return hash_bytes({reinterpret_cast<const char*>(data), length});
}

Producer::Producer(std::shared_ptr<Segment> segment, uint32_t identity, bool checksum)
    : segment_(std::move(segment)), identity_(identity), checksum_(checksum), forks_(fork_generation()) {
    check_usable();
    enter();
}

Producer::~Producer() { close(); }

void Producer::enter() {
    const auto process = static_cast<uint32_t>(getpid());
    for (uint32_t i = 0; i < segment_->producers(); i++) {
        Entry& entry = segment_->entry(i);
        uint64_t found = entry.holder.load(std::memory_order_acquire);
        const Holder before = Holder::unpack(found);
        if (before.standing != Standing::blank) continue;
        // The claim carries the process number, so a claimant that dies here can be found dead and cleared away.
        const Holder claim{Standing::claimed, before.generation, process};
        if (!entry.holder.compare_exchange_strong(found, claim.pack(), std::memory_order_acq_rel)) continue;
        RING_POINT("claimed");
        entry.identity.store(identity_, std::memory_order_relaxed);
        entry.wants_space.store(0, std::memory_order_relaxed);
        entry.started.store(process_started(process), std::memory_order_relaxed);
        number_ = i;
        holder_ = Holder{Standing::live, before.generation, process}.pack();
        entry.holder.store(holder_, std::memory_order_seq_cst);
        RING_POINT("registered");
        return;
    }
    throw Refused("the inbox has its " + std::to_string(segment_->producers()) +
                  " producers already; make it with room for more");
}

void Producer::check_usable() const {
    if (fork_generation() != forks_) throw Refused("a ring's producer does not survive a fork; make a new one in the child");
    if (closing_) throw Refused("the producer is closed");
    if (segment_->header().closed.load(std::memory_order_relaxed) != 0) throw Gone("the consumer has closed its inbox");
    if (holder_ != 0 && segment_->entry(number_).holder.load(std::memory_order_relaxed) != holder_)
        throw Refused("producer " + std::to_string(identity_) + " was replaced; this process must end");
}

bool Producer::try_reserve(Span& span, uint32_t target, uint32_t length, uint32_t flags, uint64_t whole) {
    check_usable();
    if (length > segment_->part_bytes_max())
        throw Refused("a record of " + std::to_string(length) + " bytes is asked for; this ring takes " +
                      std::to_string(segment_->part_bytes_max()) + " at once: send it in parts");
    RING_POINT("reserve_begun");
    if (!take(span, units_of(length))) {
        blocked(true);
        return false;
    }
    if (blocked_since_ns_ != 0) blocked(false);
    span.length = length;
    span.target = target;
    span.flags = flags;
    span.whole = whole;
    span.sequence = sequence_++;
    under_way_++;
    return true;
}

Producer::Room Producer::room_at(const Cursor& at, uint32_t units) {
    // Read the shared word each time: a kept copy could be a whole turn of the 32 bits old.
    const uint32_t capacity = segment_->capacity_units();
    // Sequentially consistent: the look that follows notify_space must see everything freed before it.
    released_seen_ = segment_->header().released.load(std::memory_order_seq_cst);
    const uint32_t released = Cursor::unpack(released_seen_).position;
    if (at.position + units - released <= capacity) return Room::yes;
    if (segment_->header().cursor.load(std::memory_order_acquire) != at.pack()) return Room::look_again;
    if (at.position - released > capacity)
        throw Fault("the ring's positions contradict each other: written " + std::to_string(at.position) + ", released " +
                    std::to_string(released) + ", capacity " + std::to_string(capacity));
    return Room::no;
}

bool Producer::take(Span& span, uint32_t units) {
    Header& header = segment_->header();
    const uint32_t capacity = segment_->capacity_units();
    for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++, counts_.retries++) {
        const Cursor at = Cursor::unpack(header.cursor.load(std::memory_order_acquire));
        const uint32_t rest = capacity - (at.position & (capacity - 1));
        const bool wraps = units > rest;
        const uint32_t wanted = wraps ? rest : units;
        const Room room = room_at(at, wanted);
        if (room == Room::no) return false;
        if (room == Room::look_again) continue;
        std::atomic<uint64_t>& word = segment_->slot(at.ticket).word;
        uint64_t found = Word::blank(at.ticket);
        const Word mine{wraps ? Status::flush : Status::is_writing, number_, wanted, at.ticket};
        if (word.compare_exchange_strong(found, mine.pack(), std::memory_order_acq_rel, std::memory_order_acquire)) {
            RING_POINT(wraps ? "flush_marked" : "reserved");
            move_on(at, wanted);
            if (wraps) continue;
            RING_POINT("advanced");
            span.data = segment_->payload(at.position);
            span.ticket = at.ticket;
            span.units = units;
            return true;
        }
        const Word other = Word::unpack(found);
        if (other.ticket == at.ticket) {  // another producer was quicker, and may have died before moving the cursor
            if (other.units > capacity) throw Fault("a head claims " + std::to_string(other.units) + " units");
            move_on(at, other.units);
        } else if (header.cursor.load(std::memory_order_acquire) == at.pack()) {
            if (other.ticket + segment_->slots() == at.ticket) return false;  // every slot is in use
            throw Fault("a head has ticket " + std::to_string(other.ticket) + " where " + std::to_string(at.ticket) +
                        " was due");
        }
    }
    return false;
}

void Producer::move_on(const Cursor& from, uint32_t units) {
    uint64_t expected = from.pack();
    segment_->header().cursor.compare_exchange_strong(expected, Cursor{from.ticket + 1, from.position + units}.pack(),
                                                      std::memory_order_acq_rel, std::memory_order_relaxed);
}

void Producer::publish(const Span& span) {
    if (fork_generation() != forks_) throw Refused("a span belongs to the process that reserved it, not to its child");
    Slot& slot = segment_->slot(span.ticket);
    Head head{span.target, span.length, span.sequence, span.whole, Holder::unpack(holder_).generation, span.flags, 0, 0};
    if (checksum_) {
        head.flags |= CHECKED;
        head.checksum = checksum_of(span.data, span.length);
    }
    head.seal = seal_of(head, span.ticket, segment_->epoch());
    RING_POINT("filled");
    slot.head = head;
    RING_POINT("described");
    slot.word.store(Word{Status::is_ready, number_, span.units, span.ticket}.pack(), std::memory_order_seq_cst);
    RING_POINT("published");
    under_way_--;
    counts_.messages++;
    counts_.bytes += span.length;
    wake_consumer();
    RING_POINT("woken");
}

void Producer::abandon(const Span& span) {
    if (fork_generation() != forks_) return;  // the parent is writing it
    segment_->slot(span.ticket)
        .word.store(Word{Status::other, number_, span.units, span.ticket}.pack(), std::memory_order_seq_cst);
    under_way_--;
    wake_consumer();
}

void Producer::wake_consumer() {
    // Publishing and this load are sequentially consistent, and so are the store of the consumer's flag and its last
    // look. So either this load sees the flag, or the consumer sees the record.
    Header& header = segment_->header();
    uint32_t parked = header.parked.load(std::memory_order_seq_cst);
    if (parked == AWAKE || !header.parked.compare_exchange_strong(parked, AWAKE, std::memory_order_acq_rel)) return;
    counts_.wakes++;
    if (parked == ON_FUTEX)
        futex_wake(header.parked, 1);
    else
        eventfd_signal(segment_->wake());
}

void Producer::wait_for_space(const Deadline& deadline) {
    Header& header = segment_->header();
    const uint32_t turn = header.space_turn.load(std::memory_order_seq_cst);
    header.space_wanted.store(1, std::memory_order_seq_cst);
    if (header.released.load(std::memory_order_seq_cst) != released_seen_) return;
    wake_consumer();  // it may sleep although held records keep us waiting
    counts_.waits++;
    slice_ns_ = std::clamp(slice_ns_ * 2, SLICE_FIRST_NS, SLICE_LAST_NS);
    futex_wait(header.space_turn, turn, deadline.slice_ns(slice_ns_));
    if (header.released.load(std::memory_order_relaxed) == released_seen_) check_consumer();
}

bool Producer::reserve(Span& span, uint32_t target, uint32_t length, const Deadline& deadline) {
    while (!try_reserve(span, target, length)) {
        if (deadline.passed()) return false;
        wait_for_space(deadline);
    }
    return true;
}

void Producer::blocked(bool is_blocked) {
    if (is_blocked) {
        if (blocked_since_ns_ == 0) blocked_since_ns_ = now_ns();
        return;
    }
    counts_.blocked_ns += static_cast<uint64_t>(now_ns() - blocked_since_ns_);
    blocked_since_ns_ = 0;
    slice_ns_ = 0;
}

void Producer::check_consumer() {
    const Header& header = segment_->header();
    if (header.closed.load(std::memory_order_acquire) != 0) throw Gone("the consumer has closed its inbox");
    const uint32_t process = header.consumer.load(std::memory_order_acquire);
    if (process == 0) return;  // not there yet
    if (consumer_.process() != process)
        consumer_ = Witness(process, header.consumer_started.load(std::memory_order_relaxed));
    if (!consumer_.alive()) throw Gone("the consumer, process " + std::to_string(process) + ", has died");
}

void Producer::notify_space() {
    segment_->entry(number_).wants_space.store(1, std::memory_order_seq_cst);
    segment_->header().space_wanted.store(1, std::memory_order_seq_cst);
    wake_consumer();
}

void Producer::close() {
    closing_ = true;
    if (holder_ == 0 || under_way_ != 0 || fork_generation() != forks_) return;
    Holder ended = Holder::unpack(holder_);
    ended.standing = Standing::ended;
    uint64_t expected = holder_;
    segment_->entry(number_).holder.compare_exchange_strong(expected, ended.pack(), std::memory_order_acq_rel);
    holder_ = 0;
}

ProducerCounts Producer::counts() const {
    ProducerCounts counts = counts_;
    if (blocked_since_ns_ != 0) counts.blocked_ns += static_cast<uint64_t>(now_ns() - blocked_since_ns_);
    return counts;
}

}  // namespace penstock::ring
