// Quadratic knapsack by branch and bound, for column generation over node configurations (optimise/columns.py).
//
// A set S is worth sum of profits + sum of pair weights inside - prices of the cuts it trips. The bound gives each
// candidate its profit, its traffic with what is already chosen, and its share of the most traffic it could still have
// with other candidates in the room that is left; a fractional knapsack over these closes it. Any split of a pair's value
// between its two items gives a true bound (Caprara, Pisinger and Toth 1999). It starts at halves and takes one
// subgradient step at every node of the search, kept from node to node: forty times fewer nodes than halves throughout,
// where a split tuned at the root alone saved next to nothing. The knapsack's own price then throws out candidates that
// cannot be part of any set above the threshold.
// Rejected: linearised pairs in a MILP solver (a hundred times slower at 60 tasks).
#include "pricing.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace nb = nanobind;

namespace penstock {
namespace {

constexpr double kSmallestLoad = 1e-12;  // keeps densities finite for items without load
constexpr long long kClockEvery = 1024;
constexpr double kStride = 1.2;  // of the step that would reach the threshold were the bound linear

double density(double worth, double load) { return worth / std::max(load, kSmallestLoad); }

struct Neighbour {
    int item;
    double share, load, density;
};
using Rows = std::vector<std::vector<Neighbour>>;

// Neighbours of each item by falling share per load: the order in which a fractional knapsack takes them.
Rows neighbours_by_density(const Knapsack& k) {
    Rows rows(k.items);
    for (int i = 0; i < k.items; ++i) {
        for (int j = 0; j < k.items; ++j) {
            const double share = k.weight[i * k.items + j] / 2;
            if (j == i || share <= 0) continue;
            rows[i].push_back({j, share, k.load[j], density(share, k.load[j])});
        }
        std::stable_sort(rows[i].begin(), rows[i].end(),
                         [](const Neighbour& a, const Neighbour& b) { return a.density > b.density; });
    }
    return rows;
}

// What a set carries and trips, kept up to date as items join and leave.
struct Chosen {
    explicit Chosen(const Knapsack& k)
        : knapsack(k), watches_bandwidth(std::isfinite(k.bandwidth)), held(k.cuts, 0), cuts_of(k.items) {
        for (int c = 0; c < k.cuts; ++c)
            for (int i = 0; i < k.items; ++i)
                if (k.cut_share[c * k.items + i]) cuts_of[i].push_back(c);
    }

    struct Totals {
        double value = 0, load = 0, memory = 0, sent = 0, received = 0;
    };

    // The price of cuts that the item would trip right now: those of which the set holds an odd number.
    double tripped_by(int item) const {
        double price = 0;
        for (const int cut : cuts_of[item])
            if (held[cut] % 2) price += knapsack.cut_price[cut];
        return price;
    }

    // What may be charged to every candidate at once: q of them on top of an odd number trip (q + 1) / 2 times, so half
    // a price each is never too much.
    double charge(int item) const { return tripped_by(item) / 2; }

    Totals with(const Totals& before, int item, double gain) const {
        Totals after = before;
        after.value += gain - tripped_by(item);
        after.load += knapsack.load[item];
        after.memory += knapsack.memory[item];
        if (watches_bandwidth) {
            const int n = knapsack.items;
            for (int j = 0; j < n; ++j) {
                after.sent += knapsack.outward[item * n + j];
                after.received += knapsack.outward[j * n + item];
            }
            for (const int j : set) {
                const double both = knapsack.outward[item * n + j] + knapsack.outward[j * n + item];
                after.sent -= both;
                after.received -= both;
            }
        }
        return after;
    }

    void join(int item) {
        set.push_back(item);
        for (const int cut : cuts_of[item]) ++held[cut];
    }
    void leave() {
        for (const int cut : cuts_of[set.back()]) --held[cut];
        set.pop_back();
    }

