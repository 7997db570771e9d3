#include "evenkeel/sim/layer_seconds.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace evenkeel {

namespace {

constexpr double kIndexBytes = 4;   // the row number of a position in the message
constexpr double kWeightBytes = 4;  // a router weight or its gradient

}  // namespace

std::string_view name_of(SimPhase phase) {
  constexpr std::array<std::string_view, kSimPhases> names = {"plan",     "weights", "dispatch", "products",
                                                              "borrowed", "wait",    "combine",  "gradients"};
  return names[static_cast<std::size_t>(phase)];
}

LayerSeconds::LayerSeconds(const LayerSizes& sizes, const Machine& machine, const Topology& topology,
                           Nodes nodes, bool sums_in_nodes)
    : sizes_(sizes),
      machine_(machine),
      ranks_(static_cast<std::size_t>(topology.num_ranks())),
      nodes_(std::move(nodes)),
      sums_in_nodes_(sums_in_nodes),
      exchange_(machine, topology),
      row_seconds_(row_seconds(machine, sizes.expert.work)),
      read_seconds_(read_seconds(machine, sizes.expert.work.bytes)) {
  for (auto* by_rank : {&now_, &weights_at_, &weights_take_, &at_home_, &foreign_, &took_})
    by_rank->resize(ranks_);
  rows_of_.resize(ranks_);
  bytes_.resize(ranks_ * ranks_);
  clear();
}

void LayerSeconds::clear() {
  pair_bytes_.assign(ranks_ * ranks_, 0);
  moved_ = {};
  parts_ = {};
}

double LayerSeconds::forward(std::span<const ChunkWork> chunks, std::span<const Transfer> transfers,
                             const LayerPlacement& homes, std::vector<PhaseSpan>* spans) {
  spans_ = spans;
  is_backward_ = false;
  return run(chunks, transfers, {}, homes);
}

double LayerSeconds::backward(std::span<const ChunkWork> chunks, std::span<const Transfer> transfers,
                              std::span<const double> gradients, const LayerPlacement& homes,
                              std::vector<PhaseSpan>* spans) {
  spans_ = spans;
  is_backward_ = true;
  return run(chunks, transfers, gradients, homes);
}

double LayerSeconds::run(std::span<const ChunkWork> chunks, std::span<const Transfer> transfers,
                         std::span<const double> gradients, const LayerPlacement& homes) {
  chunk_ = -1;
  std::ranges::fill(now_, machine_.chunk_seconds);
  for (std::size_t rank = 0; rank < ranks_; ++rank) add_span(rank, SimPhase::plan, 0, now_[rank]);
  borrow(transfers);
  for (const ChunkWork& chunk : chunks) {
    ++chunk_;
    for (std::size_t rank = 0; rank < ranks_ && chunk_ > 0; ++rank) {
      add_span(rank, SimPhase::plan, now_[rank], now_[rank] + machine_.chunk_seconds);
      now_[rank] += machine_.chunk_seconds;
    }
    dispatch(chunk);
    compute(chunk, homes);
    wait_for_all();
    combine(chunk);
  }
  if (!gradients.empty()) {
    wait_for_all();
    std::ranges::copy(gradients, bytes_.begin());
    send(bytes_, SimPhase::gradients, moved_.weights);
    // Owners add the received gradients to their own, which takes one read and one write.
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      double came = 0;
      for (std::size_t from = 0; from < ranks_; ++from) came += gradients[from * ranks_ + rank];
      touch_memory(rank, SimPhase::gradients, 2 * came);
    }
  }
  wait_for_all();
  return now_.front();
}

void LayerSeconds::borrow(std::span<const Transfer> transfers) {
  borrowed_.assign(ranks_, 0);
  std::ranges::fill(weights_at_, 0.0);
  if (transfers.empty()) return;
  for (const Transfer& transfer : transfers) ++borrowed_[transfer.to.offset()];
  moved_.weights += static_cast<double>(transfers.size()) * sizes_.sent_weight_bytes;
  std::ranges::fill(weights_take_, 0.0);
  nodes_.find_senders(transfers, senders_);
  for (const bool passes_on : {false, true}) {
    if (passes_on && !nodes_.two_levels()) return;
    std::ranges::fill(bytes_, 0.0);
    for (std::size_t i = 0; i < transfers.size(); ++i)
      if ((senders_[i] != transfers[i].from) == passes_on)
        bytes_[senders_[i].offset() * ranks_ + transfers[i].to.offset()] += sizes_.sent_weight_bytes;
    for (std::size_t i = 0; i < bytes_.size(); ++i) pair_bytes_[i] += bytes_[i];
    exchange_.of(bytes_, took_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      weights_take_[rank] += took_[rank];
      weights_at_[rank] += took_[rank];
    }
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if ((senders_[i] != transfers[i].from) != passes_on) continue;
      double& at = weights_at_[transfers[i].to.offset()];
      const std::size_t from = senders_[i].offset();
      at = std::max(at, passes_on ? weights_at_[from] : took_[from]);
    }
  }
}

