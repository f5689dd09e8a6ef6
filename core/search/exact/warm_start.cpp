// Starting placements for the exact solver: short annealing runs of moves and swaps from random first fits.
//
// Column generation needs a good upper bound and many good node sets at once, so this keeps the best placement of every
// run, not one of all. Overload is allowed at a price, because first fit may fail where a plan exists.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace nb = nanobind;

namespace {

using Floats = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Longs = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct Tasks {
    int count, nodes;
    const std::int64_t* start;
    const std::int32_t* neighbour;
    const double *weight, *outward, *load, *memory, *capacity, *memory_limit, *bandwidth;
};

class Random {  // xorshift64*: the same numbers on every platform, unlike the standard distributions
public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 0x2545F4914F6CDD1DULL) {}
    std::uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545F4914F6CDD1DULL;
    }
    int below(int limit) { return static_cast<int>((next() >> 33) % static_cast<std::uint64_t>(limit)); }
    double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

private:
    std::uint64_t state_;
};

class Annealing {
public:
    Annealing(const Tasks& tasks, std::uint64_t seed)
        : t_(tasks), random_(seed), node_(tasks.count), load_(tasks.nodes), memory_(tasks.nodes), sent_(tasks.nodes),
          received_(tasks.nodes) {
        const double total = std::accumulate(t_.weight, t_.weight + t_.start[t_.count], 0.0) / 2;
        const auto edges = std::max<std::int64_t>(1, t_.start[t_.count] / 2);
        mean_rate_ = total > 0 ? total / static_cast<double>(edges) : 1.0;
        penalty_ = total > 0 ? total : 1.0;
        for (int k = 0; k < t_.nodes; ++k) watches_bandwidth_ |= std::isfinite(t_.bandwidth[k]);
    }

    void start_from(const std::int32_t* placement) {
        std::copy(placement, placement + t_.count, node_.begin());
        recount();
    }

    // Largest first, each to a random node among those with room, or to the emptiest when none has room.
    void start_anywhere() {
        std::vector<int> order(t_.count);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return t_.load[a] > t_.load[b]; });
        std::fill(load_.begin(), load_.end(), 0.0);
        std::fill(memory_.begin(), memory_.end(), 0.0);
        for (const int task : order) {
            int chosen = -1, seen = 0, emptiest = 0;
            for (int k = 0; k < t_.nodes; ++k) {
                if (t_.capacity[k] - load_[k] > t_.capacity[emptiest] - load_[emptiest]) emptiest = k;
                if (load_[k] + t_.load[task] > t_.capacity[k]) continue;
                if (memory_[k] + t_.memory[task] > t_.memory_limit[k]) continue;
                if (random_.below(++seen) == 0) chosen = k;
            }
            node_[task] = chosen < 0 ? emptiest : chosen;
            load_[node_[task]] += t_.load[task];
            memory_[node_[task]] += t_.memory[task];
        }
        recount();
    }

    void run(long long moves, double hot, std::chrono::steady_clock::time_point until) {
        const double first = hot * mean_rate_, last = 0.02 * mean_rate_;
        const double cooling = std::pow(last / first, 1.0 / static_cast<double>(std::max(1LL, moves / 256)));
        double temperature = first;
        keep_if_better();
        for (long long m = 0; m < moves && t_.nodes > 1; ++m) {
            if (m % 256 == 255) {
                temperature *= cooling;
                if (m % 65536 == 65535 && std::chrono::steady_clock::now() >= until) break;
            }
            step(temperature);
        }
    }

    const std::vector<std::int32_t>& best() const { return best_.empty() ? node_ : best_; }
    double best_cost() const { return best_cost_; }

