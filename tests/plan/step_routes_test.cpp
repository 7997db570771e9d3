// A step carried out by every rank's routes computes each assignment once, where the deal says, on its
// token's row.
#include "evenkeel/plan/step_routes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "evenkeel/balance/planner.h"
#include "evenkeel/base/error.h"
#include "tests/plan/deal_oracle.h"

namespace evenkeel::testing {
namespace {

using Numbers = std::vector<std::int64_t>;

Numbers as_numbers(const std::vector<std::int32_t>& ids) {
  return {ids.begin(), ids.end()};
}

std::size_t sum_before(const Numbers& counts, std::size_t rank) {
  std::int64_t sum = 0;
  for (std::size_t r = 0; r < rank; ++r) sum += counts[r];
  return static_cast<std::size_t>(sum);
}

// The step of all ranks, with messages as a framework's all-to-all delivers them.
class Step {
 public:
  Step(const Choices& choices, const StepPlan& plan, const LayerPlacement& placement)
      : choices_(choices), plan_(plan), placement_(placement), routes_(choices.ids.size()) {
    StepRouter router;
    for (std::size_t me = 0; me < routes_.size(); ++me)
      router.send(as_numbers(choices.ids[me]), choices.k, choices.counts(), plan, placement, RankId(me),
                  routes_[me]);
  }

  void expect_right(const std::string& what) const {
    const auto to = destinations(choices_, plan_);
    std::vector<std::vector<int>> computed(routes_.size());
    for (std::size_t r = 0; r < routes_.size(); ++r) computed[r].assign(choices_.ids[r].size(), 0);
    for (std::size_t me = 0; me < routes_.size(); ++me) {
      const auto all = positions_at(me);
      ReceivedRoutes routes;
      receive_routes(routes_[me], arrived_at(me), choices_.k, routes);
      ASSERT_EQ(routes.order.size(), all.size()) << what;
      std::tuple<std::int64_t, std::size_t, std::int64_t> last{-1, 0, 0};
      for (std::size_t i = 0; i < routes.order.size(); ++i) {
        const auto number = static_cast<std::size_t>(routes.order[i]);
        ASSERT_EQ(routes.computed_at[number], static_cast<std::int64_t>(i)) << what;
        const Position& position = all[number];
        const auto assignment = static_cast<std::size_t>(position.assignment);
        const int expert = choices_.ids[position.source][assignment];
        ASSERT_EQ(to[position.source][assignment], static_cast<int>(me)) << what;
        ASSERT_EQ(position.token, position.assignment / choices_.k) << what;
        ASSERT_EQ(expert_of(me, routes.slots[i]), expert) << what;
        ASSERT_EQ(placement_.is_home(ExpertId(expert), RankId(me)),
                  static_cast<std::int64_t>(i) < routes_[me].native_positions)
            << what;
        ++computed[position.source][assignment];
        const std::tuple now{routes.slots[i], position.source, position.assignment};
        ASSERT_LT(last, now) << what << ": order of rank " << me;
        last = now;
      }
      expect_rows(me, routes, all, what);
      expect_refusals(me);
      expect_results(me, what);
      expect_lent(me, what);
    }
    for (std::size_t r = 0; r < computed.size(); ++r)
      for (std::size_t a = 0; a < computed[r].size(); ++a)
        ASSERT_EQ(computed[r][a], choices_.ids[r][a] >= 0 ? 1 : 0) << what;
  }

 private:
  struct Position {
    std::size_t source;
    std::int64_t assignment, token;
  };

  // In their numbering: this rank's own, then those that messages bring.
  std::vector<Position> positions_at(std::size_t me) const {
    std::vector<Position> all;
    for (std::int64_t assignment : routes_[me].own_positions())
      all.push_back({me, assignment, assignment / choices_.k});
    for (std::size_t source = 0; source < routes_.size(); ++source) {
      const StepRoutes& from = routes_[source];
      EXPECT_EQ(from.sent_counts[me], routes_[me].received_counts[source]);
      const std::size_t first = sum_before(from.sent_counts, me), rows = sum_before(from.sent_row_counts, me);
      EXPECT_EQ(from.row_of[first + me], from.sent_row_counts[me]);
      for (std::size_t i = 0; i < static_cast<std::size_t>(from.sent_counts[me]); ++i) {
        const auto row = static_cast<std::size_t>(from.row_of[first + me + 1 + i]);
        EXPECT_LT(row, static_cast<std::size_t>(from.sent_row_counts[me]));
        all.push_back({source, from.sent_positions()[first + i], from.sent_rows[rows + row]});
      }
      const auto begin = from.sent_rows.begin() + static_cast<std::ptrdiff_t>(rows);
      EXPECT_EQ(std::set(begin, begin + from.sent_row_counts[me]).size(),
                static_cast<std::size_t>(from.sent_row_counts[me]))
          << "a row is sent twice";
    }
    return all;
  }

  // The messages to a rank.
  Numbers arrived_at(std::size_t me) const {
    Numbers arrived;
    for (const StepRoutes& from : routes_) {
      const auto first =
          from.row_of.begin() + static_cast<std::ptrdiff_t>(sum_before(from.sent_counts, me) + me);
      arrived.insert(arrived.end(), first, first + from.sent_counts[me] + 1);
    }
    return arrived;
  }

