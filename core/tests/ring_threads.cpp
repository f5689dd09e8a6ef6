// Producers, consumer and releases on threads of one process and one mapping, so that the thread sanitiser sees both
// sides of every race.
#include <chrono>
#include <deque>
#include <thread>

#include "ring_kit.hpp"

namespace penstock::ring {

namespace {

constexpr uint32_t LONGEST = 2000;
constexpr uint32_t PRODUCERS = 4;

void produce_until(const std::shared_ptr<Segment>& segment, uint32_t identity, const std::atomic<bool>& enough,
                   std::atomic<uint64_t>& sent) {
    Producer producer(segment, identity, identity % 2 == 0);
    while (!enough.load()) {
        const uint64_t i = sent.load(std::memory_order_relaxed);
        const uint32_t length = length_of(identity, i, LONGEST);
        Span span;
        if (!producer.reserve(span, identity, length, Deadline::in_seconds(0.05))) continue;
        if (i % 97 == 5) {  // abandon a record, then send the same number again
            producer.abandon(span);
            while (!producer.reserve(span, identity, length, Deadline::in_seconds(0.05)))
                if (enough.load()) return;
        }
        fill_message(span.data, length, identity, i);
        producer.publish(span);
        sent.store(i + 1, std::memory_order_relaxed);
    }
}

// Records on their way from the reading thread to the releasing one.
class Handover {
   public:
    void put(Record&& record) {
        const std::lock_guard lock(mutex_);
        records_.push_back(std::move(record));
    }
    bool take(Record& record) {
        const std::lock_guard lock(mutex_);
        if (records_.empty()) return false;
        record = std::move(records_.front());
        records_.pop_front();
        return true;
    }

   private:
    std::mutex mutex_;
    std::deque<Record> records_;
};

void read_until(Consumer& consumer, Checker& checker, Handover& handover, uint64_t seed, const std::atomic<bool>& done) {
    std::mt19937_64 random(seed);
    Record record;
    while (true) {
        if (!consumer.poll(record)) {
            if (done.load()) return;
            if (random() % 2 == 0) {
                consumer.wait(Deadline::in_seconds(0.01));
            } else if (consumer.arm()) {  // as a resting worker: records are released meanwhile, and the ring restarts
                std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
                consumer.disarm();
            }
            continue;
        }
        checker.take(record);
        if (random() % 2 == 0)
            consumer.release(record);
        else
            handover.put(std::move(record));
    }
}

}  // namespace

void run_threads(int seconds, uint64_t seed) {
    const auto segment = Segment::create({32 << 10, 32, 8, 1});
    ConsumerLimits limits;
    limits.restart_bytes = UNIT;  // as often as may be
    Consumer consumer(segment, limits);
    Checker checker(LONGEST);
    Handover handover;
    std::atomic<bool> enough{false}, all_sent{false}, all_read{false};
    std::atomic<uint64_t> sent[PRODUCERS]{};
    std::vector<std::thread> producers;
    for (uint32_t i = 0; i < PRODUCERS; i++)
        producers.emplace_back([&, i] { produce_until(segment, i, enough, sent[i]); });
    std::thread releaser([&] {
        Record record;
        while (true) {
            const bool is_last_look = all_read.load();  // before looking: what was read then has been handed over
            if (handover.take(record))
                consumer.release(record);
            else if (is_last_look)
                return;
        }
    });
    std::thread watcher([&] {  // counters may be asked for by any thread, while the reader parks and spins
        for (uint64_t seen = 0; !all_read.load(); std::this_thread::yield()) {
            const ConsumerCounts counts = consumer.counts();
            expect(counts.messages + counts.parks + counts.spins >= seen, "counters run backwards");
            seen = counts.messages + counts.parks + counts.spins;
        }
    });
    std::thread reader([&] { read_until(consumer, checker, handover, seed, all_sent); });
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    enough = true;
    for (auto& thread : producers) thread.join();
    all_sent = true;
    reader.join();
    all_read = true;
    releaser.join();
    watcher.join();
    uint64_t total = 0;
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        expect(checker.taken_from(i) == sent[i], "thread " + std::to_string(i) + " lost messages");
        total += sent[i];
    }
    expect(consumer.counts().pinned_bytes == 0, "records stay pinned");
    expect(consumer.counts().restarts > 0, "the ring never restarted");
    std::printf("%llu messages of %u threads, %llu restarts, none lost or torn\n", static_cast<unsigned long long>(total),
                PRODUCERS, static_cast<unsigned long long>(consumer.counts().restarts));
}

}  // namespace penstock::ring
