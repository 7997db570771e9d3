#include "evenkeel/plan/step_routes.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

// Transfers of one side, by the rank on the other side, then by expert.
std::vector<Transfer> sorted_transfers(const StepPlan& plan, RankId me, RankId Transfer::*mine,
                                       RankId Transfer::*other) {
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

void StepRoutes::find_rows(std::span<const std::int64_t> arrived, int k) {
  const auto require = [](bool holds) {
    if (!holds)
      throw InvalidArgument("arrived", "other ranks' rows are not those of the plan", "their row_of");
  };
  require(k >= 1 &&
          arrived.size() == static_cast<std::size_t>(sum_of(received_counts)) + received_counts.size());
  pool_rows.resize(order.size());
  received_row_counts.assign(received_counts.size(), 0);
  for (std::size_t i = 0; i < own_positions.size(); ++i)
    pool_rows[static_cast<std::size_t>(computed_at[i])] = own_positions[i] / k;
  auto first = static_cast<std::int64_t>(result_of.size()) / k;  // after this rank's tokens
  auto position = own_positions.size();
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < received_counts.size(); ++rank) {
    const std::int64_t rows = arrived[at++];
    require(rows >= 0 && rows <= received_counts[rank]);
    for (std::int64_t i = 0; i < received_counts[rank]; ++i) {
      const std::int64_t row = arrived[at++];
      require(row >= 0 && row < rows);
      pool_rows[static_cast<std::size_t>(computed_at[position++])] = first + row;
    }
    received_row_counts[rank] = rows;
    first += rows;
  }
}

void StepRouter::route(std::span<const std::int64_t> experts, int k, const Counts& counts,
                       const StepPlan& plan, const LayerPlacement& placement, RankId me, StepRoutes& routes) {
  if (k < 1) throw InvalidArgument("k", std::to_string(k), "1 or more");
  me_ = me;
  deal_.make(counts, plan, me);
  routes.sent_counts.assign(deal_.sent().begin(), deal_.sent().end());
  routes.sent_counts[me.offset()] = 0;
  routes.received_counts.assign(deal_.received().begin(), deal_.received().end());
  routes.received_counts[me.offset()] = 0;
  routes.moves_weights = !plan.transfers().empty();
  find_slots(placement, plan, routes);
  find_offsets(routes);
  make_space(experts.size(), static_cast<std::int64_t>(experts.size()) / k, routes);
  send(experts, k, routes);
  close_gaps(routes);
  order_positions(routes);
}

void StepRouter::find_slots(const LayerPlacement& placement, const StepPlan& plan, StepRoutes& routes) {
  const auto ranks = static_cast<std::size_t>(plan.num_ranks());
  const auto natives = placement.natives(me_);
  slot_of_.assign(static_cast<std::size_t>(plan.num_experts()), -1);
  for (std::size_t i = 0; i < natives.size(); ++i)
    slot_of_[natives[i].offset()] = static_cast<std::int64_t>(i);
  routes.lent.clear();
  routes.lent_counts.assign(ranks, 0);
  for (const Transfer& transfer : sorted_transfers(plan, me_, &Transfer::from, &Transfer::to)) {
    routes.lent.push_back(slot_of_[transfer.expert.offset()]);
    ++routes.lent_counts[transfer.to.offset()];
  }
  routes.borrowed.clear();
  routes.borrowed_counts.assign(ranks, 0);
  for (const Transfer& transfer : sorted_transfers(plan, me_, &Transfer::to, &Transfer::from)) {
    slot_of_[transfer.expert.offset()] = static_cast<std::int64_t>(natives.size() + routes.borrowed.size());
    routes.borrowed.push_back(transfer.expert.value());
    ++routes.borrowed_counts[transfer.from.offset()];
  }
}

// Where the first position of each piece of the deal goes: for other ranks among sent positions, for this one
// among its own.
void StepRouter::find_offsets(const StepRoutes& routes) {
  offsets_.resize(routes.sent_counts.size());
  std::exclusive_scan(routes.sent_counts.begin(), routes.sent_counts.end(), offsets_.begin(),
                      std::int64_t{0});
  offsets_[me_.offset()] = 0;
  piece_begin_.clear();
  first_.clear();
  for (ExpertId expert : indices<ExpertId>(static_cast<std::int32_t>(slot_of_.size()))) {
    piece_begin_.push_back(first_.size());
    for (const Deal::Piece& piece : deal_.pieces(expert)) {
      first_.push_back(offsets_[piece.rank.offset()]);
      offsets_[piece.rank.offset()] += piece.count;
    }
  }
  piece_begin_.push_back(first_.size());
}

// Rows have gaps at first: a rank gets one of each token at most.
void StepRouter::make_space(std::size_t assignments, std::int64_t tokens, StepRoutes& routes) {
  const std::size_t ranks = routes.sent_counts.size();
  const auto sent = static_cast<std::size_t>(sum_of(routes.sent_counts));
  const auto own = static_cast<std::size_t>(deal_.sent()[me_.offset()]);
  routes.sent_positions.resize(sent);
  routes.row_of.resize(sent + ranks);
  routes.own_positions.resize(own);
  routes.result_of.resize(assignments);
  row_begin_.resize(ranks);
  std::int64_t most_rows = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    row_begin_[r] = most_rows;
    most_rows += std::min(tokens, routes.sent_counts[r]);
  }
  routes.sent_rows.resize(static_cast<std::size_t>(most_rows));
  routes.sent_row_counts.assign(ranks, 0);
  last_token_.assign(ranks, -1);
  cursors_.resize(slot_of_.size());
  for (std::size_t e = 0; e < slot_of_.size(); ++e) {
    const auto pieces = deal_.pieces(ExpertId(e));
    cursors_[e] = {};
    if (!pieces.empty()) cursors_[e] = {pieces[0].count, first_[piece_begin_[e]], pieces[0].rank, 0};
  }
}