    bool fits(const Totals& totals) const {
        return totals.load <= knapsack.capacity && totals.memory <= knapsack.memory_limit;
    }
    bool sendable(const Totals& totals) const {
        return !watches_bandwidth || (totals.sent <= knapsack.bandwidth && totals.received <= knapsack.bandwidth);
    }

    const Knapsack& knapsack;
    bool watches_bandwidth;
    std::vector<int> set;
    std::vector<int> held;
    std::vector<std::vector<int>> cuts_of;
};

class Search {
public:
    Search(const Knapsack& knapsack, const PricingLimits& limits)
        : k_(knapsack), limits_(limits), threshold_(limits.threshold), chosen_(knapsack),
          by_density_(neighbours_by_density(knapsack)),
          net_(static_cast<std::size_t>(knapsack.items) * knapsack.items, 0.0), open_(knapsack.items, 0),
          until_(std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                         std::chrono::duration<double>(std::min(limits.seconds, 1e6)))) {}

    PricedSets run() {
        found_.bound = limits_.threshold;
        std::vector<Candidate> candidates;
        for (int i = 0; i < k_.items; ++i)
            if (k_.load[i] <= k_.capacity && k_.memory[i] <= k_.memory_limit) candidates.push_back({i, k_.profit[i], 0, 0});
        visit({}, std::move(candidates));
        for (const double value : found_.value) found_.bound = std::max(found_.bound, value);
        found_.complete = !stopped_;
        return std::move(found_);
    }

private:
    struct Candidate {
        int item;
        double gain;   // profit and traffic with the chosen
        double worth;  // gain, less cut charges, plus its share of the most traffic with other candidates
        double density;
    };

    void record(const Chosen::Totals& totals) {
        if (chosen_.set.empty() || totals.value <= threshold_ || !chosen_.sendable(totals)) return;
        found_.item.insert(found_.item.end(), chosen_.set.begin(), chosen_.set.end());
        found_.start.push_back(static_cast<std::int32_t>(found_.item.size()));
        found_.value.push_back(totals.value);
        if (!limits_.all) threshold_ = totals.value;
        if (static_cast<long long>(found_.value.size()) >= limits_.columns_max) stopped_ = true;
    }

    bool out_of_budget() {
        ++found_.nodes;
        if (found_.nodes >= limits_.nodes_max) stopped_ = true;
        if (found_.nodes % kClockEvery == 0 && std::chrono::steady_clock::now() >= until_) stopped_ = true;
        return stopped_;
    }

