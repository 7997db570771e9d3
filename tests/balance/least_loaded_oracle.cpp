#include "tests/balance/least_loaded_oracle.h"

#include <algorithm>
#include <numeric>

namespace evenkeel {

namespace {

__extension__ using Wide = __int128;

struct Item {
  int expert;
  int home;
  std::int64_t load;
};

class Oracle {
 public:
  Oracle(const Case& c, std::int64_t alpha, std::int64_t m, std::int64_t lambda)
      : case_(c), m_(m), lambda_(lambda), given_(ranks(), 0), pending_(ranks(), 0), base_(ranks(), 0) {
    std::ranges::copy(c.base_load, base_.begin());
    given_ = base_;
    total_ = std::accumulate(c.loads.begin(), c.loads.end(), std::int64_t{0});
    const Wide all = std::accumulate(base_.begin(), base_.end(), Wide{total_});
    capacity_ = all * alpha / (Wide{1000} * case_.num_ranks);
    plan_.segments.resize(c.loads.size());
  }

  OraclePlan run() {
    for (int e : by_decreasing_share())
      for (const Item& item : copies(e)) pending_[at(item.home)] += item.load;
    const bool plain = stays_home();
    for (int e : by_decreasing_share())
      for (const Item& item : copies(e)) plain ? add(item, item.home, item.load) : assign(item);
    return plan_;
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(case_.num_ranks); }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  bool stays_home() const {
    if (case_.num_ranks == 1 || total_ < case_.num_ranks) return true;
    const Wide largest = *std::ranges::max_element(case_.loads);
    return largest * static_cast<Wide>(case_.loads.size()) * 1000 < Wide{lambda_} * total_;
  }

  std::vector<Item> copies(int e) const {
    std::vector<Item> items;
    const auto n = static_cast<std::int64_t>(case_.homes[at(e)].size());
    std::int64_t rest = case_.loads[at(e)];
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t share = (rest + (n - i) - 1) / (n - i);
      items.push_back({e, case_.homes[at(e)][static_cast<std::size_t>(i)], share});
      rest -= share;
    }
    return items;
  }

  std::vector<int> by_decreasing_share() const {
    std::vector<int> order(case_.loads.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int a, int b) { return copies(a)[0].load > copies(b)[0].load; });
    return order;
  }

  void add(const Item& item, int rank, std::int64_t count) {
    if (count == 0) return;
    auto& segments = plan_.segments[at(item.expert)];
    const std::int64_t begin = segments.empty() ? 0 : segments.back().end;
    segments.push_back({rank, begin, begin + count});
    given_[at(rank)] += count;
    const auto& homes = case_.homes[at(item.expert)];
    const std::vector<int> transfer = {item.expert, rank};
    if (std::ranges::find(homes, rank) == homes.end() &&
        std::ranges::find(plan_.transfers, transfer) == plan_.transfers.end())
      plan_.transfers.push_back(transfer);
  }

  Wide sum(int rank) const { return Wide{given_[at(rank)]} + pending_[at(rank)]; }

  void assign(const Item& item) {
    pending_[at(item.home)] -= item.load;
    const Wide available = capacity_ - sum(item.home);
    if (available >= item.load) return add(item, item.home, item.load);
    if (available > 0) {
      add(item, item.home, static_cast<std::int64_t>(available));
      return spill(item, item.load - static_cast<std::int64_t>(available));
    }
    spill(item, item.load);
  }

  void spill(const Item& item, std::int64_t rest) {
    while (rest > 0) {
      std::vector<int> others;
      for (int r = 0; r < case_.num_ranks; ++r)
        if (r != item.home) others.push_back(r);
      std::ranges::stable_sort(others, [&](int a, int b) { return sum(a) < sum(b); });
      bool assigned = false;
      for (int o : others) {
        const Wide spare = capacity_ - sum(o);
        const Wide chunk = spare < rest ? spare : Wide{rest};
        if (chunk <= 0) continue;
        if (chunk < m_ && rest > chunk) continue;
        add(item, o, static_cast<std::int64_t>(chunk));
        rest -= static_cast<std::int64_t>(chunk);
        assigned = true;
        break;
      }
      if (!assigned) {
        add(item, others[0], rest);
        rest = 0;
      }
    }
  }

  const Case& case_;
  std::int64_t m_, lambda_;
  std::vector<std::int64_t> given_, pending_, base_;
  std::int64_t total_ = 0;
  Wide capacity_ = 0;
  OraclePlan plan_;
};

}  // namespace

OraclePlan least_loaded_oracle(const Case& c, std::int64_t alpha, std::int64_t m, std::int64_t lambda) {
  return Oracle(c, alpha, m, lambda).run();
}

}  // namespace evenkeel
