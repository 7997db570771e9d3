#include "evenkeel/exchange/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/device/cpu/rows.h"
#include "evenkeel/exchange/internal/node_forwarding.h"
#include "evenkeel/exchange/internal/node_sums.h"
#include "evenkeel/exchange/internal/slices.h"

namespace evenkeel {

Exchange::Exchange(Communicator& comm, Stream& stream, Arena& arena, std::int64_t hidden, DataType type,
                   Nodes nodes, bool sum_in_nodes)
    : comm_(comm),
      stream_(stream),
      arena_(arena),
      hidden_(hidden),
      type_(type),
      nodes_(std::move(nodes)),
      slices_(std::make_unique<Slices>(comm)),
      sum_in_nodes_(sum_in_nodes) {
  if (sum_in_nodes && nodes_.num_ranks() != comm.size())
    throw InvalidArgument("sum_in_nodes", fmt::format("the nodes have {} ranks", nodes_.num_ranks()),
                          fmt::format("the nodes of all {} ranks", comm.size()));
}

Exchange::~Exchange() = default;

// With inputs of another step, rows would be written out of bounds.
void Exchange::require_same_step(const TopK& top_k, const Counts& counts, const StepPlan& plan) {
  if (counts.num_ranks() != comm_.size() || plan.num_ranks() != comm_.size())
    throw InvalidArgument(
        "counts", fmt::format("have {} ranks, and the plan has {}", counts.num_ranks(), plan.num_ranks()),
        fmt::format("the communicator's {} in both", comm_.size()));
  if (!counts.has_sources()) throw InvalidArgument("counts", "have only total loads", "counts by rank");
  if (counts.num_experts() != plan.num_experts())
    throw InvalidArgument("plan", fmt::format("has {} experts", plan.num_experts()),
                          fmt::format("{}, as in the counts", counts.num_experts()));
  for (ExpertId expert : indices<ExpertId>(plan.num_experts())) {
    const auto segments = plan.segments(expert);
    const std::int64_t planned = segments.empty() ? 0 : segments.back().end;
    if (planned != counts.load(expert))
      throw InvalidArgument("plan", fmt::format("has {} assignments of expert {}", planned, expert.value()),
                            fmt::format("the {} in the counts", counts.load(expert)));
  }
  require_counted(top_k, counts);
}

void Exchange::require_counted(const TopK& top_k, const Counts& counts) {
  if (top_k.k < 1 || top_k.tokens < 0 || std::ssize(top_k.experts) != top_k.tokens * top_k.k)
    throw InvalidArgument("top_k", fmt::format("{} choices", top_k.experts.size()),
                          fmt::format("{} tokens x {}", top_k.tokens, top_k.k));
  chosen_.assign(static_cast<std::size_t>(counts.num_experts()), 0);
  for (std::int32_t expert : top_k.experts) {
    if (expert < -1 || expert >= counts.num_experts())
      throw InvalidArgument("top_k", fmt::format("expert id {}", expert),
                            fmt::format("-1..{}", counts.num_experts() - 1));
    if (expert >= 0) ++chosen_[static_cast<std::size_t>(expert)];
  }
  for (ExpertId expert : indices<ExpertId>(counts.num_experts()))
    if (const std::int64_t counted = counts.at(comm_.rank(), expert); chosen_[expert.offset()] != counted)
      throw InvalidArgument("top_k",
                            fmt::format("{} choices of expert {}", chosen_[expert.offset()], expert.value()),
                            fmt::format("the {} in the counts of rank {}", counted, comm_.rank().value()));
}

Dispatched Exchange::dispatch(const void* hidden, const TopK& top_k, const Counts& counts,
                              const StepPlan& plan, Lifetime lifetime) {
  require_same_step(top_k, counts, plan);
  deal_.make(counts, plan, comm_.rank());
  Dispatched dispatched = exchange_indices(top_k, lifetime);
  dispatched.rows_ = arena_.allocate(chunk_buffers::received_rows(shape_of(dispatched), dispatched.load()),
                                     "dispatched rows", lifetime);
  exchange_rows(dispatched, hidden, dispatched.rows_.bytes(), "dispatch", "dispatch in the node");
  return dispatched;
}

// Sends each rank the rows that it computes for this rank, and receives the rows that this rank computes.
void Exchange::exchange_rows(const Dispatched& dispatched, const void* by_token,
                             std::span<std::byte> received, const char* name, const char* name_in_node) {
  if (dispatched.forwarding_ != nullptr)
    return exchange_in_two_levels(dispatched, by_token, received, name, name_in_node);
  const Buffer packed =
      arena_.allocate(chunk_buffers::rows_to_send(shape_of(dispatched), dispatched.load()), "rows to send");
  rows::gather(dispatched.rows_elsewhere, dispatched.token_elsewhere().data(), hidden_, by_token,
               packed.data(), type_);
  slices_->rows(Slices::Direction::to_experts, dispatched, received, dispatched.own_rows, packed.bytes(),
                row_bytes());
  slices_->post(stream_, name).wait();
}

void Exchange::exchange_in_two_levels(const Dispatched& dispatched, const void* by_token,
                                      std::span<std::byte> received, const char* name,
                                      const char* name_in_node) {
  const NodeForwarding& forwarding = *dispatched.forwarding_;
  const auto bytes_of_rows = [&](std::span<std::byte> all, std::int64_t begin, std::int64_t count) {
    return all.subspan(static_cast<std::size_t>(begin * row_bytes()),
                       static_cast<std::size_t>(count * row_bytes()));
  };
  std::int64_t sent = 0;
  for (RankId rank : slices_->others()) sent += forwarding.direct_out[rank.offset()].count;
  const Buffer packed =
      arena_.allocate(std::max(sent, std::ssize(forwarding.forwarded_rows)) * row_bytes(), "rows to send");
  std::int64_t at = 0;
  for (RankId rank : slices_->others()) {
    const Dispatched::Peer peer = dispatched.peer(rank);
    const RowRange out = forwarding.direct_out[rank.offset()], in = forwarding.direct_in[rank.offset()];
    const std::span<std::byte> to = bytes_of_rows(packed.bytes(), at, out.count);
    rows::gather(out.count, dispatched.token_elsewhere().data() + peer.out_row + out.begin, hidden_, by_token,
                 to.data(), type_);
    slices_->send(rank, to);
    const std::int64_t own = rank > comm_.rank() ? dispatched.own_rows : 0;
    slices_->receive(rank, bytes_of_rows(received, peer.in_row - own + in.begin, in.count));
    at += out.count;
  }
  slices_->post(stream_, name).wait();

  rows::gather(std::ssize(forwarding.forwarded_rows), forwarding.forwarded_rows.data(), hidden_,
               received.data(), packed.data(), type_);
  for (const NodeForwarding::Rows& each : forwarding.sends)
    slices_->send(each.rank, bytes_of_rows(packed.bytes(), each.range.begin, each.range.count));
  for (const NodeForwarding::Rows& each : forwarding.receives)
    slices_->receive(each.rank, bytes_of_rows(received, each.range.begin, each.range.count));
  slices_->post(stream_, name_in_node).wait();
}

void Exchange::combine(const Dispatched& dispatched, const Buffer& results, std::span<const float> weights,
                       void* output) {
  whole_.open(dispatched, comm_.rank(), {});
  return_results(dispatched, results, whole_, weights).wait();
  if (whole_.next_range({})) sum_results(dispatched, results, whole_, weights, output);
}

Event Exchange::return_results(const Dispatched& dispatched, const Buffer& results, const ResultRows& rows,
                               std::span<const float> weights) {
  if (!sum_in_nodes_) {
    slices_->positions(Slices::Direction::to_tokens, dispatched, results.bytes(), row_bytes(),
                       [&](std::int64_t slot) { return rows.held_row(slot); });
    return slices_->post(stream_, "combine");
  }
  const std::int64_t numbers = (dispatched.rows_here - dispatched.own_rows) * hidden_;
  const Buffer buffer = arena_.allocate(numbers * bytes_of(DataType::f32), "sums by row");
  const std::span<float> sums = buffer.as<float>();
  add_by_row(dispatched, results, rows, dispatch_weights(dispatched, weights).values, sums);
  node_sums_ = std::make_unique<NodeSums>(dispatched, *dispatched.forwarding_, arena_, hidden_, type_);
  node_sums_->add_in_node(*slices_, stream_, sums.data(), false, "combine in the node");
  const std::int64_t home = rows.held_row(dispatched.positions_here);
  node_sums_->queue(*slices_, results.bytes().subspan(static_cast<std::size_t>(home * row_bytes())));
  const Event event = slices_->post(stream_, "combine");
  if (dispatched.tokens == 0) {  // no sum_results() follows
    event.wait();
    node_sums_.reset();
  }
  return event;
}

// Adds each result that this rank computed for another rank, times its weight, to the sum of its row.
void Exchange::add_by_row(const Dispatched& dispatched, const Buffer& results, const ResultRows& rows,
                          std::span<const float> weights, std::span<float> sums) const {
  std::ranges::fill(sums, 0.0f);
  for (std::size_t i = 0; i < dispatched.input_row().size(); ++i) {
    const std::int64_t row = dispatched.input_row()[i], slot = dispatched.output_row()[i];
    if (row >= dispatched.own_row && row < dispatched.own_row + dispatched.own_rows) continue;
    const std::int64_t received = row < dispatched.own_row ? row : row - dispatched.own_rows;
    rows::add_scaled(hidden_, rows::at(results.data(), rows.held_row(slot) * hidden_, type_), type_,
                     weights[static_cast<std::size_t>(slot)], sums.data() + received * hidden_);
  }
}

void Exchange::sum_results(const Dispatched& dispatched, const Buffer& results, const ResultRows& rows,
                           std::span<const float> weights, void* output) {
  const auto k = static_cast<std::size_t>(dispatched.k);
  const std::int64_t home = rows.held_row(dispatched.positions_here);
  const auto add = [&](std::int64_t row, float weight) {
    token_rows_.push_back(static_cast<std::int32_t>(row));
    token_weights_.push_back(weight);
  };
  for (std::int64_t token = rows.first_token(); token < rows.end_token(); ++token) {
    token_rows_.clear();
    token_weights_.clear();
    const std::size_t first = static_cast<std::size_t>(token) * k;
    for (std::size_t a = first; a < first + k; ++a) {
      const std::int32_t slot = dispatched.result_slot()[a];
      if (slot >= 0 && (!sum_in_nodes_ || slot < dispatched.positions_here)) add(rows.row(slot), weights[a]);
    }
    if (sum_in_nodes_)
      for (const std::int32_t row : node_sums_->rows_of(token)) add(home + row, 1.0f);
    rows::weighted_sum(hidden_, type_, static_cast<int>(token_rows_.size()), token_rows_.data(),
                       token_weights_.data(), results.data(), rows::at(output, token * hidden_, type_));
  }
  if (rows.end_token() == dispatched.tokens) node_sums_.reset();
}

Exchange::IncomingGradients Exchange::dispatch_gradients(const Dispatched& dispatched,
                                                         const void* grad_output,
                                                         std::span<const float> weights) {
  IncomingGradients incoming;
  incoming.rows = arena_.allocate(chunk_buffers::received_rows(shape_of(dispatched), dispatched.load()),
                                  "dispatched gradients");
  incoming.router = dispatch_weights(dispatched, weights);
  exchange_rows(dispatched, grad_output, incoming.rows.bytes(), "dispatch gradients",
                "dispatch gradients in the node");
  return incoming;
}

Exchange::RouterWeights Exchange::dispatch_weights(const Dispatched& dispatched,
                                                   std::span<const float> weights) {
  RouterWeights router;
  router.numbers = arena_.allocate(chunk_buffers::router_weights(dispatched.load()), "router weights");
  const auto positions = static_cast<std::size_t>(dispatched.positions_here + dispatched.positions_elsewhere);
  router.values = router.numbers.as<float>().first(positions);
  router.gradients = router.numbers.as<float>().subspan(positions);
  // Stores this rank's own weights at their positions, here and elsewhere.
  const auto slots = dispatched.result_slot();
  for (std::size_t a = 0; a < slots.size(); ++a)
    if (slots[a] >= 0) router.values[static_cast<std::size_t>(slots[a])] = weights[a];
  slices_->positions(Slices::Direction::to_experts, dispatched, std::as_writable_bytes(router.values),
                     sizeof(float));
  slices_->post(stream_, "dispatch router weights").wait();
  return router;
}

// `rows` holds the gradients of the received rows first, then space for the gradients to be received.
Exchange::RowGradients Exchange::gradient_buffer(const Dispatched& dispatched, void* grad_hidden) {
  const ExchangeShape shape = shape_of(dispatched);
  const ChunkLoad load = dispatched.load();
  RowGradients gradients{arena_.allocate(chunk_buffers::row_gradients(shape, load), "row gradients"), {}};
  const std::int64_t summed = chunk_buffers::summed_rows(shape, load) * hidden_;
  const auto sums = gradients.rows.as<float>().first(static_cast<std::size_t>(summed));
  std::ranges::fill(sums, 0.0f);
  gradients.sums.rest = sums.data();
  if (adds_in_place()) {
    gradients.sums.own = static_cast<float*>(grad_hidden);
    gradients.sums.own_index = dispatched.token_here();
    gradients.sums.own_begin = dispatched.own_row;
    std::fill_n(gradients.sums.own, dispatched.tokens * hidden_, 0.0f);
  }
  return gradients;
}

// Rounds f32 numbers to the type in place, so that they take half the space.
void Exchange::round_in_place(std::int64_t count, std::byte* numbers) const {
  constexpr std::int64_t kPiece = 512;
  std::array<std::byte, kPiece * sizeof(float)> rounded;
  for (std::int64_t begin = 0; begin < count; begin += kPiece) {
    const std::int64_t piece = std::min(kPiece, count - begin);
    const auto* from = reinterpret_cast<const float*>(numbers) + begin;
    rows::from_f32(piece, from, rounded.data(), type_);
    std::memcpy(rows::at(numbers, begin, type_), rounded.data(),
                static_cast<std::size_t>(piece * bytes_of(type_)));
  }
}

void Exchange::combine_gradients(const Dispatched& dispatched, const RowGradients& gradients,
                                 const RouterWeights& router, void* grad_hidden,
                                 std::span<float> grad_weights) {
  if (sum_in_nodes_) {
    node_sums_ = std::make_unique<NodeSums>(dispatched, *dispatched.forwarding_, arena_, hidden_, type_);
    node_sums_->add_in_node(*slices_, stream_, gradients.sums.rest, !adds_in_place(),
                            "combine gradients in the node");
  }
  if (!adds_in_place()) round_in_place(dispatched.rows_here * hidden_, gradients.rows.data());
  const std::int64_t in_place = adds_in_place() ? dispatched.own_rows : 0;  // rows not in gradients.rows
  const std::span<std::byte> here = gradients.rows.bytes();
  const auto elsewhere =
      here.subspan(static_cast<std::size_t>((dispatched.rows_here - in_place) * row_bytes()));
  if (sum_in_nodes_)
    node_sums_->queue(*slices_, elsewhere);
  else
    slices_->rows(Slices::Direction::to_tokens, dispatched, here, in_place, elsewhere, row_bytes());
  slices_->positions(Slices::Direction::to_tokens, dispatched, std::as_writable_bytes(router.gradients),
                     sizeof(float));
  slices_->post(stream_, "combine gradients").wait();
  sum_gradients(dispatched, gradients, router, grad_hidden, grad_weights);
  node_sums_.reset();
}

// Sums each token's gradients, which are all on this rank now.
void Exchange::sum_gradients(const Dispatched& dispatched, const RowGradients& gradients,
                             const RouterWeights& router, void* grad_hidden, std::span<float> grad_weights) {
  const auto k = static_cast<std::size_t>(dispatched.k);
  for (std::int64_t token = 0; token < dispatched.tokens; ++token) {
    token_rows_.clear();
    for (const std::int32_t slot : dispatched.row_slot().subspan(static_cast<std::size_t>(token) * k, k))
      if (!sum_in_nodes_ || slot < dispatched.rows_here) token_rows_.push_back(slot);
    if (sum_in_nodes_)
      for (const std::int32_t row : node_sums_->rows_of(token))
        token_rows_.push_back(static_cast<std::int32_t>(dispatched.rows_here) + row);
    void* const sum = rows::at(grad_hidden, token * hidden_, type_);
    if (!adds_in_place()) {
      rows::weighted_sum(hidden_, type_, static_cast<int>(token_rows_.size()), token_rows_.data(), nullptr,
                         gradients.rows.data(), sum);
      continue;
    }
    const auto* const received = gradients.rows.as<const float>().data();
    for (std::int32_t slot : token_rows_)
      if (slot >= dispatched.rows_here)  // the others were added where they were computed
        rows::add_scaled(hidden_, received + (slot - dispatched.own_rows) * hidden_, 1.0f,
                         static_cast<float*>(sum));
  }
  const auto slots = dispatched.result_slot();
  for (std::size_t a = 0; a < slots.size(); ++a)
    grad_weights[a] = slots[a] < 0 ? 0.0f : router.gradients[static_cast<std::size_t>(slots[a])];
}

}  // namespace evenkeel
