// What a worker counts while it runs, as plain integers: a call for each run of a task and one or two for each batch on
// an edge. In Python the same counting was a tenth of the work on batches of a few rows. What the counts mean is in
// `run/engine/meters.py`.
//
// Time is charged to slots: the tasks, the worker's loop, its waiting, its taking in of what has arrived, its reports,
// the two ends of each edge, and the loop's way to each task. Who is at work on an edge goes back to whoever was at work
// before, which is a task or the loop. Why the loop's own time is shared out as it is: docs/decisions/0035-true-measurements.md.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <time.h>

#include "image/frames.hpp"
#include "image/image_codec.hpp"

namespace nb = nanobind;

namespace penstock::tally {

constexpr int SUB_BITS = 5;                   // 32 buckets for each power of two
constexpr int64_t MEASURE_ROWS = 16'384;      // a batch of so many rows is measured; of smaller ones a sample is
constexpr int64_t MEASURE_FIRST = 256;        // of the smaller ones of an edge, this many from the start on ...
constexpr uint64_t MEASURE_EVERY = 16;        // ... and then one of so many, in the mean
constexpr uint64_t TIMED_OFTEN = 8;           // sends of which one, in the mean, is timed by the CPU clock ...
constexpr int64_t TIMED_FIRST = 512;          // ... until so many were ...
constexpr uint64_t TIMED_EVERY = 32;          // ... and then one of so many
constexpr double TIMED_KEPT = 0.998;          // of what was timed before, with each send that is timed
constexpr int64_t SLICE_NS = 5'000'000;       // between two readings of the CPU clock
constexpr int64_t TRANSPORT_NS_MAX = 3'600'000'000'000;  // clocks of two machines may differ by anything

using Counts = std::vector<int64_t>;

// The histogram bucket of a latency.
inline int64_t bucket_of(int64_t latency_us) {
    if (latency_us < int64_t{1} << (SUB_BITS + 1)) return std::max<int64_t>(0, latency_us);
    const int shift = static_cast<int>(std::bit_width(static_cast<uint64_t>(latency_us))) - SUB_BITS - 1;
    return (int64_t{shift} << SUB_BITS) + (latency_us >> shift);
}

// One edge since the last snapshot.
struct EdgeCounts {
    std::shared_ptr<const ImageSchema> schema;
    int64_t task = -1;  // that sends, where it is here
    int64_t tuples = 0, bytes = 0, batches = 0;
    int64_t unmeasured_rows = 0;                  // of batches that were not measured
    int64_t sampled_rows = 0, sampled_bytes = 0;  // of smaller ones that were
    int64_t measured = 0;                         // smaller ones since the start
    bool wakes = false;                           // another worker, when something is sent
    double row_bytes = 0;                         // in the samples of the last interval that had any
    int64_t transport_ns = 0;
    uint64_t waiting = 0, in_ns = 0, out_ns = 0;  // batches in an inbox, and sums, modulo 2^64, of when they came and went
};

class Tally {
  public:
    Tally(size_t tasks, const std::vector<nb::object>& codecs, nb::object clock, nb::object cpu_clock)
        : tasks_(static_cast<int64_t>(tasks)), clock_(std::move(clock)), cpu_clock_(std::move(cpu_clock)), wall_ns_(2 * tasks + 4 + 2 * codecs.size()),
          cpu_ns_(wall_ns_.size()), causes_(wall_ns_.size()), tuples_in_(tasks), runs_(tasks), busy_ns_(tasks), edges_(codecs.size()) {
        for (size_t e = 0; e < codecs.size(); e++)
            if (!codecs[e].is_none()) edges_[e].schema = nb::cast<const ImageCodec&>(codecs[e]).schema;
    }

    int64_t loop() const { return tasks_; }
    int64_t waiting() const { return tasks_ + 1; }
    int64_t arriving() const { return tasks_ + 2; }
    int64_t reporting() const { return tasks_ + 3; }

    // Counting begins now, in the thread that does the work.
    void start() {
        charge(loop(), now());
        for (Counts* counts : {&wall_ns_, &cpu_ns_, &causes_, &tuples_in_, &runs_, &busy_ns_})
            std::fill(counts->begin(), counts->end(), 0);
        touched_.clear();
        waited_ns_ = own_ns_ = 0;
        settled_ns_ = since_ns_;
        settled_cpu_ns_ = thread_ns();
    }

    // Charges time to another from now on: a task, the loop, waiting, arriving or reporting. Returns what was charged
    // until now.
    int64_t switch_to(int64_t to) {
        if (to < 0 || to > reporting()) throw nb::index_error("no task has this number");
        const int64_t was = on_edge() ? base_ : at_work_;
        timed_slot_ = -1;
        charge(to, now());
        return was;
    }

