// Making, sealing and checking memory files.
#include "ring/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "ring/ring_errors.hpp"

namespace penstock::ring {

namespace {

constexpr int SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

std::string reason() { return std::strerror(errno); }

Descriptor make_memory(uint64_t bytes) {
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    Descriptor memory(memfd_create("penstock-ring", flags | MFD_NOEXEC_SEAL));
    if (!memory && errno == EINVAL) memory = Descriptor(memfd_create("penstock-ring", flags));  // before Linux 6.3
    if (!memory) throw NoMemory("no memory file could be made for a ring: " + reason() + "; use sockets instead");
    if (fchmod(memory.number(), 0600) != 0) throw NoMemory("a ring's memory could not be made private: " + reason());
    // Allocating now turns a full machine into this error; ftruncate would succeed and a later write would kill us.
    if (const int error = posix_fallocate(memory.number(), 0, static_cast<off_t>(bytes)); error != 0)
        throw NoMemory("a ring needs " + std::to_string(bytes) + " bytes of shared memory: " + std::strerror(error) +
                       "; make the ring smaller or free memory");
    if (fcntl(memory.number(), F_ADD_SEALS, SEALS) != 0)
        throw NoMemory("a ring's memory could not be sealed: " + reason());
    return memory;
}

uint32_t checked_units(uint64_t capacity) {
    const uint64_t units = std::bit_ceil(std::max<uint64_t>((capacity + UNIT - 1) / UNIT, CAPACITY_UNITS_MIN));
    if (units > CAPACITY_UNITS_MAX)
        throw Refused("a ring of " + std::to_string(capacity) + " bytes is asked for; the limit is " +
                      std::to_string(uint64_t{CAPACITY_UNITS_MAX} * UNIT));
    return static_cast<uint32_t>(units);
}

uint32_t checked_slots(uint32_t slots, uint32_t units) {
    const uint32_t wanted = slots != 0 ? slots : std::clamp<uint32_t>(units / 32, 128, 8192);
    if (wanted > SLOTS_MAX)
        throw Refused("a ring of " + std::to_string(slots) + " slots is asked for; the limit is " +
                      std::to_string(SLOTS_MAX));
    return std::bit_ceil(std::max(wanted, SLOTS_MIN));
}

uint64_t process_namespace() {
    struct stat about {};
    return stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

bool power_between(uint32_t value, uint32_t least, uint32_t most) {
    return std::has_single_bit(value) && value >= least && value <= most;
}

}  // namespace

std::shared_ptr<Segment> Segment::create(const Shape& shape, int wake) {
    const uint32_t units = checked_units(shape.capacity);
    const uint32_t slots = checked_slots(shape.slots, units);
    if (shape.producers < 1 || shape.producers > PRODUCERS_MAX)
        throw Refused("a ring for " + std::to_string(shape.producers) + " producers is asked for; the limit is " +
                      std::to_string(PRODUCERS_MAX));
    const uint64_t bytes = segment_bytes(slots, units);
    Descriptor shared = wake < 0 ? make_eventfd() : Descriptor(fcntl(wake, F_DUPFD_CLOEXEC, 0));
    if (!shared) throw NoMemory("an eventfd could not be shared: " + reason());
    std::shared_ptr<Segment> made(new Segment(make_memory(bytes), std::move(shared)));
    made->map(bytes);
    made->adopt(units, slots, shape.producers, shape.epoch);
    Header& header = *new (made->base_) Header{};
    header.version = VERSION;
    header.layout = LAYOUT;
    header.bytes = bytes;
    header.epoch = shape.epoch;
    header.capacity_units = units;
    header.slots = slots;
    header.producers = shape.producers;
    header.process_namespace = process_namespace();
    for (uint32_t i = 0; i < slots; i++) made->slot(i).word.store(Word::blank(i), std::memory_order_relaxed);
    header.magic.store(MAGIC, std::memory_order_release);  // last: a half-made segment is refused
    return made;
}

std::shared_ptr<Segment> Segment::attach(int memory, int wake, std::optional<uint64_t> epoch) {
    struct stat about {};
    if (fstat(memory, &about) != 0) throw Refused("descriptor " + std::to_string(memory) + " is not open: " + reason());
    if (about.st_uid != geteuid()) throw Refused("a ring's memory belongs to another user");
    const int seals = fcntl(memory, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS) throw Refused("a ring's memory is not sealed and could shrink under us");
    if (static_cast<uint64_t>(about.st_size) < SLOTS_AT || about.st_size > 1 << 30)
        throw Fault("a ring of " + std::to_string(about.st_size) + " bytes cannot be");
    Descriptor kept(fcntl(memory, F_DUPFD_CLOEXEC, 0));
    Descriptor kept_wake(wake < 0 ? -1 : fcntl(wake, F_DUPFD_CLOEXEC, 0));
    if (!kept || (wake >= 0 && !kept_wake)) throw NoMemory("a descriptor could not be duplicated: " + reason());
    std::shared_ptr<Segment> made(new Segment(std::move(kept), std::move(kept_wake)));
    made->map(static_cast<uint64_t>(about.st_size));
    const Header& header = made->header();
    if (header.magic.load(std::memory_order_acquire) != MAGIC) throw Fault("the memory holds no ring, or one half made");
    const uint32_t version = header.version, layout = header.layout;
    if (version != VERSION || layout != LAYOUT)
        throw Refused("a ring of version " + std::to_string(version) + " is offered; this build has " +
                      std::to_string(VERSION) + ": run the same build everywhere");
    const uint32_t units = header.capacity_units, slots = header.slots, producers = header.producers;
    const uint64_t found = header.epoch, bytes = header.bytes;
    if (!power_between(units, CAPACITY_UNITS_MIN, CAPACITY_UNITS_MAX) || !power_between(slots, SLOTS_MIN, SLOTS_MAX) ||
        producers < 1 || producers > PRODUCERS_MAX || bytes != made->bytes_ || segment_bytes(slots, units) != bytes)
        throw Fault("a ring's header contradicts itself: " + std::to_string(bytes) + " bytes, " +
                    std::to_string(units) + " units, " + std::to_string(slots) + " slots");
    if (epoch && *epoch != found)
        throw Refused("a ring of epoch " + std::to_string(found) + " is offered; this process is of epoch " +
                      std::to_string(*epoch) + ": it was replaced");
    if (header.process_namespace != process_namespace())
        throw Refused("a ring's consumer is in another process namespace, where deaths cannot be seen; use sockets");
    made->adopt(units, slots, producers, found);
    return made;
}

void Segment::map(uint64_t bytes) {
    // Populated: the first lap would otherwise pay for a page fault every 4 KB.
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory_.number(), 0);
    if (at == MAP_FAILED) throw NoMemory("a ring of " + std::to_string(bytes) + " bytes could not be mapped: " + reason());
    base_ = static_cast<std::byte*>(at);
    bytes_ = bytes;
}

void Segment::adopt(uint32_t capacity_units, uint32_t slots, uint32_t producers, uint64_t epoch) {
    capacity_units_ = capacity_units;
    slots_ = slots;
    producers_ = producers;
    epoch_ = epoch;
    slots_at_ = reinterpret_cast<Slot*>(base_ + SLOTS_AT);
    payload_at_ = base_ + payload_at(slots);
}

#ifdef __SANITIZE_THREAD__  // the sanitiser knows addresses, not pages: both sides must use the same
View::View(const Segment& segment) : base_(segment.payload(0)), bytes_(0), units_(segment.capacity_units()) {}
View::~View() = default;
bool View::make_private(const std::vector<std::pair<uint32_t, uint32_t>>&, const Segment&) noexcept { return false; }
#else
namespace {

void* map_payload(const Segment& segment, void* where, int how) {
    const auto offset = static_cast<off_t>(payload_at(segment.slots()));
    return mmap(where, segment.capacity(), PROT_READ, MAP_SHARED | how, segment.memory(), offset);
}

// Makes the pages of a range now. False where there is no memory: a later write would then kill the process. Kernels
// before 5.14 cannot do this, and are trusted.
bool populate(std::byte* from, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(from) / page * page;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(from) + bytes + page - 1) / page * page;
    return madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
#else
    return from != nullptr || bytes == 0;
#endif
}

}  // namespace

