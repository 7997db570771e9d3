#include "tests/exchange/cuda/host_routes.h"

#include <algorithm>

#include "evenkeel/exchange/cuda/internal/borrowing.h"
#include "evenkeel/exchange/cuda/internal/chunk_plan.h"
#include "evenkeel/exchange/cuda/internal/deal.h"
#include "evenkeel/exchange/cuda/internal/inward.h"
#include "evenkeel/exchange/cuda/internal/outward.h"
#include "evenkeel/exchange/cuda/internal/slices.h"

namespace evenkeel::testing {

namespace {

std::size_t size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}
const cuda::HostTeam kTeam;

}  // namespace

HostRoutes::HostRoutes(const Choices& choices, const LayerPlacement& placement, const StepPlan& plan,
                       const HostRoutesOptions& options)
    : choices_(choices),
      options_(options),
      tables_(placement),
      plan_(flat(plan, placement)),
      ranks_(size(choices.num_ranks())) {
  const int num_ranks = choices.num_ranks();
  std::int64_t all = 0;
  for (const auto& ids : choices.ids) all += static_cast<std::int64_t>(ids.size());
  const int borrow_slots = options.borrow_slots > 0 ? options.borrow_slots : choices.num_experts;
  block_counts_.resize(size(options.most_chunks) * size(num_ranks) * size(choices.num_experts));
  for (int r = 0; r < num_ranks; ++r) {
    RankTables& rank = ranks_[size(r)];
    const auto& ids = choices.ids[size(r)];
    rank.shape = {num_ranks,
                  choices.num_experts,
                  r,
                  choices.k,
                  options.num_slices,
                  options.most_chunks,
                  static_cast<int>(placement.natives(RankId(r)).size()),
                  borrow_slots,
                  (choices.num_experts + borrow_slots - 1) / borrow_slots,
                  static_cast<int>(ids.size()),
                  options.most_positions > 0 ? options.most_positions : static_cast<std::int32_t>(all)};
    count(rank, ids);
    point(rank);
    const int each = options.num_slices / options.most_chunks;
    for (int block = 0; block < options.most_chunks; ++block)
      for (int e = 0; e < choices.num_experts; ++e)
        block_counts_[(size(block) * size(num_ranks) + size(r)) * size(choices.num_experts) + size(e)] =
            rank.before[size((block + 1) * each * choices.num_experts + e)] -
            rank.before[size(block * each * choices.num_experts + e)];
  }
  std::vector<std::int32_t> loads(size(num_ranks));
  for (RankTables& rank : ranks_) {
    borrow(kTeam, rank.shape, tables_.view(), rank.step);
    choose_chunks(kTeam, rank.shape, rank.step, loads.data());
  }
}

void HostRoutes::count(RankTables& rank, const std::vector<std::int32_t>& ids) {
  const int experts = rank.shape.num_experts, slices = rank.shape.num_slices;
  const std::int64_t tokens = static_cast<std::int64_t>(ids.size()) / rank.shape.top_k;
  rank.before.assign(size(slices + 1) * size(experts), -9);
  rank.rank_in_slice.assign(ids.size(), 0);
  for (int slice = 0; slice < slices; ++slice) {
    const std::int64_t begin = cuda::first_token(rank.shape, tokens, slice) * rank.shape.top_k;
    const std::int64_t end = cuda::first_token(rank.shape, tokens, slice + 1) * rank.shape.top_k;
    const int lanes = 1 + slice % 5;
    std::vector<std::uint16_t> table(size(lanes) * size(experts), 99);
    cuda::count_slice(kTeam, ids.data() + begin, static_cast<int>(end - begin), experts, lanes, table.data(),
                      rank.before.data() + size(slice + 1) * size(experts),
                      rank.rank_in_slice.data() + begin);
  }
  for (int e = 0; e < experts; ++e) cuda::sum_slices(e, experts, slices, rank.before.data());
  rank.slices = {ids.data(), tokens, rank.before.data(), rank.rank_in_slice.data()};
}