    // Most value that the candidates can add, and the knapsack's price of one unit of load.
    std::pair<double, double> bound(std::vector<Candidate>& candidates, double room) {
        for (const auto& c : candidates) open_[c.item] = 1;
        for (auto& c : candidates) {
            double left = room - k_.load[c.item], traffic = 0;
            for (const auto& next : by_density_[c.item]) {
                if (next.share <= 0) break;
                if (!open_[next.item]) continue;
                if (next.load > left) {
                    if (left > 0) traffic += next.density * left;
                    break;
                }
                traffic += next.share;
                left -= next.load;
            }
            c.worth = c.gain + traffic - (k_.cuts ? chosen_.charge(c.item) : 0.0);
            c.density = density(c.worth, k_.load[c.item]);
        }
        for (const auto& c : candidates) open_[c.item] = 0;
        std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
            return a.density != b.density ? a.density > b.density : a.item < b.item;
        });
        double total = 0;
        for (const auto& c : candidates) {
            if (c.worth <= 0) return {total, 0.0};
            if (k_.load[c.item] > room) {
                return {total + c.density * std::max(0.0, room), c.density};
            }
            total += c.worth;
            room -= k_.load[c.item];
        }
        return {total, 0.0};
    }

    // One subgradient step on the split, aimed at the threshold: a pair's value moves from the item whose knapsack takes
    // it to the one whose knapsack does not. Candidates must be as `bound` left them.
    void retune(const std::vector<Candidate>& candidates, double room, double excess) {
        for (const auto& c : candidates) open_[c.item] = 1;
        double left = room;
        for (const auto& c : candidates) {
            if (c.worth <= 0 || left <= 0) break;
            const double part = k_.load[c.item] <= left ? 1.0 : left / k_.load[c.item];
            left -= k_.load[c.item];
            double inner = room - k_.load[c.item];
            for (const auto& next : by_density_[c.item]) {
                if (next.share <= 0 || inner <= 0) break;
                if (!open_[next.item]) continue;
                pull(c.item, next.item, next.load <= inner ? part : part * inner / next.load);
                inner -= next.load;
            }
        }
        for (const auto& c : candidates) open_[c.item] = 0;
        double norm = 0;
        for (const auto& [i, j] : pulled_) norm += net_[i * k_.items + j] * net_[i * k_.items + j];
        const double length = norm > 1e-12 ? kStride * excess / norm : 0.0;
        for (const auto& [i, j] : pulled_) {
            double& net = net_[i * k_.items + j];
            if (std::abs(net) * length > 0) shift(i, j, length * net);
            net = 0;
        }
        pulled_.clear();
    }

    // Counts that `by` takes so much of the pair; when the other takes as much, nothing needs to move.
    void pull(int by, int other, double amount) {
        const int i = std::min(by, other), j = std::max(by, other);
        double& net = net_[i * k_.items + j];
        if (net == 0) pulled_.push_back({i, j});
        net += by == i ? amount : -amount;
    }

    // Moves some of a pair's value from one item's share to the other's, and keeps both rows in order.
    void shift(int from, int to, double amount) {
        const double whole = k_.weight[from * k_.items + to];
        const double share = std::clamp(place(from, to)->share - amount, 0.0, whole);
        reshare(from, to, share);
        reshare(to, from, whole - share);
    }
    std::vector<Neighbour>::iterator place(int row, int item) {
        return std::find_if(by_density_[row].begin(), by_density_[row].end(), [&](const Neighbour& n) { return n.item == item; });
    }
    void reshare(int row, int item, double share) {
        auto at = place(row, item);
        at->share = share;
        at->density = density(share, at->load);
        auto& entries = by_density_[row];
        for (; at != entries.begin() && std::prev(at)->density < at->density; --at) std::iter_swap(at, std::prev(at));
        for (; std::next(at) != entries.end() && std::next(at)->density > at->density; ++at) std::iter_swap(at, std::next(at));
    }

    // Traffic that must leave or enter whatever else is chosen: what runs between the chosen and the already refused.
    bool must_exceed_bandwidth(const Chosen::Totals& totals, const std::vector<Candidate>& candidates) const {
        if (!chosen_.watches_bandwidth) return false;
        double sent = totals.sent, received = totals.received;
        for (const int i : chosen_.set)
            for (const auto& c : candidates) {
                sent -= k_.outward[i * k_.items + c.item];
                received -= k_.outward[c.item * k_.items + i];
            }
        const double rounding = 1e-9 * std::max(1.0, totals.sent + totals.received);
        return sent > k_.bandwidth + rounding || received > k_.bandwidth + rounding;
    }

    void visit(const Chosen::Totals& totals, std::vector<Candidate> candidates) {
        record(totals);
        const double room = k_.capacity - totals.load;
        while (!candidates.empty()) {
            if (must_exceed_bandwidth(totals, candidates)) return;
            auto [more, price] = bound(candidates, room);
            double limit = totals.value + more;
            if (limit > threshold_) {
                retune(candidates, room, limit - threshold_);
                std::tie(more, price) = bound(candidates, room);
                limit = totals.value + more;
            }
            if (limit <= threshold_) return;
            if (out_of_budget()) {
                found_.bound = std::max(found_.bound, limit);
                return;
            }
            const auto before = candidates.size();
            std::erase_if(candidates, [&, price = price](const Candidate& c) {
                return limit + std::min(0.0, c.worth - price * k_.load[c.item]) <= threshold_;
            });
            if (candidates.size() < before) continue;  // fewer candidates, a lower bound: look again
            // Branch on the candidate whose refusal lowers the bound most.
            const auto critical = std::max_element(candidates.begin(), candidates.end(), [&, price = price](const Candidate& a, const Candidate& b) {
                return a.worth - price * k_.load[a.item] < b.worth - price * k_.load[b.item];
            });
            // Of a kind, the first is taken before the others, and refusing it refuses them all: no set comes twice.
            const int kind = k_.kind[critical->item];
            const auto first = std::min_element(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
                const bool a_other = k_.kind[a.item] != kind, b_other = k_.kind[b.item] != kind;
                return a_other != b_other ? b_other : a.item < b.item;
            });
            const Candidate next = *first;
            candidates.erase(first);
            include(totals, next, candidates);
            std::erase_if(candidates, [&](const Candidate& c) { return k_.kind[c.item] == kind; });
            if (stopped_) {
                found_.bound = std::max(found_.bound, limit);
                return;
            }
        }
    }

    void include(const Chosen::Totals& totals, const Candidate& next, const std::vector<Candidate>& rest) {
        const Chosen::Totals after = chosen_.with(totals, next.item, next.gain);
        std::vector<Candidate> fitting;
        fitting.reserve(rest.size());
        const double* row = k_.weight + static_cast<std::ptrdiff_t>(next.item) * k_.items;
        for (const auto& c : rest) {
            if (after.load + k_.load[c.item] > k_.capacity || after.memory + k_.memory[c.item] > k_.memory_limit) continue;
            fitting.push_back({c.item, c.gain + row[c.item], 0, 0});
        }
        chosen_.join(next.item);
        visit(after, std::move(fitting));
        chosen_.leave();
    }

    const Knapsack& k_;
    const PricingLimits& limits_;
    double threshold_;
    Chosen chosen_;
    Rows by_density_;
    std::vector<double> net_;  // by pair i < j, zero outside `retune`
    std::vector<std::pair<int, int>> pulled_;
    std::vector<char> open_;
    std::chrono::steady_clock::time_point until_;
    PricedSets found_;
    bool stopped_ = false;
};