    // The same for a task that gets rows, and counts them. What the loop has done since it was last at something else
    // was done for this task.
    int64_t run(int64_t task, int64_t rows) {
        if (task < 0 || task >= tasks_) throw nb::index_error("no task has this number");
        tuples_in_[static_cast<size_t>(task)] += rows;
        runs_[static_cast<size_t>(task)]++;
        const int64_t was = on_edge() ? base_ : at_work_;
        if (at_work_ == loop()) at_work_ = way_slot(task);
        timed_slot_ = -1;
        charge(task, now());
        return was;
    }

    // The same for a task whose time has come, which is a cause of the loop's turns; a source that is polled makes a run.
    int64_t due(int64_t task, int64_t runs) {
        const int64_t was = run(task, 0);
        runs_[static_cast<size_t>(task)] += runs - 1;
        causes_[static_cast<size_t>(task)]++;
        return was;
    }

    // The sending end of an edge is at work and wakes nobody, until `sent` or `kept` or until another task runs.
    void handing(size_t edge) { enter(send_slot(edge)); }

    // The same where another worker may be woken.
    void sending(size_t edge) {
        enter(send_slot(edge));
        edges_[edge].wakes = true;
        if (next_chance() % (timed_ < TIMED_FIRST ? TIMED_OFTEN : TIMED_EVERY) == 0) {
            timed_++;
            timed_cpu_ns_ = thread_ns();
            timed_wall_ns_ = now();
            timed_slot_ = at_work_;
        }
    }

    // It is at work no longer.
    void rest() {
        if (!on_edge()) return;
        const int64_t slot = at_work_;
        charge(base_, now());
        if (timed_slot_ != slot) return;
        timed_slot_ = -1;
        // A long memory, so that the few sends in which the thread was put aside are in it.
        sends_wall_ns_ = sends_wall_ns_ * TIMED_KEPT + static_cast<double>(since_ns_ - timed_wall_ns_);
        sends_cpu_ns_ = sends_cpu_ns_ * TIMED_KEPT + static_cast<double>(thread_ns() - timed_cpu_ns_);
    }

    // A batch has left a task on an edge.
    void sent(int64_t task, size_t edge, nb::handle batch, int64_t rows) {
        count(task, edge, size_of(edges_.at(edge), batch, rows), rows, 1);
        rest();
    }

    void sent_image(int64_t task, size_t edge, const PreparedImage& image) {
        count(task, edge, image.payload(), image.plan.rows, 1);
        rest();
    }

    // The same where it waits in an inbox of this worker.
    void kept(int64_t task, size_t edge, const PreparedImage& image) {
        sent_image(task, edge, image);
        queued(edge);
    }

    // The same where it waits for others to join it, and counts as a batch with them.
    void held(int64_t task, size_t edge, const PreparedImage& image) {
        count(task, edge, image.payload(), image.plan.rows, 0);
        rest();
    }

    // Batches that were held have gone as one.
    void joined(size_t edge) {
        edges_.at(edge).batches++;
        rest();
    }

    // A batch goes straight to a task of the same worker: the edge is at work until that task runs.
    void passed(int64_t task, size_t edge, nb::handle batch, int64_t rows) {
        enter(send_slot(edge));
        count(task, edge, size_of(edges_[edge], batch, rows), rows, 1);
    }

    // A frame has arrived on an edge: what follows is its work. Credit is the sending end's, all else the receiving one's.
    void taken(size_t edge, int kind, int64_t sent_ns, int64_t bytes) {
        const int64_t slot = kind == FRAME_CREDIT ? send_slot(edge) : receive_slot(edge);
        enter(slot);
        arrivals_.emplace_back(slot, bytes + static_cast<int64_t>(sizeof(FrameHead)));
        if (kind == FRAME_DATA && sent_ns > 0) {
            const int64_t here_ns = clock_.is_none() ? wall_ns() : since_ns_;
            if (here_ns > sent_ns) edges_[edge].transport_ns += std::min(here_ns - sent_ns, TRANSPORT_NS_MAX);
        }
    }

    // The receiving end of an edge is at work without a frame: it grants credit.
    void receiving(size_t edge) { enter(receive_slot(edge)); }

    // A batch waits in an inbox from now on; the time is that of the last change of slots, a moment ago.
    void queued(size_t edge) {
        EdgeCounts& counts = edges_.at(edge);
        counts.waiting++;
        counts.in_ns += static_cast<uint64_t>(since_ns_);
    }