void HostRoutes::point(RankTables& t) {
  const cuda::RouteShape& s = t.shape;
  const auto take = [](std::vector<std::int32_t>& v, std::int64_t n) {
    v.assign(size(n), -9);
    return v.data();
  };
  const int table = s.num_ranks * s.num_experts;
  const auto segments = static_cast<int>(plan_.segment_rank.size());
  t.step.counts = block_counts_.data();
  t.step.plan = plan_.view();
  t.step.num_chunks = &t.num_chunks;
  t.step.borrowed_expert = take(t.borrowed_expert, s.most_borrowed());
  t.step.borrowed_from = take(t.borrowed_from, s.most_borrowed());
  t.step.borrowed_index = take(t.borrowed_index, segments);
  t.step.group_of = take(t.group_of, s.num_experts);
  t.chunk.counts = take(t.counts, table);
  t.chunk.quota = take(t.quota, segments);
  t.chunk.sent = take(t.sent, table);
  t.chunk.arrived = take(t.arrived, table);
  t.chunk.piece_rank = take(t.piece_rank, cuda::most_pieces(segments, s.num_experts));
  t.chunk.piece_count = take(t.piece_count, cuda::most_pieces(segments, s.num_experts));
  t.chunk.pieces = take(t.pieces, s.num_experts);
  t.chunk.group_begin = take(t.group_begin, s.num_groups() + 1);
  t.chunk.entry = take(t.entry, s.most_assignments);
  t.chunk.destination = take(t.destination, s.most_assignments);
  t.chunk.firsts_before = take(t.firsts_before, s.most_assignments + 1);
  t.chunk.tile_firsts = take(t.tile_firsts, s.most_assignments / cuda::kTile + 1);
  t.chunk.input_row = take(t.input_row, s.most_positions);
  t.chunk.output_row = take(t.output_row, s.most_positions);
  t.outbox.begin = take(t.out_begin, s.num_ranks + 1);
  t.outbox.rows = take(t.out_rows, s.num_ranks);
  t.outbox.row = take(t.out_row, s.most_assignments);
  t.outbox.token = take(t.out_token, s.most_assignments);
  t.outbox.assignment = take(t.out_assignment, s.most_assignments);
  t.outbox.in_row = take(t.in_row, s.num_ranks + 1);
  t.outbox.in_position = take(t.in_position, s.num_ranks + 1);
}

std::vector<cuda::OutboxView> HostRoutes::outboxes() const {
  std::vector<cuda::OutboxView> all;
  for (const RankTables& rank : ranks_) all.push_back(rank.outbox);
  return all;
}

void HostRoutes::make_chunk(int chunk) {
  for (int r = 0; r < choices_.num_ranks(); ++r) send(r, chunk);
  for (int r = 0; r < choices_.num_ranks(); ++r) receive(r);
}

void HostRoutes::send(int rank, int chunk) {
  RankTables& t = ranks_[size(rank)];
  plan_chunk(kTeam, t.shape, t.step, chunk, t.chunk);
  deal_chunk(kTeam, t.shape, t.step, t.chunk, t.outbox);
  const cuda::Outward outward(t.shape, t.slices, t.step, t.chunk, t.outbox, chunk);
  for (int a = 0; a < outward.assignments(); ++a) outward.place(a);
  const int tiles = std::max(1, (outward.entries() + cuda::kTile - 1) / cuda::kTile);
  for (int tile = 0; tile < tiles; ++tile) outward.count_firsts(kTeam, tile);
  for (int tile = tiles; tile-- > 0;) outward.number_firsts(kTeam, tile);
  for (int entry = 0; entry < outward.entries(); ++entry) outward.number_row(entry);
  for (int r = 0; r < t.shape.num_ranks; ++r) outward.count_rows(r);
}

void HostRoutes::receive(int rank) {
  RankTables& t = ranks_[size(rank)];
  const std::vector<cuda::OutboxView> all = outboxes();
  const cuda::Inward inward(t.shape, t.step, t.chunk, all.data());
  inward.number_rows(kTeam);
  for (int i = 0; i < inward.positions(); ++i) inward.fill(i);
}

std::int64_t HostRoutes::first_token(int rank, int chunk) const {
  const RankTables& t = this->rank(rank);
  const int slice = t.shape.num_slices / t.num_chunks * chunk;
  return cuda::first_token(t.shape, t.slices.tokens, slice);
}

}  // namespace evenkeel::testing