// Greedy growth from one item, then exchanges; quick, and good enough for most rounds of column generation.
class Guess {
public:
    explicit Guess(const Knapsack& knapsack) : k_(knapsack), in_(knapsack.items), link_(knapsack.items) {}

    // The best set found from this seed, or an empty one.
    std::vector<int> from(int seed, double& best_value) {
        std::fill(in_.begin(), in_.end(), 0);
        std::fill(link_.begin(), link_.end(), 0.0);
        load_ = memory_ = 0;
        if (k_.load[seed] > k_.capacity || k_.memory[seed] > k_.memory_limit) return {};
        toggle(seed);
        std::vector<int> best;
        best_value = -std::numeric_limits<double>::infinity();
        grow(best, best_value);
        for (int round = 0; round < 2 * k_.items && improve(); ++round) keep_better(best, best_value);
        return best;
    }

private:
    std::vector<int> members() const {
        std::vector<int> set;
        for (int i = 0; i < k_.items; ++i)
            if (in_[i]) set.push_back(i);
        return set;
    }
    void toggle(int item) {
        const double sign = in_[item] ? -1 : 1;
        in_[item] ^= 1;
        load_ += sign * k_.load[item];
        memory_ += sign * k_.memory[item];
        for (int j = 0; j < k_.items; ++j) link_[j] += sign * k_.weight[item * k_.items + j];
    }
    double gain(int item) const { return k_.profit[item] + link_[item]; }
    bool allowed(int item, int leaving = -1) const {
        const double load = load_ - (leaving >= 0 ? k_.load[leaving] : 0), memory = memory_ - (leaving >= 0 ? k_.memory[leaving] : 0);
        return !in_[item] && load + k_.load[item] <= k_.capacity && memory + k_.memory[item] <= k_.memory_limit;
    }
    double value() const {
        Chosen chosen(k_);
        Chosen::Totals totals;
        for (const int i : members()) {
            double traffic = k_.profit[i];
            for (const int j : chosen.set) traffic += k_.weight[i * k_.items + j];
            totals = chosen.with(totals, i, traffic);
            chosen.join(i);
        }
        const bool valid = chosen.fits(totals) && chosen.sendable(totals);
        return valid ? totals.value : -std::numeric_limits<double>::infinity();
    }
    void keep_better(std::vector<int>& best, double& best_value) const {
        if (const double now = value(); now > best_value) {
            best_value = now;
            best = members();
        }
    }
    void grow(std::vector<int>& best, double& best_value) {
        keep_better(best, best_value);
        while (true) {
            int pick = -1;
            double most = -std::numeric_limits<double>::infinity();
            for (int i = 0; i < k_.items; ++i) {
                if (!allowed(i)) continue;
                const double d = gain(i) >= 0 ? density(gain(i), k_.load[i]) : gain(i) * k_.load[i];
                if (link_[i] > 0 && d > most) most = d, pick = i;
            }
            if (pick < 0) return;
            toggle(pick);
            keep_better(best, best_value);
        }
    }
    // The best of: one in, one out, one for another. False when none helps.
    bool improve() {
        double most = 1e-9;
        int joins = -1, leaves = -1;
        for (int i = 0; i < k_.items; ++i) {
            if (in_[i]) {
                if (-gain(i) > most) most = -gain(i), joins = -1, leaves = i;
                for (int j = 0; j < k_.items; ++j) {
                    const double delta = gain(j) - gain(i) - k_.weight[i * k_.items + j];
                    if (!in_[j] && delta > most && allowed(j, i)) most = delta, joins = j, leaves = i;
                }
            } else if (gain(i) > most && allowed(i)) {
                most = gain(i), joins = i, leaves = -1;
            }
        }
        if (joins < 0 && leaves < 0) return false;
        if (leaves >= 0) toggle(leaves);
        if (joins >= 0) toggle(joins);
        return true;
    }