    // Packets, whose third item is their edge, have been taken from an inbox: joining them is that edge's work.
    void dequeued(nb::tuple packets) {
        int64_t edge = -1;
        const int64_t at_ns = now();
        for (nb::handle packet : packets) {
            edge = PyLong_AsLongLong(PyTuple_GetItem(packet.ptr(), 2));
            if (edge < 0) {
                if (PyErr_Occurred() != nullptr) throw nb::python_error();
                continue;
            }
            EdgeCounts& counts = edges_.at(static_cast<size_t>(edge));
            counts.waiting--;
            counts.out_ns += static_cast<uint64_t>(at_ns);
        }
        if (edge < 0) return;
        const int64_t slot = receive_slot(static_cast<size_t>(edge));
        if (!on_edge()) base_ = at_work_;
        if (at_work_ == loop()) at_work_ = slot;  // it took them from there
        charge(slot, at_ns);
    }

    // The worker has waited until then, and has taken in what there was since.
    void woken(int64_t woken_ns) {
        const int64_t at_ns = now();
        if (woken_ns > since_ns_ && woken_ns < at_ns) charge(arriving(), woken_ns);
        charge(loop(), at_ns);
    }

    // All that had arrived has been looked at: taking it in is charged to its edges by their bytes on the way, or to
    // the loop where nothing had come.
    void looked() {
        rest();
        int64_t& pot = wall_ns_[static_cast<size_t>(arriving())];
        int64_t weight = 0;
        for (const auto& [slot, bytes] : arrivals_) weight += bytes;
        for (const auto& [slot, bytes] : arrivals_) {  // of what is left, so that nothing is left in the end
            const auto part =
                static_cast<int64_t>(static_cast<double>(pot) * static_cast<double>(bytes) / static_cast<double>(weight));
            add(slot, part);
            pot -= part;
            weight -= bytes;
        }
        add(loop(), pot);
        pot = 0;
        arrivals_.clear();
    }

    // CPU time since the last call is shared out by the time for which each slot was charged, unless that call was a
    // moment ago. What is more than that time was spent on waiting, and is the loop's, as is what rounding leaves.
    //
    // Sends are no fair part of that time where there are fewer cores than workers: the kernel puts the thread that
    // wakes another aside for it, in the middle of the send. So some sends are timed by the thread's CPU clock as well,
    // and the time of all to other workers is taken for as much less.
    void settle(bool at_once) {
        if (!at_once && since_ns_ - settled_ns_ < SLICE_NS) return;
        charge(at_work_, now());
        const int64_t thread = thread_ns(), cpu_ns = thread - settled_cpu_ns_;
        settled_ns_ = since_ns_;
        settled_cpu_ns_ = thread;
        double busy = 0;
        for (const int64_t slot : touched_)
            if (slot != waiting()) busy += weight_of(slot);
        const double share = busy > 0 ? std::min(1.0, static_cast<double>(cpu_ns) / busy) : 0;
        int64_t left = cpu_ns;
        for (const int64_t slot : touched_) {
            const auto at = static_cast<size_t>(slot);
            if (slot < tasks_) busy_ns_[at] += wall_ns_[at];
            if (slot == waiting()) {
                waited_ns_ += wall_ns_[at];
            } else {
                const auto part = static_cast<int64_t>(share * weight_of(slot));
                cpu_ns_[slot >= way_slot(0) ? static_cast<size_t>(slot - way_slot(0)) : at] += part;
                left -= part;
            }
            wall_ns_[at] = 0;
        }
        touched_.clear();
        cpu_ns_[static_cast<size_t>(loop())] += left;
    }

    // Rows have reached a sink, `latency_us` after they left their source.
    void arrived(int64_t task, int64_t latency_us, int64_t rows) {
        auto& [batches, all] = latency_[{task, bucket_of(latency_us)}];
        batches++;
        all += rows;
    }

    void arrived_now(int64_t task, int64_t origin_ns, int64_t rows) { arrived(task, (wall_ns() - origin_ns) / 1000, rows); }