// All ranks start sending together. Each rank continues when its own ports are done.
void LayerSeconds::send(std::span<const double> bytes, SimPhase phase, double& moved) {
  exchange_.of(bytes, took_);
  for (std::size_t i = 0; i < bytes.size(); ++i) pair_bytes_[i] += bytes[i];
  moved += std::reduce(bytes.begin(), bytes.end());
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    const auto sent = bytes.subspan(rank * ranks_, ranks_);
    add_span(rank, phase, now_[rank], now_[rank] + took_[rank],
             spans_ == nullptr ? 0 : std::reduce(sent.begin(), sent.end()));
    now_[rank] += took_[rank];
  }
}

void LayerSeconds::dispatch(const ChunkWork& chunk) {
  // The message has the number of rows, then one index per position.
  const bool says_rows = !is_backward_ || chunk.recomputed;
  const double of_row = sizes_.row_bytes * (chunk.recomputed ? 2 : 1);
  const double of_position =
      (says_rows ? kIndexBytes : 0) + (is_backward_ || sums_in_nodes_ ? kWeightBytes : 0);
  const bool in_two_levels = nodes_.two_levels();
  const std::vector<std::int64_t>& rows = in_two_levels ? chunk.traffic.direct : chunk.traffic.rows;
  for (std::size_t from = 0; from < ranks_; ++from)
    for (std::size_t to = 0; to < ranks_; ++to) {
      const std::size_t i = from * ranks_ + to;
      const auto positions = static_cast<double>(chunk.traffic.positions[i]);
      bytes_[i] = static_cast<double>(rows[i]) * of_row + positions * of_position +
                  (says_rows && positions > 0 ? kIndexBytes : 0);
      // The message also tells which ranks need each row, and the number of rows for each gateway.
      if (says_rows && positions > 0 && nodes_.may_forward(RankId(from), RankId(to)))
        bytes_[i] += kIndexBytes *
                     (positions + static_cast<double>(nodes_.members(nodes_.node_of(RankId(to))).size()));
    }
  send_rows(rows, of_row);
  if (!in_two_levels) return;
  for (std::size_t i = 0; i < bytes_.size(); ++i)
    bytes_[i] = static_cast<double>(chunk.traffic.passed_on[i]) * of_row;
  send_rows(chunk.traffic.passed_on, of_row);
}

// Sends bytes_. Before that, each row to be sent is gathered, which takes one read and one write.
void LayerSeconds::send_rows(std::span<const std::int64_t> rows, double of_row) {
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    bytes_[rank * (ranks_ + 1)] = 0;
    const std::int64_t sent = sum_of(rows, rank) - rows[rank * (ranks_ + 1)];
    touch_memory(rank, SimPhase::dispatch, 2 * of_row * static_cast<double>(sent));
  }
  send(bytes_, SimPhase::dispatch, moved_.dispatch);
}

// Forward sends one result row for each assignment. Backward sends one gradient for each row, and one for
// each router weight.
void LayerSeconds::combine(const ChunkWork& chunk) {
  if (sums_in_nodes_) return combine_in_nodes(chunk);
  for (std::size_t from = 0; from < ranks_; ++from)
    for (std::size_t to = 0; to < ranks_; ++to) {
      const auto rows = static_cast<double>(chunk.traffic.rows[to * ranks_ + from]);
      const auto positions = static_cast<double>(chunk.traffic.positions[to * ranks_ + from]);
      bytes_[from * ranks_ + to] = from == to     ? 0
                                   : is_backward_ ? rows * sizes_.row_bytes + positions * kWeightBytes
                                                  : positions * sizes_.row_bytes;
    }
  send(bytes_, SimPhase::combine, moved_.combine);
  // The received rows are read, and each token's sum is written.
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    const std::int64_t came = sum_of(is_backward_ ? chunk.traffic.rows : chunk.traffic.positions, rank);
    touch_memory(rank, SimPhase::combine,
                 sizes_.row_bytes * static_cast<double>(came + chunk.traffic.loads[rank].tokens));
  }
}

