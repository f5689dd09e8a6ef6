// Quadratic knapsack by branch and bound, for column generation over node configurations (optimise/exact/columns.py).
//
// A set S is worth sum of profits + sum of pair weights inside - prices of the cuts it trips. The bound gives each
// candidate its profit, its traffic with what is already chosen, and its share of the most traffic it could still have
// with other candidates in the room that is left; a fractional knapsack over these closes it. Any split of a pair's
// value between its two items gives a true bound (Caprara, Pisinger and Toth 1999). It starts at halves and takes one
// subgradient step at every node of the search, kept from node to node: three to forty times fewer nodes than halves
// throughout. The knapsack's own price then throws out candidates that cannot be part of any set above the threshold.
// Rejected: a split tuned at the root alone, whose bound is good there and no better than halves further down.
#include "search/exact/pricing.hpp"

#include "search/exact/chosen_set.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace nb = nanobind;

namespace penstock {
namespace {

constexpr long long kClockEvery = 1024;
constexpr int kRootSteps = 20;   // more steps while nothing is chosen: a search that is stopped reports that bound
constexpr double kStride = 1.2;  // of the step that would reach the threshold were the bound linear

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

class Search {
public:
    Search(const Knapsack& knapsack, const PricingLimits& limits)
        : k_(knapsack), limits_(limits), threshold_(limits.threshold), chosen_(knapsack),
          by_density_(neighbours_by_density(knapsack)),
          net_(static_cast<std::size_t>(knapsack.items) * knapsack.items, 0.0), open_(knapsack.items, 0),
          until_(std::chrono::steady_clock::now() +
                 std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                     std::chrono::duration<double>(std::min(limits.seconds, 1e6)))) {}

    PricedSets run() {
        uneven_ = uneven();
        found_.bound = limits_.threshold;
        std::vector<Candidate> candidates;
        for (int i = 0; i < k_.items; ++i) {
            if (k_.load[i] > k_.capacity || k_.memory[i] > k_.memory_limit) continue;
            candidates.push_back({i, k_.profit[i], 0, 0});
        }
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
        if (uneven_) level(candidates);
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

    // Items of a kind join in their order, so a late one that pays well has to be earned: worths of a kind become the
    // slopes of the least concave function above their running sums, which is a true bound for every number of them.
    void level(std::vector<Candidate>& candidates) {
        std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
            return k_.kind[a.item] != k_.kind[b.item] ? k_.kind[a.item] < k_.kind[b.item] : a.item < b.item;
        });
        for (std::size_t first = 0, end = 0; first < candidates.size(); first = end) {
            const auto alike = [&](std::size_t at) {
                return at < candidates.size() && k_.kind[candidates[at].item] == k_.kind[candidates[first].item];
            };
            while (alike(end)) ++end;
            for (std::size_t from = first, to = first; from < end; from = to) {
                double sum = 0, steepest = -std::numeric_limits<double>::infinity();
                for (std::size_t at = from; at < end; ++at) {
                    sum += candidates[at].worth;
                    if (const double slope = sum / static_cast<double>(at - from + 1); slope > steepest)
                        steepest = slope, to = at + 1;
                }
                for (std::size_t at = from; at < to; ++at) {
                    candidates[at].worth = steepest;
                    candidates[at].density = density(steepest, k_.load[candidates[at].item]);
                }
            }
        }
    }

    // Whether items of one kind differ in what they pay.
    bool uneven() const {
        std::vector<int> leader(k_.items, -1);
        for (int i = 0; i < k_.items; ++i) {
            int& first = leader[k_.kind[i]];
            if (first < 0) first = i;
            if (k_.profit[i] != k_.profit[first]) return true;
            for (int j = 0; j < k_.items; ++j)
                if (k_.weight[i * k_.items + j] != k_.weight[first * k_.items + j]) return true;
            for (int c = 0; c < k_.cuts; ++c)
                if (k_.cut_share[c * k_.items + i] != k_.cut_share[c * k_.items + first]) return true;
        }
        return false;
    }