    // Of each task: rows, runs, bytes out, busy time and CPU in us; of the worker: CPU that nothing caused, and the time
    // for which it waited, in us. Counting starts afresh; parts of a microsecond are kept for the next time.
    auto take_tasks() {
        share_loop();
        Counts bytes_out(static_cast<size_t>(tasks_)), cpu(static_cast<size_t>(tasks_)), busy(static_cast<size_t>(tasks_));
        for (EdgeCounts& edge : edges_) {
            estimate(edge);
            if (edge.task >= 0) bytes_out[static_cast<size_t>(edge.task)] += edge.bytes;
        }
        for (size_t t = 0; t < cpu.size(); t++) {
            cpu[t] = whole_us(cpu_ns_[t]);
            busy[t] = whole_us(busy_ns_[t]);
        }
        return std::make_tuple(drained(tuples_in_), drained(runs_), bytes_out, busy, cpu,
                               whole_us(own_ns_), whole_us(waited_ns_));
    }

    // Of each edge with anything to tell: number, rows, bytes, batches, and us of sending, receiving, transport and
    // queue. To be called after `take_tasks`, which asks for the same bytes.
    auto take_edges() {
        std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>> found;
        for (size_t e = 0; e < edges_.size(); e++) {
            EdgeCounts& edge = edges_[e];
            estimate(edge);
            const uint64_t still_in_ns = edge.waiting * static_cast<uint64_t>(since_ns_);
            auto queue_ns = static_cast<int64_t>(edge.out_ns + still_in_ns - edge.in_ns);
            const int64_t send = whole_us(cpu_ns_[static_cast<size_t>(send_slot(e))]);
            const int64_t receive = whole_us(cpu_ns_[static_cast<size_t>(receive_slot(e))]);
            const int64_t transport = whole_us(edge.transport_ns), queue = whole_us(queue_ns);
            edge.in_ns = still_in_ns;
            edge.out_ns = static_cast<uint64_t>(queue_ns);  // what is left of a microsecond
            if (edge.tuples != 0 || edge.batches != 0 || send != 0 || receive != 0 || transport != 0 || queue != 0)
                found.emplace_back(static_cast<int64_t>(e), edge.tuples, edge.bytes, edge.batches, send, receive, transport,
                                   queue);
            edge.tuples = edge.bytes = edge.batches = 0;
        }
        return found;
    }

    // Task, bucket, batches and rows, in order.
    auto take_latency() {
        std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>> found;
        for (const auto& [key, count] : latency_) found.emplace_back(key.first, key.second, count.first, count.second);
        latency_.clear();
        return found;
    }

  private:
    static Counts drained(Counts& counts) {
        Counts found(counts.size());
        found.swap(counts);
        return found;
    }

    static int64_t whole_us(int64_t& ns) {
        const int64_t us = ns / 1000;
        ns -= us * 1000;
        return us;
    }

    int64_t send_slot(size_t edge) const {
        if (edge >= edges_.size()) throw nb::index_error("no edge has this number");
        return tasks_ + 4 + 2 * static_cast<int64_t>(edge);
    }
    int64_t receive_slot(size_t edge) const { return send_slot(edge) + 1; }
    int64_t way_slot(int64_t task) const { return tasks_ + 4 + 2 * static_cast<int64_t>(edges_.size()) + task; }

    bool wakes(int64_t slot) const {
        const int64_t end = slot - reporting() - 1;  // sending and receiving ends by turns
        return end >= 0 && slot < way_slot(0) && end % 2 == 0 && edges_[static_cast<size_t>(end / 2)].wakes;
    }
    bool on_edge() const { return at_work_ > reporting(); }

    // The loop's CPU is shared among what made it turn, by how often each did. Reports have no such cause.
    void share_loop() {
        int64_t& pot = cpu_ns_[static_cast<size_t>(loop())];
        int64_t& looking = cpu_ns_[static_cast<size_t>(arriving())];  // of a look that is not over yet
        pot += std::exchange(looking, 0);
        int64_t times = 0;
        for (const int64_t count : causes_) times += count;
        for (size_t slot = 0; slot < causes_.size(); slot++) {
            if (causes_[slot] == 0) continue;
            const auto part = static_cast<int64_t>(static_cast<double>(pot) * static_cast<double>(causes_[slot]) /
                                                   static_cast<double>(times));  // of what is left: nothing is, in the end
            cpu_ns_[slot] += part;
            pot -= part;
            times -= causes_[slot];
            causes_[slot] = 0;
        }
        int64_t& reports = cpu_ns_[static_cast<size_t>(reporting())];
        own_ns_ += pot + reports;
        pot = reports = 0;
    }

    uint64_t next_chance() {  // xorshift, from the same seed every time
        chance_ ^= chance_ << 13, chance_ ^= chance_ >> 7, chance_ ^= chance_ << 17;
        return chance_;
    }

    // A slot's time, that of sends to other workers as CPU time.
    double weight_of(int64_t slot) const {
        const auto wall = static_cast<double>(wall_ns_[static_cast<size_t>(slot)]);
        return wakes(slot) && sends_wall_ns_ > 0 ? wall * std::min(1.0, sends_cpu_ns_ / sends_wall_ns_) : wall;
    }