void StepRouter::advance(ExpertId expert, Cursor& cursor) const {
  const auto pieces = deal_.pieces(expert);
  while (cursor.left == 0) {
    if (++cursor.piece >= pieces.size()) throw_not_counted();
    cursor.left = pieces[cursor.piece].count;
    cursor.to = pieces[cursor.piece].rank;
    cursor.position = first_[piece_begin_[expert.offset()] + cursor.piece];
  }
}

void StepRouter::send(std::span<const std::int64_t> experts, int k, StepRoutes& routes) {
  const auto num_experts = static_cast<std::int64_t>(slot_of_.size());
  const auto sent = static_cast<std::int64_t>(routes.sent_positions.size());
  const auto own = static_cast<std::int64_t>(routes.own_positions.size());
  std::int64_t dealt = 0;
  for (std::size_t at = 0; at < experts.size(); ++at) {
    const std::int64_t expert = experts[at];
    if (expert == -1) {
      routes.result_of[at] = sent + own;
      continue;
    }
    if (expert < 0 || expert >= num_experts) throw_not_counted();
    Cursor& cursor = cursors_[static_cast<std::size_t>(expert)];
    if (cursor.left == 0) advance(ExpertId(expert), cursor);
    --cursor.left;
    ++dealt;
    const std::int64_t position = cursor.position++;
    if (cursor.to == me_) {
      routes.own_positions[static_cast<std::size_t>(position)] = static_cast<std::int64_t>(at);
      routes.result_of[at] = sent + position;
      continue;
    }
    const std::size_t r = cursor.to.offset();
    const auto token = static_cast<std::int64_t>(at / static_cast<std::size_t>(k));
    if (last_token_[r] != token) {
      last_token_[r] = token;
      routes.sent_rows[static_cast<std::size_t>(row_begin_[r] + routes.sent_row_counts[r]++)] = token;
    }
    routes.sent_positions[static_cast<std::size_t>(position)] = static_cast<std::int64_t>(at);
    routes.row_of[static_cast<std::size_t>(position) + r + 1] = routes.sent_row_counts[r] - 1;
    routes.result_of[at] = position;
  }
  if (dealt != sent + own) throw_not_counted();
}

// Leaves no gap between the rows of two ranks, and tells each rank how many rows it gets.
void StepRouter::close_gaps(StepRoutes& routes) const {
  std::int64_t rows = 0;
  std::size_t positions = 0;
  for (std::size_t r = 0; r < routes.sent_counts.size(); ++r) {
    const auto from = routes.sent_rows.begin() + row_begin_[r];
    std::copy(from, from + routes.sent_row_counts[r], routes.sent_rows.begin() + rows);
    rows += routes.sent_row_counts[r];
    routes.row_of[positions + r] = routes.sent_row_counts[r];
    positions += static_cast<std::size_t>(routes.sent_counts[r]);
  }
  routes.sent_rows.resize(static_cast<std::size_t>(rows));
}

void StepRouter::order_positions(StepRoutes& routes) {
  const std::size_t ranks = routes.received_counts.size();
  const auto here = deal_.experts_here();
  std::exclusive_scan(routes.received_counts.begin(), routes.received_counts.end(), offsets_.begin(),
                      static_cast<std::int64_t>(routes.own_positions.size()));
  offsets_[me_.offset()] = 0;
  begin_.resize(here.size() * ranks);
  for (std::size_t i = 0; i < here.size(); ++i)
    for (std::size_t r = 0; r < ranks; ++r) {
      begin_[i * ranks + r] = offsets_[r];
      offsets_[r] += deal_.arrivals(i)[r];
    }
  const auto slot = [&](std::size_t i) { return slot_of_[here[i].offset()]; };
  by_slot_.resize(here.size());
  std::iota(by_slot_.begin(), by_slot_.end(), std::size_t{0});
  std::ranges::sort(by_slot_, {}, slot);

  const auto positions =
      static_cast<std::size_t>(sum_of(routes.received_counts)) + routes.own_positions.size();
  routes.order.resize(positions);
  routes.slots.resize(positions);
  routes.computed_at.resize(positions);
  std::size_t computed = 0;
  const auto compute = [&](std::size_t i, std::size_t source) {
    const auto first = static_cast<std::size_t>(begin_[i * ranks + source]);
    const auto count = static_cast<std::size_t>(deal_.arrivals(i)[source]);
    for (std::size_t j = 0; j < count; ++j) {
      routes.computed_at[first + j] = static_cast<std::int64_t>(computed + j);
      routes.order[computed + j] = static_cast<std::int64_t>(first + j);
    }
    std::fill_n(routes.slots.begin() + static_cast<std::ptrdiff_t>(computed), count, slot(i));
    computed += count;
  };
  routes.native_positions = 0;
  for (std::size_t i : by_slot_) {
    compute(i, me_.offset());
    for (std::size_t r = 0; r < ranks; ++r)
      if (r != me_.offset()) compute(i, r);
    if (!deal_.borrows(i)) routes.native_positions = static_cast<std::int64_t>(computed);
  }
}

}  // namespace evenkeel
