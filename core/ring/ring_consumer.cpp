// The reading end: the window, delivery in order, release.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "ring/ring.hpp"
#include "ring/ring_kill_points.hpp"

namespace penstock::ring {

namespace {

constexpr int WAKE_AT_ONCE = 2;  // producers that wait for space, when a quarter of it has come free
constexpr int64_t EVICT_AGAIN_NS = 20'000'000;  // after there was no memory for it

}  // namespace

Consumer::Consumer(std::shared_ptr<Segment> segment, const ConsumerLimits& limits)
    : segment_(std::move(segment)),
      limits_(limits),
      forks_(fork_generation()),
      places_(segment_->slots()),
      known_(segment_->producers()),
      restart_units_(std::clamp<uint32_t>(limits.restart_bytes / UNIT, 1, std::max(segment_->capacity_units() / 4, 1u))),
      view_(std::make_shared<View>(*segment_)),
      gap_ns_(16 * limits.spin_ns) {
    limits_.window = std::clamp<uint32_t>(limits_.window, 1, segment_->slots());
    Header& header = segment_->header();
    const auto process = static_cast<uint32_t>(getpid());
    uint32_t owner = 0;  // expected: none; holds the present one where the exchange fails
    if (!header.consumer.compare_exchange_strong(owner, process, std::memory_order_acq_rel))
        throw Refused("the ring has a consumer already, process " + std::to_string(owner) +
                      "; a new consumer makes a new ring of the next epoch");
    // Store the start time only after winning the slot; a refused consumer must not overwrite the owner's. Until it is
    // stored, 0 stands for any start time.
    header.consumer_started.store(process_started(process), std::memory_order_relaxed);
}

Consumer::~Consumer() { close(); }

void Consumer::fail(const std::string& what) {
    broken_ = what;
    throw Fault(what);
}

// -- reading --------------------------------------------------------------------------------------------------------

bool Consumer::poll(Record& record) {
    if (forks_ != fork_generation()) throw Refused("a ring's consumer does not survive a fork");
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) throw Fault(broken_);
    return (!pending_.empty() && look_left(record)) || look_right(record);
}

bool Consumer::look_left(Record& record) {
    std::bitset<PRODUCERS_MAX + 1> held;  // producers with an unfinished record before the one looked at
    for (size_t i = 0; i < pending_.size(); i++) {
        const Pending at = pending_[i];
        if (held[at.producer]) continue;
        const Word word = Word::unpack(segment_->slot(at.ticket).word.load(std::memory_order_acquire));
        if (word.ticket != at.ticket || word.producer != at.producer || word.units != at.units)
            fail("the head of record " + std::to_string(at.ticket) + " changed while it was written");
        if (word.status == Status::is_writing) {
            held[at.producer] = true;
            continue;
        }
        pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i--));
        known_[at.producer].pending--;
        if (word.status == Status::other) {
            counts_.abandoned++;
            step_over(at.ticket);
        } else if (word.status != Status::is_ready) {
            fail("the head of record " + std::to_string(at.ticket) + " has an impossible status");
        } else if (deliver(at, record)) {
            return true;
        }
    }
    return false;
}

bool Consumer::may_look_right() const {
    const uint32_t left = left_.load(std::memory_order_acquire), read = read_.load(std::memory_order_relaxed);
    return read - left < segment_->slots() && (pending_.empty() || read - pending_.front().ticket < limits_.window);
}

bool Consumer::look_right(Record& record) {
    // Look at one lap at most; records that come in meanwhile are for the next call.
    for (uint32_t looked = 0; looked < segment_->slots() && may_look_right(); looked++) {
        const uint32_t read = read_.load(std::memory_order_relaxed);
        const uint64_t found = segment_->slot(read).word.load(std::memory_order_acquire);
        if (found == Word::blank(read)) return false;
        const Word word = Word::unpack(found);
        if (word.ticket != read || word.status == Status::has_read)
            fail("a head has ticket " + std::to_string(word.ticket) + " where " + std::to_string(read) + " was due");
        if (absorb(word, record)) return true;
    }
    return false;
}