    int64_t thread_ns() const {
        if (!cpu_clock_.is_none()) return nb::cast<int64_t>(cpu_clock_());
        timespec at{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
        return int64_t{at.tv_sec} * 1'000'000'000 + at.tv_nsec;
    }

    int64_t now() const {
        if (!clock_.is_none()) return nb::cast<int64_t>(clock_());
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }

    void add(int64_t slot, int64_t ns) {
        int64_t& wall = wall_ns_[static_cast<size_t>(slot)];
        if (wall == 0 && ns != 0) touched_.push_back(slot);
        wall += ns;
    }

    void charge(int64_t to, int64_t at_ns) {
        add(at_work_, at_ns - since_ns_);
        at_work_ = to;
        since_ns_ = at_ns;
    }

    // An edge's end is at work. Where the loop was before, it has turned for this end, and what it did until now was for it.
    void enter(int64_t slot) {
        timed_slot_ = -1;
        if (!on_edge()) base_ = at_work_;
        if (at_work_ == loop()) {
            at_work_ = slot;
            causes_[static_cast<size_t>(slot)]++;
        }
        charge(slot, now());
    }

    void count(int64_t task, size_t edge, int64_t size, int64_t rows, int64_t batches) {
        if (task < 0 || task >= tasks_) throw nb::index_error("no task has this number");
        EdgeCounts& counts = edges_.at(edge);
        counts.task = task;
        counts.tuples += rows;
        counts.bytes += size;
        counts.batches += batches;
    }

    // What is known of a batch's bytes at once; the rest is left to `estimate`.
    int64_t size_of(EdgeCounts& edge, nb::handle batch, int64_t rows) {
        if (edge.schema != nullptr && edge.schema->nodes[0].row_bytes >= 0) return rows * edge.schema->nodes[0].row_bytes;
        if (rows >= MEASURE_ROWS) return measured(edge, batch);
        if (rows == 0) return 0;
        // By chance, not every so many: batches may come in a pattern.
        if (edge.measured >= MEASURE_FIRST && next_chance() % MEASURE_EVERY != 0) {
            edge.unmeasured_rows += rows;
            return 0;
        }
        const int64_t size = measured(edge, batch);
        edge.measured++;
        edge.sampled_rows += rows;
        edge.sampled_bytes += size;
        return size;
    }

    static int64_t measured(const EdgeCounts& edge, nb::handle batch) {
        try {
            if (edge.schema != nullptr) return payload_of(*edge.schema, HeldBatch(batch).array);
        } catch (const ImageFault&) {  // a type that its stream does not declare; sending it would fail
        }
        return nb::cast<int64_t>(batch.attr("nbytes"));
    }

    static void estimate(EdgeCounts& edge) {
        if (edge.sampled_rows > 0) edge.row_bytes = static_cast<double>(edge.sampled_bytes) / static_cast<double>(edge.sampled_rows);
        edge.bytes += static_cast<int64_t>(edge.row_bytes * static_cast<double>(edge.unmeasured_rows) + 0.5);
        edge.unmeasured_rows = edge.sampled_rows = edge.sampled_bytes = 0;
    }

    int64_t tasks_;
    nb::object clock_, cpu_clock_;  // None: the machine's, and the thread's
    Counts wall_ns_, cpu_ns_;
    Counts causes_;  // how often the loop has turned for each slot
    Counts tuples_in_, runs_, busy_ns_;
    std::vector<EdgeCounts> edges_;
    std::vector<int64_t> touched_;                         // slots that were charged since CPU was shared out last
    std::vector<std::pair<int64_t, int64_t>> arrivals_;  // slot and bytes of each frame of this look
    std::map<std::pair<int64_t, int64_t>, std::pair<int64_t, int64_t>> latency_;  // by task and bucket; a few dozen
    int64_t at_work_ = 0, base_ = 0, since_ns_ = 0, waited_ns_ = 0, own_ns_ = 0;
    int64_t settled_ns_ = 0, settled_cpu_ns_ = 0;           // when CPU was shared out last
    int64_t timed_slot_ = -1, timed_wall_ns_ = 0, timed_cpu_ns_ = 0, timed_ = 0;  // the send that is being timed
    double sends_wall_ns_ = 0, sends_cpu_ns_ = 0;                       // of smaller ones that were
    uint64_t chance_ = 0x9E3779B97F4A7C15;
};

}  // namespace penstock::tally
