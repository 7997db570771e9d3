#include "evenkeel/plan/step_routes.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

// Transfers of one side, by the rank on the other side, then by expert.
std::vector<Transfer> sorted_transfers(std::span<const Transfer> transfers, RankId me, RankId Transfer::*mine,
                                       RankId Transfer::*other) {
  std::vector<Transfer> chosen;
  for (const Transfer& transfer : transfers)
    if (transfer.*mine == me) chosen.push_back(transfer);
  std::ranges::sort(chosen, {}, [&](const Transfer& t) { return std::pair(t.*other, t.expert); });
  return chosen;
}

std::size_t sum_of(std::span<const std::int64_t> numbers) {
  return static_cast<std::size_t>(std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0}));
}

void require_arrived(bool holds) {
  if (!holds) throw InvalidArgument("arrived", "other ranks' rows are not those of the plan", "their row_of");
}

// The positions that a rank computes for another, or for itself.
struct Source {
  std::size_t first_position = 0;
  std::int64_t first_row = 0;  // in the pool
  std::int64_t rows = 0;
  std::span<const std::int64_t> row_of;  // empty for the rank itself
};

std::vector<Source> find_sources(const StepRoutes& sent, std::span<const std::int64_t> arrived, int k) {
  const std::span<const std::int64_t> counts = sent.received_counts;
  require_arrived(k >= 1 && arrived.size() == sum_of(counts) + counts.size());
  std::vector<Source> sources;
  std::size_t position = sent.own_positions().size();
  std::int64_t row = std::ssize(sent.result_of) / k;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const std::int64_t rows = arrived.front();
    require_arrived(rows >= 0 && rows <= counts[rank]);
    sources.push_back({position, row, rows, arrived.subspan(1, static_cast<std::size_t>(counts[rank]))});
    arrived = arrived.subspan(1 + static_cast<std::size_t>(counts[rank]));
    position += static_cast<std::size_t>(counts[rank]);
    row += rows;
  }
  sources[sent.me.offset()] = {};
  return sources;
}

}  // namespace

void Loan::read(std::span<const Transfer> transfers, const LayerPlacement& placement, RankId me) {
  const auto ranks = static_cast<std::size_t>(placement.num_ranks());
  const auto natives = placement.natives(me);
  lent.clear();
  lent_counts.assign(ranks, 0);
  for (const Transfer& transfer : sorted_transfers(transfers, me, &Transfer::from, &Transfer::to)) {
    lent.push_back(std::ranges::lower_bound(natives, transfer.expert) - natives.begin());
    ++lent_counts[transfer.to.offset()];
  }
  borrowed.clear();
  borrowed_counts.assign(ranks, 0);
  for (const Transfer& transfer : sorted_transfers(transfers, me, &Transfer::to, &Transfer::from)) {
    borrowed.push_back(transfer.expert.value());
    ++borrowed_counts[transfer.from.offset()];
  }
}

void receive_routes(const StepRoutes& sent, std::span<const std::int64_t> arrived, int k,
                    ReceivedRoutes& received) {
  const std::vector<Source> sources = find_sources(sent, arrived, k);
  received.row_counts.clear();
  for (const Source& source : sources) received.row_counts.push_back(source.rows);
  const auto own = sent.own_positions();
  const std::size_t positions = own.size() + sum_of(sent.received_counts);
  for (auto* numbers : {&received.order, &received.computed_at, &received.pool_rows, &received.slots})
    numbers->resize(positions);
  std::vector<std::int64_t> taken(sources.size());
  const auto begin_of = [&](std::size_t group) { return sent.groups[group].begin; };
  for_each_arrival(sent.arrivals, std::span(taken), begin_of, [&](const Arrival& run) {
    const Source& source = sources[run.source];
    const bool from_me = run.source == sent.me.offset();
    for (std::size_t i = 0; i < run.count; ++i) {
      const std::size_t number = source.first_position + run.first + i;
      received.order[run.at + i] = static_cast<std::int64_t>(number);
      received.computed_at[number] = static_cast<std::int64_t>(run.at + i);
      received.slots[run.at + i] = sent.groups[run.expert].slot;
      if (from_me) {
        received.pool_rows[run.at + i] = own[number] / k;
        continue;
      }
      const std::int64_t row = source.row_of[run.first + i];
      require_arrived(row >= 0 && row < source.rows);
      received.pool_rows[run.at + i] = source.first_row + row;
    }
  });
}