bool Consumer::absorb(const Word& word, Record& record) {
    const uint32_t capacity = segment_->capacity_units();
    const uint32_t rest = capacity - (read_position_ & (capacity - 1)), read = read_.load(std::memory_order_relaxed);
    const bool is_flush = word.status == Status::flush;
    if (word.producer >= segment_->producers() || word.units > rest || (is_flush && word.units != rest) ||
        read_position_ + word.units - left_position_ > capacity || word.status > Status::other)
        fail("the head of record " + std::to_string(read) + " claims " + std::to_string(word.units) +
             " units of producer " + std::to_string(word.producer) + " in status " +
             std::to_string(static_cast<uint32_t>(word.status)));
    const Pending at{read, read_position_, word.units, word.producer, is_flush ? 0 : known_[word.producer].expected++};
    places_[read & (segment_->slots() - 1)] = {Taken::unfinished, word.units};
    read_.store(read + 1, std::memory_order_relaxed);
    read_position_ += word.units;
    if (is_flush || word.status == Status::other) {
        counts_.abandoned += is_flush ? 0 : 1;
        step_over(at.ticket);
        return false;
    }
    if (word.status == Status::is_writing || known_[word.producer].pending != 0) {
        pending_.push_back(at);
        known_[word.producer].pending++;
        return false;
    }
    return deliver(at, record);
}

void Consumer::meet(Known& known, uint32_t number) {
    const Entry& entry = segment_->entry(number);
    const Holder holder = Holder::unpack(entry.holder.load(std::memory_order_acquire));
    if (holder.standing == Standing::blank || holder.standing == Standing::claimed || holder.standing > Standing::revoked)
        fail("a record names producer " + std::to_string(number) + ", which is not registered");
    known.met = true;
    known.generation = holder.generation;
    known.identity = entry.identity.load(std::memory_order_relaxed);
}

void Consumer::check_head(const Head& head, const Pending& at) {
    const uint64_t length = head.length;
    if (head.seal != seal_of(head, at.ticket, segment_->epoch()))
        fail("the head of record " + std::to_string(at.ticket) + " is damaged or of another epoch");
    if ((length + UNIT - 1) / UNIT != at.units || (head.flags & ~FLAGS_ALL) != 0)
        fail("record " + std::to_string(at.ticket) + " claims " + std::to_string(length) + " bytes in " +
             std::to_string(at.units) + " units");
    if (head.sequence != at.sequence)
        fail("producer " + std::to_string(at.producer) + " is at record " + std::to_string(head.sequence) + " where " +
             std::to_string(at.sequence) + " was due");
}

bool Consumer::deliver(const Pending& at, Record& record) {
    const Head head = segment_->slot(at.ticket).head;  // check and use one copy: the shared one may change in between
    check_head(head, at);
    Known& known = known_[at.producer];
    if (!known.met) meet(known, at.producer);
    if (known.revoked || head.generation != known.generation) {
        counts_.refused++;
        step_over(at.ticket);
        return false;
    }
    const std::byte* data = view_->at(at.position);
    if ((head.flags & CHECKED) != 0 && checksum_of(data, head.length) != head.checksum)
        fail("the payload of record " + std::to_string(at.ticket) + " is damaged");
    record = Record{data, head.length, head.sequence, head.target, known.identity, head.flags, at.ticket, nullptr, view_};
    if ((head.flags & (END | MOVED)) != 0) known.ended = true;
    if ((head.flags & PART) != 0 && !assemble(head, at, known, record)) return false;
    if ((head.flags & PART) == 0) {
        places_[at.ticket & (segment_->slots() - 1)].taken = Taken::delivered;
        counts_.pinned_bytes += uint64_t{at.units} * UNIT;
    }
    counts_.messages++;
    counts_.bytes += record.length;
    const uint64_t units = (record.length + UNIT - 1) / UNIT;
    counts_.squared_units += units * units;
    counts_.longest = std::max(counts_.longest, record.length);
    RING_POINT("delivered");
    return true;
}

