// Mutated segments: whatever the shared memory holds, each end goes on or raises a typed error, and touches nothing
// else.
#include <sys/mman.h>
#include <unistd.h>

#include "ring_kit.hpp"

namespace penstock::ring {

namespace {

struct Outcome {
    uint64_t faults = 0, refusals = 0, others = 0, calm = 0;
};

// A few bytes anywhere in header, table and heads, or one field with a telling value.
void mutate(std::byte* base, uint64_t heads_end, std::mt19937_64& random) {
    static constexpr uint64_t TELLING[] = {0, 1, 63, 64, 65, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, UINT64_MAX, 1ull << 60,
                                           2ull << 60, 3ull << 60, 15ull << 60};
    const uint64_t ranges[3][2] = {{0, sizeof(Header)}, {ENTRIES_AT, ENTRIES_AT + 4 * sizeof(Entry)}, {SLOTS_AT, heads_end}};
    const uint64_t changes = 1 + random() % 6;
    for (uint64_t i = 0; i < changes; i++) {
        const auto& range = ranges[random() % 3];
        const uint64_t at = range[0] + random() % (range[1] - range[0]);
        if (random() % 2 == 0) {
            base[at] = static_cast<std::byte>(random());
        } else {
            const uint64_t value = TELLING[random() % std::size(TELLING)] ^ (random() % 4 == 0 ? random() % 64 : 0);
            std::memcpy(base + (at & ~uint64_t{7}), &value, 8);
        }
    }
}

void read_some(Consumer& consumer) {
    Record record;
    uint64_t sum = 0;
    for (int i = 0; i < 40 && consumer.poll(record); i++) {
        for (uint64_t b = 0; b < record.length; b++) sum += static_cast<uint64_t>(record.data[b]);
        if (i % 3 != 0) consumer.release(record);
    }
    consumer.skip_dead();
    consumer.departed();
    [[maybe_unused]] volatile uint64_t used = sum;
}

void write_some(const std::shared_ptr<Segment>& segment, std::mt19937_64& random, uint32_t identity) {
    Producer producer(segment, identity);
    for (int i = 0; i < 12; i++) {
        Span span;
        const auto length = static_cast<uint32_t>(16 + random() % 900);
        if (!producer.try_reserve(span, 1, length)) return;
        fill_message(span.data, length, identity, static_cast<uint64_t>(i));
        if (random() % 5 != 0) producer.publish(span);  // others stay unfinished for a while
    }
}

void one_round(std::mt19937_64& random, Outcome& outcome) {
    const auto made = Segment::create({8 << 10, 16, 4, 3});
    Consumer consumer(made);
    const auto attempt = [&outcome](const auto& act) {
        try {
            act();
            outcome.calm++;
        } catch (const Fault&) {
            outcome.faults++;
        } catch (const Refused&) {
            outcome.refusals++;
        } catch (const Gone&) {
            outcome.others++;
        } catch (const NoMemory&) {
            outcome.others++;
        }
    };
    attempt([&] { write_some(made, random, 1); });
    if (random() % 2 == 0) attempt([&] { read_some(consumer); });
    mutate(reinterpret_cast<std::byte*>(&made->header()), SLOTS_AT + made->slots() * sizeof(Slot), random);
    attempt([&] { write_some(Segment::attach(made->memory(), made->wake(), 3), random, 2); });
    attempt([&] { read_some(consumer); });
    attempt([&] { write_some(made, random, 3); });
    attempt([&] { read_some(consumer); });
}

}  // namespace

void run_fuzz(uint64_t rounds, uint64_t seed) {
    std::mt19937_64 random(seed);
    Outcome outcome;
    for (uint64_t i = 0; i < rounds; i++) {
        alarm(30);  // a round that hangs ends here
        one_round(random, outcome);
    }
    alarm(0);
    std::printf("%llu mutated segments: %llu faults, %llu refusals, %llu others, %llu calm\n",
                static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(outcome.faults),
                static_cast<unsigned long long>(outcome.refusals), static_cast<unsigned long long>(outcome.others),
                static_cast<unsigned long long>(outcome.calm));
}

}  // namespace penstock::ring
