#include "search/place/evolve.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>

#include "search/place/coarsen.hpp"
#include "search/place/halves.hpp"

namespace penstock {

namespace {

struct Individual {
    std::vector<Id> node;
    double cost = 0;
};

// Temperatures are in mean rates. No single heat is best for all graphs, so each individual draws its own.
constexpr double first_heat_low = 1.5, first_heat_high = 8.0;
constexpr double coarse_heat_low = 1.0, coarse_heat_high = 12.0;
constexpr double fine_heat_low = 0.3, fine_heat_high = 1.5;
constexpr double wide_first_heat = 1.0;  // a few sweeps cannot cool from a higher temperature
constexpr double cold = 0.1;
constexpr Id wide_min = 30'000;    // from here both threads work on one child, because few are affordable
constexpr Id wide_rounds = 3;      // of drawing regions for the threads
constexpr Id mutation_one_in = 4;  // children have one parent instead of two

double drawn(Random &random, double low, double high) {
    return low * std::pow(high / low, random.below(1u << 20) / static_cast<double>(1u << 20));
}

// Runs one or two pieces of work at once; which thread does which piece cannot change their results.
void at_once(Id pieces, const std::function<void(Id)> &work) {
    if (pieces < 2) return work(0);
    std::thread other(work, 1);
    work(0);
    other.join();
}

class Breeder {
  public:
    Breeder(const Graph &graph, const Limits &limits, const Breeding &breeding, const Cap &cap)
        : graph_(graph), limits_(limits), breeding_(breeding), cap_(cap), unit_(graph.mean_rate()),
          wide_(graph.size() >= wide_min) {}
    bool wide() const { return wide_; }

    Individual first(const std::vector<Id> &start, Random random) const {
        State state(graph_, limits_, start);
        const double hot = wide_ ? wide_first_heat : drawn(random, first_heat_low, first_heat_high);
        anneal(state, {hot * unit_, cold * unit_, breeding_.first_sweeps}, random, cap_);
        return {state.node(), state.cost()};
    }

    // Groups on which both parents agree are contracted, placed as in the better parent, annealed, and freed again.
    Individual cross(const Individual &better, const Individual &other, Random random) const {
        return grown(better, agreement(better.node, other.node), random);
    }

    // The same with clusters of one placement, drawn at random: new groups where the population agrees too much.
    Individual mutate(const Individual &parent, Random random) const {
        double capacity = 0;
        for (const double load : limits_.load) capacity += load;
        const double share = drawn(random, 0.05, 0.5);
        ClusterLimit limit{share * capacity / limits_.size(), 0};
        for (const double memory : limits_.memory) limit.memory += share * memory / limits_.size();
        return grown(parent, cluster(graph_, limit, parent.node, random), random);
    }

  private:
    void cool(State &state, const Cooling &cooling, Random &random) const {
        if (wide_) {
            anneal_in_halves(state, cooling, std::min(wide_rounds, cooling.sweeps), random.next(), cap_);
        } else {
            anneal(state, cooling, Random(random.next()), cap_);
        }
    }

    // Vertices by ascending node, otherwise in the order given (empty: their own): a counting sort.
    std::vector<Id> sorted_by(const std::vector<Id> &node, const std::vector<Id> &order) const {
        std::vector<Id> next(limits_.size() + 1, 0), sorted(node.size());
        for (const Id k : node) ++next[k + 1];
        std::partial_sum(next.begin(), next.end(), next.begin());
        for (std::size_t i = 0; i < node.size(); ++i) {
            const Id v = order.empty() ? static_cast<Id>(i) : order[i];
            sorted[next[node[v]]++] = v;
        }
        return sorted;
    }

    Clustering agreement(const std::vector<Id> &a, const std::vector<Id> &b) const {
        const std::vector<Id> order = sorted_by(a, sorted_by(b, {}));
        Clustering cells{std::vector<Id>(a.size()), 0};
        for (std::size_t i = 0; i < order.size(); ++i) {
            const Id v = order[i];
            if (i > 0 && (a[v] != a[order[i - 1]] || b[v] != b[order[i - 1]])) ++cells.count;
            cells.cluster[v] = cells.count;
        }
        ++cells.count;
        return cells;
    }