bool Consumer::assemble(const Head& head, const Pending& at, Known& known, Record& record) {
    Assembly& assembly = known.assembly;
    if ((head.flags & FIRST) != 0) {
        if (head.whole > limits_.message_max)
            fail("producer " + std::to_string(known.identity) + " sends a message of " + std::to_string(head.whole) +
                 " bytes; the limit is " + std::to_string(limits_.message_max));
        assembly = {std::make_unique_for_overwrite<std::byte[]>(head.whole), head.whole, 0, head.sequence};
    }
    if (assembly.bytes == nullptr || head.whole != assembly.whole || head.length > assembly.whole - assembly.filled ||
        ((head.flags & LAST) != 0) != (assembly.filled + head.length == assembly.whole))
        fail("a part from producer " + std::to_string(known.identity) + " does not fit the message it belongs to");
    std::memcpy(assembly.bytes.get() + assembly.filled, view_->at(at.position), head.length);
    assembly.filled += head.length;
    counts_.parts++;
    step_over(at.ticket);
    if ((head.flags & LAST) == 0) return false;
    record.data = assembly.bytes.get();
    record.length = assembly.whole;
    record.owned = std::move(assembly.bytes);
    record.view = nullptr;
    assembly = {};
    return true;
}

// -- releasing ------------------------------------------------------------------------------------------------------

void Consumer::release(const Record& record) noexcept try {
    if (record.view == nullptr || forks_ != fork_generation()) return;
    const std::lock_guard lock(mutex_);
    if (record.view != view_) return;  // it has moved out of the ring
    Place& place = places_[record.ticket & (segment_->slots() - 1)];
    if (record.ticket - left_ >= segment_->slots() || place.taken != Taken::delivered) return;
    counts_.pinned_bytes -= uint64_t{place.units} * UNIT;
    step_over(record.ticket);
    // The reader may have gone to sleep while it still held this record.
    if (segment_->header().parked.load(std::memory_order_relaxed) != AWAKE && is_far_from_start()) go_to_start();
} catch (const Fault&) {  // release must not throw; broken_ holds the fault, and the next poll throws it
}

void Consumer::step_over(uint32_t ticket) {
    places_[ticket & (segment_->slots() - 1)].taken = Taken::released;
    if (ticket == left_) advance();
}

void Consumer::advance() {
    const uint32_t mask = segment_->slots() - 1;
    const uint32_t read = read_.load(std::memory_order_relaxed);
    uint32_t left = left_.load(std::memory_order_relaxed);
    for (; left != read && places_[left & mask].taken == Taken::released; left++) {
        keep_cursor_ahead(left);
        const uint32_t units = places_[left & mask].units;
        places_[left & mask].taken = Taken::blank;
        left_position_ += units;
        freed_units_ += units;
        freed_slots_++;
        segment_->slot(left).word.store(Word::blank(left + mask + 1), std::memory_order_release);
        RING_POINT("slot_freed");
    }
    left_.store(left, std::memory_order_release);
    Header& header = segment_->header();
    header.released.store(Cursor{left, left_position_}.pack(), std::memory_order_seq_cst);
    RING_POINT("released");
    // Waking producers for each record would cost more than it brings. They are woken when a quarter of the ring has
    // come free or when the reader parks, and look for themselves every millisecond.
    if ((freed_units_ >= segment_->capacity_units() / 4 || freed_slots_ >= segment_->slots() / 4) &&
        header.space_wanted.load(std::memory_order_seq_cst) != 0)
        wake_producers(WAKE_AT_ONCE);
}

void Consumer::keep_cursor_ahead(uint32_t left) {
    // A producer that dies right after reserving leaves the cursor at its record. The cursor must not stay behind freed
    // records.
    if (static_cast<int32_t>(cursor_seen_ - left) > 0) return;
    std::atomic<uint64_t>& cursor = segment_->header().cursor;
    uint64_t found = Cursor{left, left_position_}.pack();
    const uint32_t units = places_[left & (segment_->slots() - 1)].units;
    const uint64_t next = Cursor{left + 1, left_position_ + units}.pack();
    cursor_seen_ = cursor.compare_exchange_strong(found, next, std::memory_order_acq_rel, std::memory_order_acquire)
                       ? left + 1
                       : Cursor::unpack(found).ticket;
    if (cursor_seen_ - left - 1 >= segment_->slots())
        fail("the ring's cursor is at ticket " + std::to_string(cursor_seen_) + ", its oldest record at " +
             std::to_string(left));
}