    // One subgradient step on the split, aimed at the threshold: a pair's value moves from the item whose knapsack
    // takes it to the one whose knapsack does not. Candidates must be as `bound` left them.
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

    // Notes that `by` takes this amount of the pair's value; where `other` takes the same, nothing needs to move.
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
        return std::find_if(by_density_[row].begin(), by_density_[row].end(),
                            [&](const Neighbour& n) { return n.item == item; });
    }
    void reshare(int row, int item, double share) {
        auto at = place(row, item);
        at->share = share;
        at->density = density(share, at->load);
        const auto first = by_density_[row].begin(), last = std::prev(by_density_[row].end());
        for (; at != first && std::prev(at)->density < at->density; --at) std::iter_swap(at, std::prev(at));
        for (; at != last && std::next(at)->density > at->density; ++at) std::iter_swap(at, std::next(at));
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
            for (int step = chosen_.set.empty() ? kRootSteps : 1; step > 0 && limit > threshold_; --step) {
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
            if (candidates.size() < before) {
                drop_followers(candidates);
                continue;  // fewer candidates give a lower bound: compute it again
            }
            const auto branch = branching(candidates, price);
            const Candidate next = *branch;
            const int kind = k_.kind[next.item];
            candidates.erase(branch);
            include(totals, next, candidates);
            std::erase_if(candidates, [&](const Candidate& c) { return k_.kind[c.item] == kind; });
            if (stopped_) {
                found_.bound = std::max(found_.bound, limit);
                return;
            }
        }
    }

    // Items of a kind join in their order, so what follows a refused one of its kind is refused as well. Their profits
    // differ where branching pays for the k-th of a kind.
    void drop_followers(std::vector<Candidate>& candidates) {
        taken_.assign(k_.items, 0);
        for (const auto& c : candidates) taken_[c.item] = 1;
        for (const int i : chosen_.set) taken_[i] = 1;
        std::vector<char>& gone = gone_;
        gone.assign(k_.items, 0);
        for (int i = 0; i < k_.items; ++i) {
            if (!taken_[i]) gone[k_.kind[i]] = 1;
            else if (gone[k_.kind[i]]) taken_[i] = 0;
        }
        std::erase_if(candidates, [&](const Candidate& c) { return !taken_[c.item]; });
    }

    // The candidate whose refusal lowers the bound most. Of its kind, the first is taken before the others, and
    // refusing it refuses them all: no set comes twice.
    std::vector<Candidate>::iterator branching(std::vector<Candidate>& candidates, double price) const {
        const auto critical = [&](const Candidate& c) { return c.worth - price * k_.load[c.item]; };
        const auto best =
            std::max_element(candidates.begin(), candidates.end(),
                             [&](const Candidate& a, const Candidate& b) { return critical(a) < critical(b); });
        const int kind = k_.kind[best->item];
        return std::min_element(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
            const bool a_other = k_.kind[a.item] != kind, b_other = k_.kind[b.item] != kind;
            return a_other != b_other ? b_other : a.item < b.item;
        });
    }

    void include(const Chosen::Totals& totals, const Candidate& next, const std::vector<Candidate>& rest) {
        const Chosen::Totals after = chosen_.with(totals, next.item, next.gain);
        std::vector<Candidate> fitting;
        fitting.reserve(rest.size());
        const double* row = k_.weight + static_cast<std::ptrdiff_t>(next.item) * k_.items;
        for (const auto& c : rest) {
            if (after.load + k_.load[c.item] > k_.capacity) continue;
            if (after.memory + k_.memory[c.item] > k_.memory_limit) continue;
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
    std::vector<char> open_, taken_, gone_;
    std::chrono::steady_clock::time_point until_;
    PricedSets found_;
    bool stopped_ = false;
    bool uneven_ = false;
};

}  // namespace

PricedSets search_sets(const Knapsack& knapsack, const PricingLimits& limits) {
    return Search(knapsack, limits).run();
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
