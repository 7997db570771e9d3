#include "evenkeel/plan/step_routes.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

// Transfers of one side, by the rank on the other side, then by expert.
std::vector<Transfer> sorted_transfers(const StepPlan& plan, RankId me, RankId Transfer::* mine,
                                       RankId Transfer::* other) {
  std::vector<Transfer> chosen;
  for (const Transfer& transfer : plan.transfers())
    if (transfer.*mine == me) chosen.push_back(transfer);
  std::ranges::sort(chosen, [&](const Transfer& a, const Transfer& b) {
    return a.*other != b.*other ? a.*other < b.*other : a.expert < b.expert;
  });
  return chosen;
}

std::int64_t sum_of(const std::vector<std::int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

[[noreturn]] void throw_not_counted() {
  throw InvalidArgument("experts", "the counts of this rank are not those of its choices",
                        "the choices that were counted");
}

}  // namespace

StepRoutes StepRouter::route(std::span<const std::int64_t> experts, int k, const Counts& counts,
                             const StepPlan& plan, const LayerPlacement& placement, RankId me) {
  me_ = me;
  deal_.make(counts, plan, me);
  StepRoutes routes;
  routes.sent_counts.assign(deal_.sent().begin(), deal_.sent().end());
  routes.sent_counts[me.offset()] = 0;
  routes.received_counts.assign(deal_.received().begin(), deal_.received().end());
  routes.received_counts[me.offset()] = 0;
  find_slots(placement, plan, routes);
  find_offsets(routes);
  send(experts, k, routes);
  order_positions(routes);
  return routes;
}

void StepRouter::find_slots(const LayerPlacement& placement, const StepPlan& plan, StepRoutes& routes) {
  const auto ranks = static_cast<std::size_t>(plan.num_ranks());
  const auto natives = placement.natives(me_);
  slot_of_.assign(static_cast<std::size_t>(plan.num_experts()), -1);
  for (std::size_t i = 0; i < natives.size(); ++i)
    slot_of_[natives[i].offset()] = static_cast<std::int64_t>(i);
  routes.lent_counts.assign(ranks, 0);
  for (const Transfer& transfer : sorted_transfers(plan, me_, &Transfer::from, &Transfer::to)) {
    routes.lent.push_back(slot_of_[transfer.expert.offset()]);
    ++routes.lent_counts[transfer.to.offset()];
  }
  routes.borrowed_counts.assign(ranks, 0);
  for (const Transfer& transfer : sorted_transfers(plan, me_, &Transfer::to, &Transfer::from)) {
    slot_of_[transfer.expert.offset()] = static_cast<std::int64_t>(natives.size() + routes.borrowed.size());
    routes.borrowed.push_back(transfer.expert.value());
    ++routes.borrowed_counts[transfer.from.offset()];
  }
}

// Where the first position of each piece of the deal goes: for other ranks among sent positions, for this one among
// its own.
void StepRouter::find_offsets(StepRoutes& routes) {
  const std::size_t ranks = routes.sent_counts.size();
  offsets_.assign(ranks, 0);
  std::exclusive_scan(routes.sent_counts.begin(), routes.sent_counts.end(), offsets_.begin(),
                      std::int64_t{0});
  offsets_[me_.offset()] = 0;
  piece_begin_.assign(1, 0);
  next_.clear();
  for (std::size_t e = 0; e < slot_of_.size(); ++e) {
    for (const Deal::Piece& piece : deal_.pieces(ExpertId(e))) {
      next_.push_back(offsets_[piece.rank.offset()]);
      offsets_[piece.rank.offset()] += piece.count;
    }
    piece_begin_.push_back(next_.size());
  }
}