void Consumer::wake_producers(int at_most) {
    Header& header = segment_->header();
    if (header.space_wanted.exchange(0, std::memory_order_seq_cst) == 0) return;
    freed_units_ = freed_slots_ = 0;
    counts_.space_wakes++;
    header.space_turn.fetch_add(1, std::memory_order_seq_cst);
    // If all producers woke, they would race for a quarter that two of them fill. Those left asleep hear of the next
    // one.
    if (futex_wake(header.space_turn, at_most) >= at_most) header.space_wanted.store(1, std::memory_order_seq_cst);
    if (space_wakes_.empty()) return;
    for (uint32_t i = 0; i < segment_->producers(); i++) {
        Entry& entry = segment_->entry(i);
        if (entry.wants_space.load(std::memory_order_seq_cst) == 0) continue;
        entry.wants_space.store(0, std::memory_order_seq_cst);
        const uint32_t identity = entry.identity.load(std::memory_order_relaxed);
        for (const auto& [whose, wake] : space_wakes_)
            if (whose == identity) eventfd_signal(wake);
    }
}

bool Consumer::holds_up() const {
    const uint32_t left = left_.load(std::memory_order_relaxed);
    return left != read_.load(std::memory_order_relaxed) && places_[left & (segment_->slots() - 1)].taken == Taken::delivered &&
           segment_->header().space_wanted.load(std::memory_order_seq_cst) != 0 &&
           (evict_after_ns_ == 0 || now_ns() >= evict_after_ns_);
}

bool Consumer::relieve() {
    // True while producers wait for a held record that its holder may still release in time.
    const uint32_t left = left_.load(std::memory_order_relaxed);
    if (freed_slots_ != 0 && segment_->header().space_wanted.load(std::memory_order_seq_cst) != 0) wake_producers();
    if (!holds_up()) {
        stuck_since_ns_ = 0;
        return false;
    }
    const int64_t now = now_ns();
    if (stuck_since_ns_ == 0 || stuck_left_ != left) {
        stuck_left_ = left;
        stuck_since_ns_ = now;
    }
    if (now - stuck_since_ns_ < limits_.pin_ns) return true;
    stuck_since_ns_ = 0;
    // Without memory producers go on waiting, and the holder of the records may yet release them. The reader sleeps
    // meanwhile.
    evict_after_ns_ = evict() ? 0 : now_ns() + EVICT_AGAIN_NS;
    return false;
}

bool Consumer::evict() {
    std::shared_ptr<View> fresh;
    try {
        fresh = std::make_shared<View>(*segment_);
    } catch (const NoMemory&) {
        return false;
    }
    const uint32_t mask = segment_->slots() - 1, read = read_.load(std::memory_order_relaxed);
    std::vector<std::pair<uint32_t, uint32_t>> held;
    uint32_t position = left_position_;
    for (uint32_t ticket = left_.load(std::memory_order_relaxed); ticket != read; ticket++) {
        const Place& place = places_[ticket & mask];
        if (place.taken == Taken::delivered) held.emplace_back(position, place.units);
        position += place.units;
    }
    if (!view_->make_private(held, *segment_)) return false;
    view_ = std::move(fresh);
    for (uint32_t ticket = left_.load(std::memory_order_relaxed); ticket != read; ticket++)
        if (places_[ticket & mask].taken == Taken::delivered) places_[ticket & mask].taken = Taken::released;
    counts_.pinned_bytes = 0;
    counts_.evictions++;
    advance();
    wake_producers();
    return true;
}

// -- registered producers -------------------------------------------------------------------------------------------

bool Consumer::is_alive(uint32_t number) {
    Known& known = known_[number];
    if (known.witness == nullptr) {
        const Entry& entry = segment_->entry(number);
        const Holder holder = Holder::unpack(entry.holder.load(std::memory_order_acquire));
        const uint64_t started = holder.standing == Standing::claimed ? 0 : entry.started.load(std::memory_order_relaxed);
        known.witness = std::make_unique<Witness>(holder.process, started);
    }
    return known.witness->alive();
}

