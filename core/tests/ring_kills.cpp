// Kills either end of a ring: at a named point, or at random, and checks what the other end sees.
//
//     ring_faults points                      the names
//     ring_faults kill POINT REPEATS SEED     the process dies at the point; `occurrence` varies
//     ring_faults stop POINT REPEATS SEED     the process stops at the point; later it is killed, or replaced and woken
//     ring_faults random KILLS SEED           kill -9 of producers and of consumers after a random time
//     ring_faults threads SECONDS SEED        one process, for the thread sanitiser
//     ring_faults fuzz ROUNDS SEED            mutated segments, for the address sanitiser
//
// Published messages are counted in memory that both ends share, at the point of publication. Exactly the counted
// messages must arrive.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "ring_kit.hpp"
#include "ring/ring_kill_points.hpp"

namespace penstock::ring {

namespace {

constexpr uint32_t LONGEST = 3000;
constexpr Shape SMALL{16 << 10, 16, 8, 1};  // wraps and fills within a few records
const std::vector<std::string> PRODUCER_POINTS = {"claimed", "registered", "reserve_begun", "reserved",  "flush_marked",
                                                  "advanced", "copying",   "filled",        "described", "published",
                                                  "woken"};
const std::vector<std::string> CONSUMER_POINTS = {"delivered", "slot_freed", "released", "parked", "restarted"};

struct Ledger {
    std::atomic<uint64_t> published[4];
    std::atomic<uint64_t> delivered;
    std::atomic<uint64_t> dead_at_point;
    std::atomic<uint64_t> stalled;
};

Ledger* ledger = nullptr;
uint32_t my_identity = 0;
const char* die_at = nullptr;
uint64_t die_after = 0;
int die_of = SIGKILL;

pid_t forked(const std::function<void()>& life) {
    const pid_t child = fork();
    if (child != 0) return child;
    alarm(60);
    life();
    std::_Exit(0);
}

int status_of(pid_t child) {
    int status = 0;
    expect(waitpid(child, &status, 0) == child, "a child went missing");
    return status;
}

void wait_until_empty(Producer& producer) {
    const Header& header = producer.segment().header();
    for (uint64_t i = 1; header.released.load() != header.cursor.load(); i++) {
        pause_core();
        if (i % 1024 == 0) producer.check_consumer();
    }
}

// Sends until `count` is reached or the consumer has gone; true in the first case. With `one_by_one` the ring is empty
// before each message, so that the consumer sleeps again and again.
bool produce(const std::shared_ptr<Segment>& segment, uint32_t identity, uint64_t count, bool one_by_one = false) {
    my_identity = identity;
    try {
        Producer producer(segment, identity);
        for (uint64_t i = 0; i < count; i++) {
            const uint32_t length = length_of(identity, i, LONGEST);
            Span span;
            if (one_by_one) wait_until_empty(producer);
            if (!producer.reserve(span, 1, length, Deadline::in_seconds(30))) wrong("no space for 30 s");
            fill_message(span.data, length / 2 + 16, identity, i);  // half, then the point, then all of it
            ring_reached("copying");
            fill_message(span.data, length, identity, i);
            producer.publish(span);
        }
        return true;
    } catch (const Gone&) {
        return false;
    }
}

void consume_until(Consumer& consumer, Checker& checker, const std::function<bool()>& enough) {
    Record record;
    std::vector<Record> kept;  // released late and out of order, as batches are
    const auto let_go = [&](size_t keep) {
        while (kept.size() > keep) {
            const size_t which = kept.size() > 1 ? kept.back().ticket % kept.size() : 0;
            consumer.release(kept[which]);
            kept.erase(kept.begin() + static_cast<ptrdiff_t>(which));
        }
    };
    const int64_t began = now_ns();
    while (true) {
        if (consumer.poll(record)) {
            checker.take(record);
            kept.push_back(std::move(record));
            let_go(3);
            continue;
        }
        let_go(0);
        if (enough()) return;
        expect(now_ns() - began < 30'000'000'000, "the consumer waited 30 s in vain");
        consumer.wait(Deadline::in_seconds(0.002));
    }
}

void kill_producer(const std::string& point, uint64_t occurrence) {
    const auto segment = Segment::create(SMALL);
    Consumer consumer(segment);
    Checker checker(LONGEST);
    const pid_t victim = forked([&] {
        die_at = point.c_str();
        die_after = occurrence;
        produce(segment, 1, 4'000);  // the other producer may take most of the first wraps, and this one dies at its own
    });
    const pid_t healthy = forked([&] { expect(produce(segment, 2, 100), "the consumer lives"); });
    std::vector<uint32_t> gone;
    consume_until(consumer, checker, [&] {
        for (const uint32_t who : consumer.departed()) gone.push_back(who);
        return gone.size() >= (point == "claimed" ? 1 : 2) && checker.taken_from(2) == 100;
    });
    const int status = status_of(victim);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the victim did not die at " + point);
    expect(status_of(healthy) == 0, "the healthy producer failed");
    expect(checker.taken_from(1) == ledger->published[1], "lost at " + point + ": published " +
                                                              std::to_string(ledger->published[1]) + ", taken " +
                                                              std::to_string(checker.taken_from(1)));
    expect(consumer.counts().skipped <= 1 && consumer.counts().unfinished == 0, "unfinished records stay");
    // The dead producer's place is free again, and the ring goes on.
    const uint64_t before = checker.taken_from(3);
    const pid_t later = forked([&] { expect(produce(segment, 3, 50), "the consumer lives"); });
    consume_until(consumer, checker, [&] { return checker.taken_from(3) == before + 50; });
    expect(status_of(later) == 0, "the later producer failed");
}

bool has_stopped(pid_t child) {
    int status = 0;
    return waitpid(child, &status, WUNTRACED | WNOHANG) == child && WIFSTOPPED(status);
}

// A producer stops at the point and the others run into it: the ring frees its space in order. When its worker is
// replaced, by death or by another owner of its number, all that the others sent arrives.
void stop_producer(const std::string& point, uint64_t occurrence, bool is_woken) {
    constexpr uint64_t many = 500;  // far more than the ring has places for
    constexpr int quiet_enough = 20;
    const auto segment = Segment::create(SMALL);
    Consumer consumer(segment);
    Checker checker(LONGEST);
    const pid_t victim = forked([&] {
        die_at = point.c_str();
        die_after = occurrence;
        die_of = SIGSTOP;
        try {
            produce(segment, 1, 4'000);
        } catch (const Refused&) {
            std::_Exit(3);
        }
    });
    bool stopped = false;
    consume_until(consumer, checker, [&] { return stopped = stopped || has_stopped(victim); });
    const pid_t healthy = forked([&] { expect(produce(segment, 2, many), "the consumer lives"); });
    int quiet = 0;
    uint64_t seen = 0;
    consume_until(consumer, checker, [&] {
        quiet = checker.taken_from(2) == seen && seen != 0 ? quiet + 1 : 0;
        seen = checker.taken_from(2);
        return seen == many || quiet == quiet_enough;
    });
    ledger->stalled += seen < many;
    if (is_woken) consumer.revoke(1);
    const uint64_t taken = checker.taken_from(1);
    kill(victim, is_woken ? SIGCONT : SIGKILL);
    const int status = status_of(victim);
    expect(is_woken ? WIFEXITED(status) && WEXITSTATUS(status) == 3 : WIFSIGNALED(status), "the victim lived on at " + point);
    consume_until(consumer, checker, [&] {
        consumer.departed();
        return checker.taken_from(2) == many && consumer.counts().unfinished == 0;
    });
    expect(status_of(healthy) == 0, "the healthy producer failed");
    expect(is_woken ? checker.taken_from(1) == taken : checker.taken_from(1) == ledger->published[1],
           "a record was lost, or one of a replaced producer was taken, at " + point);
}

void kill_consumer(const std::string& point, uint64_t occurrence) {
    const auto segment = Segment::create(SMALL);
    const pid_t victim = forked([&] {
        Consumer consumer(segment);
        Checker checker(LONGEST);
        die_at = point.c_str();
        die_after = occurrence;
        consume_until(consumer, checker, [] { return false; });
    });
    const uint64_t pause_after = point == "parked" ? 1 : UINT64_MAX;  // a consumer parks when nothing comes
    const auto life = [&](uint32_t identity) {
        if (produce(segment, identity, std::min<uint64_t>(pause_after, 1'000'000), point == "restarted") && pause_after != 1)
            wrong("a million messages went into the ring of a dead consumer");
    };
    const pid_t one = forked([&] { life(1); });
    const pid_t two = forked([&] { life(2); });
    const int status = status_of(victim);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the consumer did not die at " + point);
    expect(status_of(one) == 0 && status_of(two) == 0, "a producer did not notice");
}

void random_producer_kill(std::mt19937_64& random, Consumer& consumer, const std::shared_ptr<Segment>& segment,
                          uint32_t identity) {
    Checker checker(LONGEST);
    ledger->published[1] = 0;
    const pid_t victim = forked([&] {
        produce(segment, identity, UINT64_MAX);
    });
    // Half of them die a while after their first record: on a busy machine most would otherwise die before they write.
    const auto life_ns = static_cast<int64_t>(random() % 1'500'000);
    bool is_awaited = random() % 2 == 0;
    int64_t until = now_ns() + (is_awaited ? 10'000'000'000 : life_ns);
    Record record;
    while (now_ns() < until) {
        if (consumer.poll(record)) {
            if (std::exchange(is_awaited, false)) until = now_ns() + life_ns;
            checker.take(record);
            consumer.release(record);
        } else {
            consumer.wait(Deadline::in_seconds(0.0001));
        }
    }
    kill(victim, SIGKILL);
    status_of(victim);
    bool left = false;
    for (int tries = 0; !left; tries++) {
        while (consumer.poll(record)) {
            checker.take(record);
            consumer.release(record);
        }
        consumer.departed();
        left = consumer.counts().unfinished == 0 && !consumer.poll(record);
        if (!left && record.data != nullptr) {
            checker.take(record);
            consumer.release(record);
        }
        expect(tries < 1000, "unfinished records stay");
    }
    // The count follows the store by an instruction, so a kill may fall between the two.
    const uint64_t taken = checker.taken_from(identity);
    expect(taken == ledger->published[1] || taken == ledger->published[1] + 1,
           "lost: published " + std::to_string(ledger->published[1]) + ", taken " +
               std::to_string(taken));
}

void random_consumer_kill(std::mt19937_64& random) {
    const auto segment = Segment::create(SMALL);
    const pid_t victim = forked([&] {
        Consumer consumer(segment);
        Checker checker(LONGEST);
        consume_until(consumer, checker, [] { return false; });
    });
    Producer producer(segment, 1);
    while (segment->header().consumer.load() == 0) pause_core();  // one that was never there cannot be missed
    const int64_t until = now_ns() + static_cast<int64_t>(random() % 1'000'000);
    bool killed = false;
    try {
        for (uint64_t i = 0;; i++) {
            if (!killed && now_ns() >= until) {
                kill(victim, SIGKILL);
                killed = true;
            }
            const uint32_t length = length_of(1, i, LONGEST);
            Span span;
            if (!producer.reserve(span, 1, length, Deadline::in_seconds(killed ? 10 : 0.001))) {
                expect(!killed, "a dead consumer was not noticed for 10 s");
                i--;
                continue;
            }
            fill_message(span.data, length, 1, i);
            producer.publish(span);
        }
    } catch (const Gone&) {
    }
    if (!killed) kill(victim, SIGKILL);
    status_of(victim);
}

size_t open_descriptors() {
    const auto all = std::filesystem::directory_iterator("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
}

void run_random(uint64_t kills, uint64_t seed) {
    std::mt19937_64 random(seed);
    const size_t descriptors = open_descriptors();
    auto segment = Segment::create(SMALL);
    auto consumer = std::make_unique<Consumer>(segment);
    uint64_t consumers = 0;
    for (uint64_t i = 0; i < kills; i++) {
        if (random() % 4 == 0) {
            random_consumer_kill(random);
            consumers++;
        } else {
            random_producer_kill(random, *consumer, segment, 1);
        }
        alarm(60);
    }
    const ConsumerCounts counts = consumer->counts();
    consumer.reset();
    segment.reset();
    expect(open_descriptors() == descriptors, "descriptors stay open");
    expect(waitpid(-1, nullptr, 0) == -1, "processes stay");
    std::printf("%llu kills (%llu of consumers), %llu records taken, %llu unfinished ones stepped over, none lost or torn\n",
                static_cast<unsigned long long>(kills), static_cast<unsigned long long>(consumers),
                static_cast<unsigned long long>(counts.messages), static_cast<unsigned long long>(counts.skipped));
}

uint64_t any_occurrence(const std::string& point, std::mt19937_64& random) {
    if (point == "claimed" || point == "registered" || point == "parked") return 0;  // it comes once
    return random() % (point == "flush_marked" ? 8 : 30);
}

void run_kills(const std::string& point, uint64_t repeats, uint64_t seed) {
    std::mt19937_64 random(seed);
    const bool of_consumer = std::find(CONSUMER_POINTS.begin(), CONSUMER_POINTS.end(), point) != CONSUMER_POINTS.end();
    for (uint64_t i = 0; i < repeats; i++) {
        for (auto& count : ledger->published) count = 0;
        const uint64_t occurrence = any_occurrence(point, random);
        of_consumer ? kill_consumer(point, occurrence) : kill_producer(point, occurrence);
        alarm(60);
    }
    expect(ledger->dead_at_point == repeats, "only " + std::to_string(ledger->dead_at_point) + " died at the point");
    std::printf("%s: %llu deaths, none lost or torn\n", point.c_str(), static_cast<unsigned long long>(repeats));
}

void run_stops(const std::string& point, uint64_t repeats, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (uint64_t i = 0; i < repeats; i++) {
        for (auto& count : ledger->published) count = 0;
        stop_producer(point, any_occurrence(point, random), i % 2 != 0);
        alarm(60);
    }
    std::printf("%s: %llu stops, %llu held the others up until then, none lost or torn\n", point.c_str(),
                static_cast<unsigned long long>(repeats), static_cast<unsigned long long>(ledger->stalled));
}

}  // namespace

void ring_reached(const char* point) {
    if (ledger != nullptr && my_identity != 0 && std::strcmp(point, "published") == 0) ledger->published[my_identity]++;
    if (die_at == nullptr || std::strcmp(point, die_at) != 0 || die_after-- != 0) return;
    ledger->dead_at_point++;
    raise(die_of);
}

}  // namespace penstock::ring

int main(int count, char** words) {
    using namespace penstock::ring;
    const std::string what = count > 1 ? words[1] : "";
    const auto number = [&](int i) { return count > i ? std::strtoull(words[i], nullptr, 10) : 1; };
    ledger = static_cast<Ledger*>(
        mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    alarm(60);
    if (what == "points") {
        for (const auto& point : PRODUCER_POINTS) std::printf("%s\n", point.c_str());
        for (const auto& point : CONSUMER_POINTS) std::printf("%s\n", point.c_str());
    } else if (what == "kill") {
        run_kills(words[2], number(3), number(4));
    } else if (what == "stop") {
        run_stops(words[2], number(3), number(4));
    } else if (what == "random") {
        run_random(number(2), number(3));
    } else if (what == "threads") {
        run_threads(static_cast<int>(number(2)), number(3));
    } else if (what == "fuzz") {
        alarm(0);
        run_fuzz(number(2), number(3));
    } else {
        std::fprintf(stderr, "say points, kill, stop, random, threads or fuzz\n");
        return 2;
    }
    return 0;
}
