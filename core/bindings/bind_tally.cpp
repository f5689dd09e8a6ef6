// What a worker counts while it runs, as plain integers: one call for each run of a task and each batch that leaves it.
// In Python the same counting was a tenth of the work on batches of a few rows. What the counts mean is in `run/engine/meters.py`.
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

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {

namespace {

constexpr int SUB_BITS = 3;        // eight buckets for each power of two
constexpr int MEASURE_EVERY = 16;  // batches of an edge between two whose bytes are asked for

using Counts = std::vector<int64_t>;

// The histogram bucket of a latency.
int64_t bucket_of(int64_t latency_us) {
    if (latency_us < int64_t{1} << (SUB_BITS + 1)) return std::max<int64_t>(0, latency_us);
    const int shift = static_cast<int>(std::bit_width(static_cast<uint64_t>(latency_us))) - SUB_BITS - 1;
    return (int64_t{shift} << SUB_BITS) + (latency_us >> shift);
}

template <typename Instant>
int64_t ns_of(Instant instant) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(instant.time_since_epoch()).count();
}

class Tally {
  public:
    Tally(size_t tasks, size_t edges)
        : wall_ns_(tasks + 2), tuples_in_(tasks), runs_(tasks), bytes_out_(tasks), edge_tuples_(edges), edge_bytes_(edges),
          row_bytes_(edges), until_measured_(edges) {}

    // Charges time to another from now on: a task or, with the numbers behind the tasks, the worker itself or idleness.
    // Returns the number that was charged until now.
    int64_t switch_to(int64_t to, int64_t now_ns) {
        if (now_ns < 0) now_ns = ns_of(std::chrono::steady_clock::now());
        const int64_t was = at_work_;
        static_cast<void>(wall_ns_.at(static_cast<size_t>(to)));  // throws on an unknown number before any change
        wall_ns_[static_cast<size_t>(was)] += now_ns - since_ns_;
        at_work_ = to;
        since_ns_ = now_ns;
        return was;
    }

    // The same for a task that gets rows, and counts them.
    int64_t run(int64_t task, int64_t rows) {
        tuples_in_.at(static_cast<size_t>(task)) += rows;
        runs_[static_cast<size_t>(task)]++;
        return switch_to(task, -1);
    }

    // A batch has left a task on an edge.
    void sent(size_t task, size_t edge, int64_t rows, int64_t size) {
        bytes_out_.at(task) += size;
        edge_tuples_.at(edge) += rows;
        edge_bytes_[edge] += size;
    }

    // A batch has gone straight to a task of the same worker. The metric log alone wants its bytes, so most are
    // estimated.
    void passed(size_t task, size_t edge, nb::handle batch, int64_t rows) {
        if (until_measured_.at(edge) == 0) {
            row_bytes_[edge] = nb::cast<double>(batch.attr("nbytes")) / static_cast<double>(std::max<int64_t>(rows, 1));
            until_measured_[edge] = MEASURE_EVERY;
        }
        until_measured_[edge]--;
        sent(task, edge, rows, static_cast<int64_t>(row_bytes_[edge] * static_cast<double>(rows)));
    }

    // A batch has reached a sink, `latency_us` after it left its source.
    void arrived(int64_t task, int64_t latency_us) { latency_[{task, bucket_of(latency_us)}]++; }

    void arrived_now(int64_t task, int64_t origin_ns) {
        arrived(task, (ns_of(std::chrono::system_clock::now()) - origin_ns) / 1000);
    }

    int64_t since_ns() const { return since_ns_; }
    int64_t at_work() const { return at_work_; }

    // How long each number was charged since the last call.
    Counts take_wall_ns() { return taken(wall_ns_); }

    // Rows and runs of each task, bytes that left it, rows and bytes of each edge; counting starts afresh.
    auto take_counts() {
        return std::make_tuple(taken(tuples_in_), taken(runs_), taken(bytes_out_), taken(edge_tuples_), taken(edge_bytes_));
    }

    // Task, bucket and count, in order.
    auto take_latency() {
        std::vector<std::tuple<int64_t, int64_t, int64_t>> found;
        for (const auto& [key, count] : latency_) found.emplace_back(key.first, key.second, count);
        latency_.clear();
        return found;
    }

  private:
    static Counts taken(Counts& counts) {
        Counts found(counts.size());
        found.swap(counts);
        return found;
    }

    Counts wall_ns_, tuples_in_, runs_, bytes_out_, edge_tuples_, edge_bytes_;
    std::vector<double> row_bytes_;
    std::vector<int> until_measured_;
    std::map<std::pair<int64_t, int64_t>, int64_t> latency_;  // by task and bucket; a few dozen
    int64_t at_work_ = 0, since_ns_ = 0;
};

}  // namespace

void bind_tally(nb::module_& module) {
    module.def("latency_bucket", &bucket_of, "latency_us"_a);
    nb::class_<Tally>(module, "Tally")
        .def(nb::init<size_t, size_t>(), "tasks"_a, "edges"_a)
        .def("switch_to", &Tally::switch_to, "to"_a, "now_ns"_a = -1)
        .def("run", &Tally::run, "task"_a, "rows"_a)
        .def("sent", &Tally::sent, "task"_a, "edge"_a, "rows"_a, "size"_a)
        .def("passed", &Tally::passed, "task"_a, "edge"_a, "batch"_a, "rows"_a)
        .def("arrived", &Tally::arrived, "task"_a, "latency_us"_a)
        .def("arrived_now", &Tally::arrived_now, "task"_a, "origin_ns"_a)
        .def_prop_ro("since_ns", &Tally::since_ns)
        .def_prop_ro("at_work", &Tally::at_work)
        .def("take_wall_ns", &Tally::take_wall_ns)
        .def("take_counts", &Tally::take_counts)
        .def("take_latency", &Tally::take_latency);
}

}  // namespace penstock