void Consumer::skip_dead() {
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) return;
    for (size_t i = 0; i < pending_.size(); i++) {
        const Pending at = pending_[i];
        if (is_alive(at.producer)) continue;
        // The producer was dead before this look, so a record that is unfinished now stays unfinished. Published ones
        // are delivered.
        const Word word = Word::unpack(segment_->slot(at.ticket).word.load(std::memory_order_acquire));
        if (word.status != Status::is_writing) continue;
        pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i--));
        known_[at.producer].pending--;
        counts_.skipped++;
        step_over(at.ticket);
    }
}

bool Consumer::all_read_of(uint32_t number) const {
    return known_[number].pending == 0 && static_cast<int32_t>(read_.load(std::memory_order_relaxed) - known_[number].last_ticket) >= 0;
}

std::vector<uint32_t> Consumer::departed() {
    if (!pending_.empty()) skip_dead();
    const std::lock_guard lock(mutex_);
    std::vector<uint32_t> gone;
    for (uint32_t i = 0; i < segment_->producers(); i++) {
        Entry& entry = segment_->entry(i);
        const Holder holder = Holder::unpack(entry.holder.load(std::memory_order_acquire));
        Known& known = known_[i];
        if (holder.standing == Standing::blank) continue;
        if (!known.dying) {
            if (holder.standing != Standing::ended && is_alive(i)) continue;
            // All its records lie before the cursor; the last may lie at the cursor, if it died before moving that on.
            uint32_t last = Cursor::unpack(segment_->header().cursor.load(std::memory_order_acquire)).ticket;
            const uint64_t word = segment_->slot(last).word.load(std::memory_order_acquire);
            if (Word::unpack(word).ticket == last && word != Word::blank(last)) last++;  // not one of the lap before
            if (last - left_ > segment_->slots()) last = read_.load(std::memory_order_relaxed);
            known.dying = true;
            known.last_ticket = last;
        }
        if (!all_read_of(i)) continue;
        if (!known.ended && holder.standing != Standing::claimed)
            gone.push_back(known.met ? known.identity : entry.identity.load(std::memory_order_relaxed));
        known = Known{};
        entry.holder.store(Holder{Standing::blank, holder.generation + 1, 0}.pack(), std::memory_order_release);
    }
    return gone;
}

void Consumer::revoke(uint32_t identity) {
    const std::lock_guard lock(mutex_);
    for (uint32_t i = 0; i < segment_->producers(); i++) {
        Entry& entry = segment_->entry(i);
        uint64_t found = entry.holder.load(std::memory_order_acquire);
        Holder holder = Holder::unpack(found);
        if (holder.standing != Standing::live || entry.identity.load(std::memory_order_relaxed) != identity) continue;
        holder.standing = Standing::revoked;
        entry.holder.compare_exchange_strong(found, holder.pack(), std::memory_order_acq_rel);
        known_[i].revoked = true;
    }
}

void Consumer::wake_for_space(uint32_t identity, int wake) {
    const std::lock_guard lock(mutex_);
    std::erase_if(space_wakes_, [identity](const auto& pair) { return pair.first == identity; });
    if (wake >= 0) space_wakes_.emplace_back(identity, wake);
}

void Consumer::close() {
    if (forks_ != fork_generation()) return;
    const std::lock_guard lock(mutex_);
    Header& header = segment_->header();
    if (header.closed.exchange(1, std::memory_order_seq_cst) != 0) return;
    header.space_turn.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(header.space_turn, INT32_MAX);
    for (const auto& [whose, wake] : space_wakes_) eventfd_signal(wake);
    space_wakes_.clear();  // held records may free space later, when these descriptors have another owner
}

ConsumerCounts Consumer::counts() const {
    const std::lock_guard lock(mutex_);
    ConsumerCounts counts = counts_;
    counts.unfinished = pending_.size();
    return counts;
}

}  // namespace penstock::ring