    Individual grown(const Individual &parent, const Clustering &cells, Random &random) const {
        const Graph coarse = contract(graph_, cells.cluster, cells.count);
        std::vector<Id> placed(cells.count);
        for (std::size_t v = 0; v < parent.node.size(); ++v) placed[cells.cluster[v]] = parent.node[v];
        State groups(coarse, limits_, placed);
        const double hot = drawn(random, coarse_heat_low, coarse_heat_high);
        cool(groups, {hot * unit_, cold * unit_, breeding_.coarse_sweeps, false}, random);
        std::vector<Id> node(parent.node.size());
        for (std::size_t v = 0; v < node.size(); ++v) node[v] = groups.node_of(cells.cluster[v]);
        State state(graph_, limits_, node);
        const double warm = drawn(random, fine_heat_low, fine_heat_high);
        cool(state, {warm * unit_, cold * unit_, breeding_.fine_sweeps}, random);
        return {state.node(), state.cost()};
    }

    const Graph &graph_;
    const Limits &limits_;
    const Breeding &breeding_;
    const Cap &cap_;
    double unit_;
    bool wide_;
};

// How much traffic one placement cuts and the other does not. It ignores the names of nodes: placements that differ
// just in the names of equal nodes have difference 0.
double difference(const Graph &graph, const std::vector<Id> &a, const std::vector<Id> &b) {
    double sum = 0;
    for (Id v = 0; v < graph.size(); ++v) {
        for (const Arc &arc : graph.row(v)) {
            sum += (a[v] != a[arc.to]) != (b[v] != b[arc.to]) ? arc.rate : 0.0f;
        }
    }
    return sum;
}

// Takes the child in: it replaces a twin of equal cost or, without one, the most similar of the dearer ones. Replacing
// the dearest would fill the population with one family before the best valley is found.
void admit(const Graph &graph, std::vector<Individual> &population, Individual child) {
    const double near = 1e-6 * std::max(1e-300, child.cost);
    Individual *replaced = nullptr;
    double least = 0;
    for (Individual &member : population) {
        if (std::abs(member.cost - child.cost) <= near) {
            member = std::move(child);
            return;
        }
        if (member.cost < child.cost) continue;
        // Where few children are affordable there is no time to look, and the dearest goes.
        const double apart =
            graph.size() >= wide_min ? -member.cost : difference(graph, member.node, child.node);
        if (replaced == nullptr || apart < least) {
            replaced = &member;
            least = apart;
        }
    }
    if (replaced != nullptr) *replaced = std::move(child);
}

}  // namespace

std::vector<Id> evolve(const Graph &graph, const Limits &limits, std::span<const std::vector<Id>> starts,
                       const Breeding &breeding, std::uint64_t seed, const Cap &cap) {
    const Breeder breeder(graph, limits, breeding, cap);
    const Id batch = breeder.wide() ? 1 : 2;
    std::vector<Individual> population(breeding.population);
    for (Id i = 0; i < breeding.population; i += 2) {
        at_once(std::min<Id>(2, breeding.population - i), [&](Id which) {
            const Id k = i + which;
            population[k] = breeder.first(starts[k % starts.size()], Random::split(seed, static_cast<std::uint64_t>(k)));
        });
    }
    const bool unchanged = breeding.first_sweeps == 0 && starts.size() <= population.size();  // all are in it already
    for (const auto &start : unchanged ? std::span<const std::vector<Id>>{} : starts) admit(graph, population, {start, State(graph, limits, start).cost()});
    Random random = Random::split(seed, 1u << 20);
    const auto size = static_cast<std::uint32_t>(population.size());
    for (Id i = 0; i < breeding.children && !cap.passed(); i += batch) {
        std::array<Individual, 2> children;
        std::array<std::array<std::uint32_t, 2>, 2> parents{};
        for (auto &pair : parents) {
            pair[0] = random.below(size);
            pair[1] = (pair[0] + 1 + random.below(size - 1)) % size;
        }
        at_once(batch, [&](Id which) {
            const auto *a = &population[parents[which][0]], *b = &population[parents[which][1]];
            if (b->cost < a->cost) std::swap(a, b);
            const Random own = Random::split(seed, (2u << 20) + static_cast<std::uint64_t>(i + which));
            const bool alone = (i + which) % mutation_one_in == mutation_one_in - 1;
            children[which] = alone ? breeder.mutate(*a, own) : breeder.cross(*a, *b, own);
        });
        for (Id which = 0; which < batch; ++which) admit(graph, population, std::move(children[which]));
    }
    return std::min_element(population.begin(), population.end(), [](const auto &a, const auto &b) {
               return a.cost < b.cost;
           })->node;
}

}  // namespace penstock