void StepRouter::send(std::span<const std::int64_t> experts, int k, const Counts& counts,
                      const StepPlan& plan, const LayerPlacement& placement, RankId me, StepRoutes& routes) {
  if (k < 1) throw InvalidArgument("k", std::to_string(k), "1 or more");
  deal_.make(counts, plan, me);
  routes.me = me;
  routes.sent_counts.assign(deal_.sent().begin(), deal_.sent().end());
  routes.sent_counts[me.offset()] = 0;
  routes.received_counts.assign(deal_.received().begin(), deal_.received().end());
  routes.received_counts[me.offset()] = 0;
  routes.moves_weights = !plan.transfers().empty();
  find_slots(placement, plan, routes);
  find_groups(std::ssize(placement.natives(me)), routes);

  const std::size_t sent = sum_of(routes.sent_counts),
                    own = static_cast<std::size_t>(deal_.sent()[me.offset()]);
  routes.assignments.resize(sent + own);
  routes.sent_rows.resize(sent);
  routes.row_of.resize(sent + routes.sent_counts.size());
  routes.result_of.resize(experts.size());
  row_of_.resize(experts.size() / static_cast<std::size_t>(k));
  router_.send(experts, k, deal_, me,
               {.assignments = routes.assignments,
                .tokens = routes.sent_rows,
                .messages = routes.row_of,
                .own_message = {},
                .result_of = routes.result_of,
                .first_own = static_cast<std::int64_t>(sent),
                .first_sent = 0,
                .no_result = static_cast<std::int64_t>(sent + own)},
               row_of_);
  routes.sent_row_counts.clear();
  std::size_t header = 0;
  for (std::int64_t count : routes.sent_counts) {
    routes.sent_row_counts.push_back(routes.row_of[header]);
    header += static_cast<std::size_t>(count) + 1;
  }
  routes.sent_rows.resize(sum_of(routes.sent_row_counts));
}

void StepRouter::find_slots(const LayerPlacement& placement, const StepPlan& plan, StepRoutes& routes) {
  routes.read(plan.transfers(), placement, routes.me);
  slot_of_.assign(static_cast<std::size_t>(plan.num_experts()), -1);
  std::int64_t slot = 0;
  for (ExpertId expert : placement.natives(routes.me)) slot_of_[expert.offset()] = slot++;
  for (std::int64_t expert : routes.borrowed) slot_of_[static_cast<std::size_t>(expert)] = slot++;
}

void StepRouter::find_groups(std::int64_t natives, StepRoutes& routes) const {
  routes.arrivals.assign(deal_.arrivals().begin(), deal_.arrivals().end());
  routes.groups.clear();
  for (ExpertId expert : deal_.experts_here()) routes.groups.push_back({slot_of_[expert.offset()], 0});
  std::vector<std::size_t> by_slot(routes.groups.size());
  std::iota(by_slot.begin(), by_slot.end(), std::size_t{0});
  std::ranges::sort(by_slot, {}, [&](std::size_t i) { return routes.groups[i].slot; });
  std::int64_t begin = 0;
  routes.native_positions = 0;
  for (std::size_t i : by_slot) {
    routes.groups[i].begin = begin;
    begin = std::accumulate(deal_.arrivals(i).begin(), deal_.arrivals(i).end(), begin);
    if (routes.groups[i].slot < natives) routes.native_positions = begin;
  }
}

}  // namespace evenkeel