private:
    double excess(int k) const {
        double over = std::max(0.0, load_[k] / t_.capacity[k] - 1) * (load_[k] > t_.capacity[k]);
        if (memory_[k] > t_.memory_limit[k]) over += memory_[k] / t_.memory_limit[k] - 1;
        if (sent_[k] > t_.bandwidth[k]) over += sent_[k] / t_.bandwidth[k] - 1;
        if (received_[k] > t_.bandwidth[k]) over += received_[k] / t_.bandwidth[k] - 1;
        return over > 0 ? over + 0.02 : 0.0;
    }

    void recount() {
        for (auto* totals : {&load_, &memory_, &sent_, &received_}) std::fill(totals->begin(), totals->end(), 0.0);
        cut_ = 0;
        for (int i = 0; i < t_.count; ++i) {
            load_[node_[i]] += t_.load[i];
            memory_[node_[i]] += t_.memory[i];
            for (auto e = t_.start[i]; e < t_.start[i + 1]; ++e) {
                if (node_[t_.neighbour[e]] == node_[i]) continue;
                cut_ += t_.weight[e] / 2;
                sent_[node_[i]] += t_.outward[e];
                received_[node_[t_.neighbour[e]]] += t_.outward[e];
            }
        }
        over_ = 0;
        for (int k = 0; k < t_.nodes; ++k) over_ += excess(k);
    }

    // Moves task i to node `to` and returns the change of energy; moving it back undoes it.
    double shift(int i, int to) {
        const int from = node_[i];
        double here = 0, there = 0;
        const double before = excess(from) + excess(to);
        for (auto e = t_.start[i]; e < t_.start[i + 1]; ++e) {
            const int k = node_[t_.neighbour[e]];
            if (k == from) here += t_.weight[e];
            if (k == to) there += t_.weight[e];
            if (!watches_bandwidth_) continue;
            const double out = t_.outward[e], in = t_.weight[e] - t_.outward[e];
            if (k == from) sent_[from] += in, received_[from] += out;
            else sent_[from] -= out, received_[from] -= in;
            if (k == to) sent_[to] -= in, received_[to] -= out;
            else sent_[to] += out, received_[to] += in;
        }
        node_[i] = to;
        load_[from] -= t_.load[i], load_[to] += t_.load[i];
        memory_[from] -= t_.memory[i], memory_[to] += t_.memory[i];
        const double over = excess(from) + excess(to) - before;
        cut_ += here - there;
        over_ += over;
        return here - there + penalty_ * over;
    }

    void step(double temperature) {
        const int i = random_.below(t_.count), from = node_[i];
        const auto degree = t_.start[i + 1] - t_.start[i];
        int to = random_.below(t_.nodes);
        if (degree > 0 && random_.below(4) > 0)
            to = node_[t_.neighbour[t_.start[i] + random_.below(static_cast<int>(degree))]];
        if (to == from) return;
        const double cut = cut_, over = over_;
        double change = shift(i, to);
        int partner = -1;
        if (load_[to] > t_.capacity[to] || memory_[to] > t_.memory_limit[to] || random_.below(8) == 0) {
            for (int tries = 0; tries < 8 && partner < 0; ++tries) {
                const int j = random_.below(t_.count);
                if (j != i && node_[j] == to) partner = j;
            }
            if (partner >= 0) change += shift(partner, from);
        }
        if (change <= 0 || random_.unit() < std::exp(-change / temperature)) {
            keep_if_better();
            return;
        }
        if (partner >= 0) shift(partner, to);
        shift(i, from);
        cut_ = cut, over_ = over;
    }

    void keep_if_better() {
        if (over_ > 1e-12 || cut_ >= best_cost_ - 1e-12) return;
        recount();  // from scratch: increments drift, and an answer must fit exactly
        if (over_ > 0 || cut_ >= best_cost_) return;
        best_cost_ = cut_;
        best_ = node_;
    }

    const Tasks& t_;
    Random random_;
    std::vector<std::int32_t> node_, best_;
    std::vector<double> load_, memory_, sent_, received_;
    double cut_ = 0, over_ = 0, best_cost_ = std::numeric_limits<double>::infinity();
    double mean_rate_ = 1, penalty_ = 1;
    bool watches_bandwidth_ = false;
};

nb::tuple starting_placements(const Longs& start, const Ints& neighbour, const Floats& weight, const Floats& outward,
                              const Floats& load, const Floats& memory, const Floats& capacity,
                              const Floats& memory_limit, const Floats& bandwidth, const Ints& initial,
                              std::uint64_t seed, int runs, long long moves, double seconds) {
    const Tasks tasks{static_cast<int>(load.shape(0)), static_cast<int>(capacity.shape(0)), start.data(),
                      neighbour.data(), weight.data(), outward.data(), load.data(), memory.data(), capacity.data(),
                      memory_limit.data(), bandwidth.data()};
    const std::size_t n = load.shape(0);
    auto* placements = new std::vector<std::int32_t>;
    auto* costs = new std::vector<double>;
    {
        nb::gil_scoped_release released;
        const auto until = std::chrono::steady_clock::now() +
                           std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                               std::chrono::duration<double>(std::min(seconds, 1e6)));
        for (int r = 0; r < runs && (r == 0 || std::chrono::steady_clock::now() < until); ++r) {
            Annealing annealing(tasks, seed * 1000003ULL + static_cast<std::uint64_t>(r));
            const bool given = r == 0 && initial.shape(0) == n;
            if (given) annealing.start_from(initial.data());
            else annealing.start_anywhere();
            annealing.run(moves, given ? 0.5 : 3.0, until);
            placements->insert(placements->end(), annealing.best().begin(), annealing.best().end());
            costs->push_back(annealing.best_cost());
        }
    }
    const std::size_t made = costs->size();
    nb::capsule own_placements(placements, [](void* p) noexcept { delete static_cast<std::vector<std::int32_t>*>(p); });
    nb::capsule own_costs(costs, [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
    return nb::make_tuple(
        nb::ndarray<nb::numpy, std::int32_t, nb::ndim<2>>(placements->data(), {made, n}, own_placements),
        nb::ndarray<nb::numpy, double, nb::ndim<1>>(costs->data(), {made}, own_costs));
}

}  // namespace

void bind_warm_start(nb::module_& module) {
    module.def("starting_placements", &starting_placements, nb::arg("start"), nb::arg("neighbour"), nb::arg("weight"),
               nb::arg("outward"), nb::arg("load"), nb::arg("memory"), nb::arg("capacity"), nb::arg("memory_limit"),
               nb::arg("bandwidth"), nb::arg("initial"), nb::arg("seed"), nb::arg("runs"), nb::arg("moves"),
               nb::arg("seconds"),
               "Best placement of each annealing run and its cost, infinite where the run found none that fits.");
}