void StepRouter::send(std::span<const std::int64_t> experts, int k, StepRoutes& routes) {
  const std::size_t ranks = routes.sent_counts.size();
  const std::int64_t tokens = static_cast<std::int64_t>(experts.size()) / k;
  const std::int64_t sent = sum_of(routes.sent_counts);
  const std::int64_t own = deal_.sent()[me_.offset()];
  routes.sent_positions.resize(static_cast<std::size_t>(sent));
  routes.row_of.assign(static_cast<std::size_t>(sent) + ranks, 0);
  routes.own_positions.resize(static_cast<std::size_t>(own));
  routes.result_of.assign(experts.size(), sent + own);

  // Rows have gaps at first: a destination gets one of each token at most.
  row_begin_.assign(ranks, 0);
  std::int64_t most_rows = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    row_begin_[r] = most_rows;
    most_rows += std::min(tokens, routes.sent_counts[r]);
  }
  routes.sent_rows.resize(static_cast<std::size_t>(most_rows));
  routes.sent_row_counts.assign(ranks, 0);
  last_token_.assign(ranks, -1);
  cursors_.assign(slot_of_.size(), {});
  for (std::size_t e = 0; e < slot_of_.size(); ++e) {
    const auto pieces = deal_.pieces(ExpertId(e));
    cursors_[e] = {piece_begin_[e], pieces.empty() ? 0 : pieces.front().count};
  }

  std::int64_t dealt = 0;
  for (std::int64_t token = 0, at = 0; token < tokens; ++token)
    for (int place = 0; place < k; ++place, ++at) {
      const std::int64_t expert = experts[static_cast<std::size_t>(at)];
      if (expert == -1) continue;
      if (expert < 0 || expert >= static_cast<std::int64_t>(slot_of_.size())) throw_not_counted();
      const auto e = static_cast<std::size_t>(expert);
      Cursor& cursor = cursors_[e];
      const auto pieces = deal_.pieces(ExpertId(expert));
      while (cursor.left == 0) {
        if (++cursor.piece >= piece_begin_[e + 1]) throw_not_counted();
        cursor.left = pieces[cursor.piece - piece_begin_[e]].count;
      }
      --cursor.left;
      ++dealt;
      const RankId to = pieces[cursor.piece - piece_begin_[e]].rank;
      const auto position = static_cast<std::size_t>(next_[cursor.piece]++);
      if (to == me_) {
        routes.own_positions[position] = at;
        routes.result_of[static_cast<std::size_t>(at)] = sent + static_cast<std::int64_t>(position);
        continue;
      }
      const std::size_t r = to.offset();
      if (last_token_[r] != token) {
        last_token_[r] = token;
        routes.sent_rows[static_cast<std::size_t>(row_begin_[r] + routes.sent_row_counts[r]++)] = token;
      }
      routes.sent_positions[position] = at;
      routes.row_of[position + r + 1] = routes.sent_row_counts[r] - 1;
      routes.result_of[static_cast<std::size_t>(at)] = static_cast<std::int64_t>(position);
    }
  if (dealt != sent + own) throw_not_counted();

  // The gaps closed, and each rank told how many rows it gets.
  std::int64_t rows = 0, positions = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto from = routes.sent_rows.begin() + row_begin_[r];
    std::copy(from, from + routes.sent_row_counts[r], routes.sent_rows.begin() + rows);
    rows += routes.sent_row_counts[r];
    routes.row_of[static_cast<std::size_t>(positions) + r] = routes.sent_row_counts[r];
    positions += routes.sent_counts[r];
  }
  routes.sent_rows.resize(static_cast<std::size_t>(rows));
}

void StepRouter::order_positions(StepRoutes& routes) {
  const std::size_t ranks = routes.received_counts.size();
  const auto here = deal_.experts_here();
  // Of each source, where its positions of the next expert begin in the numbering of positions here.
  offsets_.assign(ranks, 0);
  std::exclusive_scan(routes.received_counts.begin(), routes.received_counts.end(), offsets_.begin(),
                      static_cast<std::int64_t>(routes.own_positions.size()));
  offsets_[me_.offset()] = 0;
  std::vector<std::int64_t> begin(here.size() * ranks);
  for (std::size_t i = 0; i < here.size(); ++i)
    for (std::size_t r = 0; r < ranks; ++r) {
      begin[i * ranks + r] = offsets_[r];
      offsets_[r] += deal_.arrivals(i)[r];
    }

  std::vector<std::size_t> by_slot(here.size());
  std::iota(by_slot.begin(), by_slot.end(), std::size_t{0});
  const auto slot = [&](std::size_t i) { return slot_of_[here[i].offset()]; };
  std::ranges::sort(by_slot, {}, slot);

  const auto positions =
      static_cast<std::size_t>(sum_of(routes.received_counts)) + routes.own_positions.size();
  routes.order.reserve(positions);
  routes.slots.reserve(positions);
  routes.computed_at.resize(positions);
  const auto compute = [&](std::size_t i, std::size_t source) {
    const std::int64_t first = begin[i * ranks + source];
    for (std::int64_t j = 0; j < deal_.arrivals(i)[source]; ++j) {
      routes.computed_at[static_cast<std::size_t>(first + j)] = static_cast<std::int64_t>(routes.order.size());
      routes.order.push_back(first + j);
      routes.slots.push_back(slot(i));
    }
  };
  for (std::size_t i : by_slot) {
    compute(i, me_.offset());
    for (std::size_t r = 0; r < ranks; ++r)
      if (r != me_.offset()) compute(i, r);
    if (!deal_.borrows(i)) routes.native_positions = static_cast<std::int64_t>(routes.order.size());
  }
}

}  // namespace evenkeel