    const Knapsack& k_;
    std::vector<char> in_;
    std::vector<double> link_;
    double load_ = 0, memory_ = 0;
};

}  // namespace

PricedSets search_sets(const Knapsack& knapsack, const PricingLimits& limits) {
    return Search(knapsack, limits).run();
}

PricedSets guess_sets(const Knapsack& knapsack, double threshold, int sets_max) {
    struct Found {
        double value;
        std::vector<int> set;
    };
    std::vector<Found> found;
    Guess guess(knapsack);
    std::vector<char> begun(knapsack.items, 0);
    for (int seed = 0; seed < knapsack.items; ++seed) {
        if (std::exchange(begun[knapsack.kind[seed]], 1)) continue;
        double value = 0;
        auto set = guess.from(seed, value);
        if (!set.empty() && value > threshold) found.push_back({value, std::move(set)});
    }
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
        return a.value != b.value ? a.value > b.value : a.set < b.set;
    });
    found.erase(std::unique(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.set == b.set; }), found.end());
    PricedSets sets;
    sets.bound = std::numeric_limits<double>::infinity();
    sets.complete = false;
    for (std::size_t f = 0; f < found.size() && f < static_cast<std::size_t>(sets_max); ++f) {
        sets.item.insert(sets.item.end(), found[f].set.begin(), found[f].set.end());
        sets.start.push_back(static_cast<std::int32_t>(sets.item.size()));
        sets.value.push_back(found[f].value);
    }
    return sets;
}

}  // namespace penstock