// Sends one row back for each row that dispatch sent: first within nodes, then to the ranks of the tokens.
void LayerSeconds::combine_in_nodes(const ChunkWork& chunk) {
  for (std::size_t rank = 0; rank < ranks_ && !is_backward_; ++rank)  // adds up the results of each row
    touch_memory(rank, SimPhase::combine,
                 sizes_.row_bytes * static_cast<double>(chunk.traffic.loads[rank].positions_here -
                                                        chunk.traffic.positions[rank * (ranks_ + 1)]));
  for (const auto* rows : {&chunk.traffic.passed_on, &chunk.traffic.direct}) {
    const bool goes_home = rows == &chunk.traffic.direct;
    for (std::size_t from = 0; from < ranks_; ++from)
      for (std::size_t to = 0; to < ranks_; ++to) {
        const std::size_t back = to * ranks_ + from;
        double& bytes = bytes_[from * ranks_ + to] =
            from == to ? 0 : static_cast<double>((*rows)[back]) * sizes_.row_bytes;
        if (goes_home && is_backward_ && from != to)
          bytes += static_cast<double>(chunk.traffic.positions[back]) * kWeightBytes;
      }
    send(bytes_, SimPhase::combine, moved_.combine);
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      touch_memory(rank, SimPhase::combine, 2 * sizes_.row_bytes * static_cast<double>(sum_of(*rows, rank)));
  }
}

std::int64_t LayerSeconds::sum_of(std::span<const std::int64_t> pairs, std::size_t rank) const {
  const auto row = pairs.subspan(rank * ranks_, ranks_);
  return std::reduce(row.begin(), row.end());
}

void LayerSeconds::touch_memory(std::size_t rank, SimPhase phase, double bytes) {
  const double begin = now_[rank];
  now_[rank] += read_seconds(machine_, bytes);
  add_span(rank, phase, begin, now_[rank]);
}

// As expert_seconds(), but with more products and more reads of the weights, by these factors.
double LayerSeconds::products(double rows, double row_factor, double weight_factor) const {
  const double of_rows = rows * row_seconds_ * row_factor;
  const double of_weights = std::min(rows, 1.0) * read_seconds_ * weight_factor;
  return std::max(of_rows, of_weights) + (1 - machine_.overlap) * std::min(of_rows, of_weights);
}

// Backward does twice the products of forward, and also reads and writes f32 gradients. Recomputing repeats
// two of the three products.
void LayerSeconds::compute(const ChunkWork& chunk, const LayerPlacement& homes) {
  const ExpertWork& work = sizes_.expert.work;
  const double more = chunk.recomputed ? 2.0 / 3 : 0;
  const double gradients = work.bytes > 0 ? 8 * work.elements / work.bytes : 0;
  const double row_factor = is_backward_ ? 2 + more : 1;
  const double weight_factor = is_backward_ ? 1 + more + gradients : 1;
  std::ranges::fill(at_home_, 0.0);
  std::ranges::fill(foreign_, 0.0);
  for (ExpertId expert : indices<ExpertId>(chunk.plan.num_experts())) {
    const auto segments = chunk.plan.segments(expert);
    for (const Segment& segment : segments) rows_of_[segment.rank.offset()] += segment.size();
    for (const Segment& segment : segments) {
      const std::size_t rank = segment.rank.offset();
      if (rows_of_[rank] == 0) continue;
      const double seconds = products(static_cast<double>(rows_of_[rank]), row_factor, weight_factor);
      (homes.is_home(expert, segment.rank) ? at_home_ : foreign_)[rank] += seconds;
      rows_of_[rank] = 0;
    }
  }
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    double& now = now_[rank];
    const double weights_here = now + weights_at_[rank];
    if (at_home_[rank] + foreign_[rank] > 0) at_home_[rank] += machine_.products_seconds;
    add_span(rank, SimPhase::products, now, now + at_home_[rank]);
    now += at_home_[rank];
    if (borrowed_[rank] > 0 && chunk_ == 0) {
      add_span(rank, SimPhase::weights, weights_here - weights_take_[rank], weights_here,
               static_cast<double>(borrowed_[rank]) * sizes_.sent_weight_bytes);
      add_span(rank, SimPhase::wait, now, std::max(now, weights_here));
      now = std::max(now, weights_here);
      // Packing reads and writes the weights; then the products read them once more.
      foreign_[rank] += 3 * static_cast<double>(borrowed_[rank]) * read_seconds_;
    }
    add_span(rank, SimPhase::borrowed_products, now, now + foreign_[rank]);
    now += foreign_[rank];
  }
}

void LayerSeconds::wait_for_all() {
  const double last = std::ranges::max(now_);
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    add_span(rank, SimPhase::wait, now_[rank], last);
    now_[rank] = last;
  }
}

void LayerSeconds::add_span(std::size_t rank, SimPhase phase, double begin, double end, double bytes) {
  parts_[static_cast<std::size_t>(phase)] += (end - begin) / static_cast<double>(ranks_);
  if (spans_ != nullptr && end > begin)
    spans_->push_back({static_cast<int>(rank), phase, is_backward_, chunk_, begin, end, bytes});
}

}  // namespace evenkeel