  // Each position reads its token's row, of this rank's tokens or of the rows that each rank sends.
  void expect_rows(std::size_t me, const ReceivedRoutes& routes, const std::vector<Position>& all,
                   const std::string& what) const {
    Numbers tokens;
    std::vector<std::size_t> owners(choices_.ids[me].size() / static_cast<std::size_t>(choices_.k), me);
    for (std::size_t token = 0; token < owners.size(); ++token)
      tokens.push_back(static_cast<std::int64_t>(token));
    for (std::size_t source = 0; source < routes_.size(); ++source) {
      const StepRoutes& from = routes_[source];
      ASSERT_EQ(routes.row_counts[source], from.sent_row_counts[me]) << what;
      const auto row =
          from.sent_rows.begin() + static_cast<std::ptrdiff_t>(sum_before(from.sent_row_counts, me));
      tokens.insert(tokens.end(), row, row + from.sent_row_counts[me]);
      owners.resize(tokens.size(), source);
    }
    ASSERT_EQ(routes.pool_rows.size(), all.size()) << what;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Position& position = all[static_cast<std::size_t>(routes.order[i])];
      const auto row = static_cast<std::size_t>(routes.pool_rows[i]);
      ASSERT_LT(row, tokens.size()) << what;
      ASSERT_EQ(tokens[row], position.token) << what;
      ASSERT_EQ(owners[row], position.source) << what;
    }
  }

  void expect_refusals(std::size_t me) const {
    Numbers arrived = arrived_at(me);
    ReceivedRoutes routes;
    for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{1} << 40})
      for (std::size_t at = 0; at < std::min<std::size_t>(arrived.size(), 3); ++at) {
        Numbers other = arrived;
        other[at] = wrong;
        EXPECT_THROW(receive_routes(routes_[me], other, choices_.k, routes), InvalidArgument);
      }
    arrived.pop_back();
    EXPECT_THROW(receive_routes(routes_[me], arrived, choices_.k, routes), InvalidArgument);
  }

  int expert_of(std::size_t me, std::int64_t slot) const {
    const auto natives = placement_.natives(RankId(me));
    const auto at = static_cast<std::size_t>(slot);
    return at < natives.size() ? natives[at].value()
                               : static_cast<int>(routes_[me].borrowed[at - natives.size()]);
  }

  void expect_results(std::size_t me, const std::string& what) const {
    const StepRoutes& routes = routes_[me];
    const auto& ids = choices_.ids[me];
    const std::size_t sent = routes.sent_positions().size();
    ASSERT_EQ(routes.result_of.size(), ids.size()) << what;
    for (std::size_t a = 0; a < ids.size(); ++a) {
      const auto at = static_cast<std::size_t>(routes.result_of[a]);
      if (ids[a] < 0)
        ASSERT_EQ(at, sent + routes.own_positions().size()) << what;
      else
        ASSERT_EQ(at < sent ? routes.sent_positions()[at] : routes.own_positions()[at - sent],
                  static_cast<std::int64_t>(a))
            << what;
    }
  }

  // The experts that a rank lends arrive at the others as those that they borrow.
  void expect_lent(std::size_t me, const std::string& what) const {
    for (std::size_t other = 0; other < routes_.size(); ++other) {
      const StepRoutes& to = routes_[other];
      ASSERT_EQ(routes_[me].lent_counts[other], to.borrowed_counts[me]) << what;
      for (std::size_t i = 0; i < static_cast<std::size_t>(to.borrowed_counts[me]); ++i)
        ASSERT_EQ(expert_of(me, routes_[me].lent[sum_before(routes_[me].lent_counts, other) + i]),
                  to.borrowed[sum_before(to.borrowed_counts, me) + i])
            << what;
    }
  }

  const Choices& choices_;
  const StepPlan& plan_;
  const LayerPlacement& placement_;
  std::vector<StepRoutes> routes_;
};

TEST(StepRoutes, ComputeEveryAssignmentOnceWhereTheDealSaysForAnyPlan) {
  StepPlan plan;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const int ranks = static_cast<int>(random() % 7) + 1;
    const Choices choices = random_choices(random, ranks);
    const LayerPlacement placement = random_placement(random, choices.num_experts, ranks, seed % 3 == 0);
    if (seed % 2 == 0)
      fill_random_plan(random, choices.counts(), placement, plan);
    else
      make_planner({PlannerOptions::Kind::level, 1000, static_cast<std::int64_t>(random() % 8), 0})
          ->plan(choices.counts(), placement, plan);
    Step(choices, plan, placement).expect_right("seed " + std::to_string(seed));
  }
}

TEST(StepRoutes, RefuseChoicesThatWereNotCounted) {
  const Choices choices{2, 1, {{0, 0, 1}, {1}}};
  const LayerPlacement placement = LayerPlacement::contiguous(2, 2);
  StepPlan plan;
  make_planner({PlannerOptions::Kind::ep})->plan(choices.counts(), placement, plan);
  StepRouter router;
  StepRoutes routes;
  for (const Numbers& other : {Numbers{0, 0, 0}, Numbers{0, 0}, Numbers{0, 0, 2}, Numbers{0, 0, -2}})
    EXPECT_THROW(router.send(other, 1, choices.counts(), plan, placement, RankId(0), routes),
                 InvalidArgument);
  router.send(Numbers{0, 0, 1}, 1, choices.counts(), plan, placement, RankId(0), routes);
  EXPECT_TRUE(std::ranges::equal(routes.own_positions(), Numbers{0, 1}));
}

}  // namespace
}  // namespace evenkeel::testing