namespace {

using Vector = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Kinds = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Flags = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::object as_array(std::vector<T>&& values) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

penstock::Knapsack make_knapsack(const Vector& profit, const Matrix& weight, const Matrix& resources,
                                 const Matrix& outward, const Kinds& kind, const Flags& cut_share,
                                 const Vector& cut_price, const Vector& limits) {
    penstock::Knapsack k;
    const std::size_t n = profit.shape(0);
    const bool sound = weight.shape(0) == n && weight.shape(1) == n && resources.shape(0) == 2 &&
                       resources.shape(1) == n && limits.shape(0) == 3 && cut_share.shape(0) == cut_price.shape(0) &&
                       (cut_share.shape(0) == 0 || cut_share.shape(1) == n) && kind.shape(0) == n;
    if (!sound) throw nb::value_error("pricing arrays disagree in shape");
    k.items = static_cast<int>(n);
    k.profit = profit.data();
    k.weight = weight.data();
    k.load = resources.data();
    k.memory = resources.data() + n;
    k.outward = outward.data();
    k.kind = kind.data();
    for (std::size_t i = 0; i < n; ++i)
        if (kind(i) < 0 || static_cast<std::size_t>(kind(i)) >= n) throw nb::value_error("a kind is out of range");
    k.cuts = static_cast<int>(cut_price.shape(0));
    k.cut_share = cut_share.data();
    k.cut_price = cut_price.data();
    k.capacity = limits(0);
    k.memory_limit = limits(1);
    k.bandwidth = limits(2);
    if (std::isfinite(k.bandwidth) && (outward.shape(0) != n || outward.shape(1) != n))
        throw nb::value_error("a finite bandwidth needs the outward matrix");
    return k;
}

nb::tuple answer(penstock::PricedSets&& sets) {
    const double bound = sets.bound;
    const bool complete = sets.complete;
    const long long nodes = sets.nodes;
    return nb::make_tuple(as_array(std::move(sets.start)), as_array(std::move(sets.item)),
                          as_array(std::move(sets.value)), bound, complete, nodes);
}

}  // namespace

void bind_pricing(nb::module_& module) {
    module.def(
        "price_sets",
        [](const Vector& profit, const Matrix& weight, const Matrix& resources, const Matrix& outward,
           const Kinds& kind, const Flags& cut_share, const Vector& cut_price, const Vector& limits,
           double threshold, bool all, long long nodes_max, long long columns_max, double seconds) {
            const auto k = make_knapsack(profit, weight, resources, outward, kind, cut_share, cut_price, limits);
            penstock::PricedSets sets;
            {
                nb::gil_scoped_release released;
                sets = penstock::search_sets(k, {threshold, all, nodes_max, columns_max, seconds});
            }
            return answer(std::move(sets));
        },
        nb::arg("profit"), nb::arg("weight"), nb::arg("resources"), nb::arg("outward"), nb::arg("kind"),
        nb::arg("cut_share"), nb::arg("cut_price"), nb::arg("limits"), nb::arg("threshold"), nb::arg("all"),
        nb::arg("nodes_max"), nb::arg("columns_max"), nb::arg("seconds"),
        "Sets of items above a value, by branch and bound: (start, item, value, bound, complete, nodes).");
    module.def(
        "guess_sets",
        [](const Vector& profit, const Matrix& weight, const Matrix& resources, const Matrix& outward,
           const Kinds& kind, const Flags& cut_share, const Vector& cut_price, const Vector& limits,
           double threshold, int sets_max) {
            const auto k = make_knapsack(profit, weight, resources, outward, kind, cut_share, cut_price, limits);
            penstock::PricedSets sets;
            {
                nb::gil_scoped_release released;
                sets = penstock::guess_sets(k, threshold, sets_max);
            }
            return answer(std::move(sets));
        },
        nb::arg("profit"), nb::arg("weight"), nb::arg("resources"), nb::arg("outward"), nb::arg("kind"),
        nb::arg("cut_share"), nb::arg("cut_price"), nb::arg("limits"), nb::arg("threshold"), nb::arg("sets_max"),
        "Good sets of items above a value, by greedy growth and exchanges; the bound is infinite.");
}