View::View(const Segment& segment) : bytes_(segment.capacity()), units_(segment.capacity_units()) {
    void* at = map_payload(segment, nullptr, MAP_POPULATE);
    if (at == MAP_FAILED) throw NoMemory("a ring's payload could not be mapped again: " + reason());
    base_ = static_cast<std::byte*>(at);
}

View::~View() { munmap(base_, bytes_); }

bool View::make_private(const std::vector<std::pair<uint32_t, uint32_t>>& ranges, const Segment& segment) noexcept {
    void* copy = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return false;
    for (const auto& [position, units] : ranges) {
        const uint64_t offset = uint64_t{position & (units_ - 1)} * UNIT;
        std::byte* to = static_cast<std::byte*>(copy) + offset;
        if (!populate(to, uint64_t{units} * UNIT)) {
            munmap(copy, bytes_);
            return false;
        }
        std::memcpy(to, base_ + offset, uint64_t{units} * UNIT);
    }
    mprotect(copy, bytes_, PROT_READ);
    // One step for concurrent readers: before it they see the ring, after it the same bytes in private memory.
    if (mremap(copy, bytes_, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, base_) != MAP_FAILED) return true;
    munmap(copy, bytes_);
    // The kernel may remove the old mapping before it finds that it has no memory for the new one. Mapping the ring
    // there again then gives readers their bytes back, and changes nothing where the old mapping still exists.
    if (map_payload(segment, base_, MAP_FIXED) == MAP_FAILED) {
        std::fprintf(stderr, "penstock: the memory of batches that are held is lost (%s); ending\n", std::strerror(errno));
        std::abort();
    }
    return false;
}
#endif

Segment::~Segment() {
    if (base_ != nullptr) munmap(base_, bytes_);
}

}  // namespace penstock::ring
