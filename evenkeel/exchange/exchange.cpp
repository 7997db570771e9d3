#include "evenkeel/exchange/exchange.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "evenkeel/device/cpu/rows.h"
#include "evenkeel/exchange/internal/routes.h"

namespace evenkeel {

namespace {

std::span<std::byte> part(std::span<std::byte> all, std::int64_t begin, std::int64_t count,
                          std::int64_t bytes_each) {
  return all.subspan(static_cast<std::size_t>(begin * bytes_each),
                     static_cast<std::size_t>(count * bytes_each));
}

}  // namespace

Exchange::Exchange(Communicator& comm, Stream& stream, Arena& arena, std::int64_t hidden, DataType type)
    : comm_(comm), stream_(stream), arena_(arena), hidden_(hidden), type_(type) {
  sends_.reserve(2 * static_cast<std::size_t>(comm.size()));
  receives_.reserve(2 * static_cast<std::size_t>(comm.size()));
}

// Posts the collected sends and receives as one operation.
Event Exchange::post(const char* name) {
  const Event event = comm_.send_receive(sends_, receives_, stream_, name);
  sends_.clear();
  receives_.clear();
  return event;
}

Dispatched Exchange::dispatch(const void* hidden, const TopK& top_k, const Counts& counts,
                              const StepPlan& plan, Lifetime lifetime) {
  const RankId me = comm_.rank();
  deal_.make(counts, plan, me);
  Dispatched dispatched;
  {
    RouteBuilder routes(arena_, deal_, me, dispatched, lifetime);
    routes.outward(top_k, plan.num_experts());
    for (RankId rank : indices<RankId>(comm_.size())) {
      if (rank == me) continue;
      sends_.push_back({rank, std::as_bytes(routes.message_to(rank))});
      receives_.push_back({rank, std::as_writable_bytes(routes.message_from(rank))});
    }
    std::ranges::copy(routes.message_to(me), routes.message_from(me).begin());
    post("dispatch indices").wait();
    routes.inward();
  }
  dispatched.rows_ = arena_.allocate((dispatched.rows_here - dispatched.own_rows) * row_bytes(),
                                     "dispatched rows", lifetime);
  exchange_rows(dispatched, hidden, dispatched.rows_.bytes(), "dispatch");
  return dispatched;
}

// Sends each rank the rows of the tokens that it computes for this one, and takes in the others' rows.
void Exchange::exchange_rows(const Dispatched& dispatched, const void* by_token,
                             std::span<std::byte> received, const char* name) {
  const Buffer packed = arena_.allocate(dispatched.rows_elsewhere * row_bytes(), "rows to send");
  rows::gather(dispatched.rows_elsewhere, dispatched.token_elsewhere().data(), hidden_, by_token,
               packed.data(), type_);
  for (RankId rank : indices<RankId>(comm_.size())) {
    const Dispatched::Peer& peer = dispatched.peers()[rank.offset()];
    if (rank == comm_.rank()) continue;
    sends_.push_back({rank, part(packed.bytes(), peer.out_row, peer.out_rows, row_bytes())});
    const std::int64_t between = rank > comm_.rank() ? dispatched.own_rows : 0;
    receives_.push_back({rank, part(received, peer.in_row - between, peer.in_rows, row_bytes())});
  }
  post(name).wait();
}

Buffer Exchange::result_buffer(const Dispatched& dispatched) {
  return arena_.allocate((dispatched.positions_here + dispatched.positions_elsewhere) * row_bytes(),
                         "results");
}

// Queues what was computed here for others to go home, and what others computed for this rank to come;
// `row_of` says where a position's is, those elsewhere behind those here.
template <class RowOf>
void Exchange::send_positions_home(const Dispatched& dispatched, std::span<std::byte> all,
                                   std::int64_t bytes_each, const RowOf& row_of) {
  for (RankId rank : indices<RankId>(comm_.size())) {
    if (rank == comm_.rank()) continue;
    const Dispatched::Peer& peer = dispatched.peers()[rank.offset()];
    sends_.push_back({rank, part(all, row_of(peer.in_position), peer.in_positions, bytes_each)});
    const std::int64_t elsewhere = dispatched.positions_here + peer.out_position;
    receives_.push_back({rank, part(all, row_of(elsewhere), peer.out_positions, bytes_each)});
  }
}

void Exchange::combine(const Dispatched& dispatched, const Buffer& results, std::span<const float> weights,
                       void* output) {
  send_positions_home(dispatched, results.bytes(), row_bytes(), std::identity());
  post("combine").wait();
  const auto k = static_cast<std::size_t>(dispatched.k);
  for (std::size_t t = 0; t < static_cast<std::size_t>(dispatched.tokens); ++t)
    rows::weighted_sum(hidden_, type_, dispatched.k, &dispatched.result_slot()[t * k], &weights[t * k],
                       results.data(), rows::at(output, static_cast<std::int64_t>(t) * hidden_, type_));
}

Buffer Exchange::result_buffer(const ResultRows& rows) {
  return arena_.allocate(rows.rows() * row_bytes(), "results");
}

Event Exchange::return_results(const Dispatched& dispatched, const Buffer& results, const ResultRows& rows) {
  send_positions_home(dispatched, results.bytes(), row_bytes(),
                      [&](std::int64_t slot) { return rows.waiting_row(slot); });
  return post("combine");
}

void Exchange::sum_results(const Dispatched& dispatched, const Buffer& results, const ResultRows& rows,
                           std::span<const float> weights, void* output) {
  const auto k = static_cast<std::size_t>(dispatched.k);
  token_rows_.resize(k);
  for (std::int64_t token = rows.first_token(); token < rows.end_token(); ++token) {
    const std::size_t first = static_cast<std::size_t>(token) * k;
    std::ranges::transform(
        dispatched.result_slot().subspan(first, k), token_rows_.begin(),
        [&](std::int32_t slot) { return slot < 0 ? slot : static_cast<std::int32_t>(rows.row(slot)); });
    rows::weighted_sum(hidden_, type_, dispatched.k, token_rows_.data(), &weights[first], results.data(),
                       rows::at(output, token * hidden_, type_));
  }
}

Exchange::GradientRows Exchange::dispatch_gradients(const Dispatched& dispatched, const void* grad_output,
                                                    std::span<const float> weights) {
  GradientRows here{
      arena_.allocate((dispatched.rows_here - dispatched.own_rows) * row_bytes(), "dispatched gradients"),
      arena_.allocate_for<float>(dispatched.positions_here, "dispatched router weights")};
  const Buffer elsewhere =
      arena_.allocate_for<float>(dispatched.positions_elsewhere, "router weights to send");
  const auto slots = dispatched.result_slot();
  for (std::size_t a = 0; a < slots.size(); ++a) {
    if (slots[a] < 0) continue;
    const std::int64_t beyond = slots[a] - dispatched.positions_here;
    if (beyond < 0)
      here.weights.as<float>()[static_cast<std::size_t>(slots[a])] = weights[a];
    else
      elsewhere.as<float>()[static_cast<std::size_t>(beyond)] = weights[a];
  }
  for (RankId rank : indices<RankId>(comm_.size())) {
    if (rank == comm_.rank()) continue;
    const Dispatched::Peer& peer = dispatched.peers()[rank.offset()];
    sends_.push_back({rank, part(elsewhere.bytes(), peer.out_position, peer.out_positions, sizeof(float))});
    receives_.push_back(
        {rank, part(here.weights.bytes(), peer.in_position, peer.in_positions, sizeof(float))});
  }
  post("dispatch router weights").wait();
  exchange_rows(dispatched, grad_output, here.rows.bytes(), "dispatch gradients");
  return here;
}

// The rows of whom `rows` holds the gradients: received ones first, those to be received behind them.
Exchange::ComputedGradients Exchange::gradient_buffer(const Dispatched& dispatched, void* grad_hidden) {
  const std::int64_t summed = dispatched.rows_here - (adds_in_place() ? dispatched.own_rows : 0);
  const std::int64_t computed = summed * hidden_ * std::int64_t{sizeof(float)};
  const std::int64_t travelling = (summed + dispatched.rows_elsewhere) * row_bytes();
  ComputedGradients gradients{
      arena_.allocate(std::max(computed, travelling), "row gradients"),
      arena_.allocate_for<float>(dispatched.positions_here + dispatched.positions_elsewhere,
                                 "router weight gradients"),
      {}};
  const auto sums = gradients.rows.as<float>().first(static_cast<std::size_t>(summed * hidden_));
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

// Rounds f32 numbers to the type where they stand, so that they take half the room.
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

void Exchange::send_rows_home(const Dispatched& dispatched, std::span<std::byte> all) {
  const std::int64_t own = adds_in_place() ? dispatched.own_rows : 0;
  for (RankId rank : indices<RankId>(comm_.size())) {
    if (rank == comm_.rank()) continue;
    const Dispatched::Peer& peer = dispatched.peers()[rank.offset()];
    const std::int64_t between = rank > comm_.rank() ? own : 0;
    sends_.push_back({rank, part(all, peer.in_row - between, peer.in_rows, row_bytes())});
    receives_.push_back(
        {rank, part(all, dispatched.rows_here - own + peer.out_row, peer.out_rows, row_bytes())});
  }
}

void Exchange::combine_gradients(const Dispatched& dispatched, ComputedGradients gradients, void* grad_hidden,
                                 std::span<float> grad_weights) {
  const Buffer& rows = gradients.rows;
  if (!adds_in_place()) round_in_place(dispatched.rows_here * hidden_, rows.data());
  send_rows_home(dispatched, rows.bytes());
  send_positions_home(dispatched, gradients.weights.bytes(), sizeof(float), std::identity());
  post("combine gradients").wait();

  const auto k = static_cast<std::size_t>(dispatched.k);
  for (std::size_t t = 0; t < static_cast<std::size_t>(dispatched.tokens); ++t) {
    const auto slots = dispatched.row_slot().subspan(t * k, k);
    void* const sum = rows::at(grad_hidden, static_cast<std::int64_t>(t) * hidden_, type_);
    if (adds_in_place())
      add_rows_elsewhere(dispatched, slots, rows, static_cast<float*>(sum));
    else
      rows::weighted_sum(hidden_, type_, dispatched.k, slots.data(), nullptr, rows.data(), sum);
  }
  const auto slots = dispatched.result_slot();
  for (std::size_t a = 0; a < slots.size(); ++a)
    grad_weights[a] = slots[a] < 0 ? 0.0f : gradients.weights.as<float>()[static_cast<std::size_t>(slots[a])];
}

// To what was computed here, in place.
void Exchange::add_rows_elsewhere(const Dispatched& dispatched, std::span<const std::int32_t> slots,
                                  const Buffer& rows, float* sum) const {
  for (std::int32_t slot : slots)
    if (slot >= dispatched.rows_here)
      rows::add_scaled(hidden_, rows.as<const float>().data() + (slot - dispatched.own_rows) * hidden_, 1.0f,
                       sum);
}

}  // namespace evenkeel
