#include "evenkeel/exchange/overlapped_exchange.h"

#include <functional>

#include "evenkeel/exchange/internal/routes.h"
#include "evenkeel/exchange/internal/slices.h"

namespace evenkeel {

OverlappedExchange::OverlappedExchange(Communicator& comm, Exchange& exchange)
    : comm_(comm), exchange_(exchange), slices_(std::make_unique<Slices>(comm)) {}

OverlappedExchange::~OverlappedExchange() = default;

// Sends and receives are operations apart, since they are waited for at different times; peers take messages
// in the order in which they were sent: indices, rows, router weights, gradient rows.
void OverlappedExchange::depart(TravellingChunk& chunk, const void* hidden, const TopK& top_k,
                                const Counts& counts, const StepPlan& plan) {
  exchange_.require_same_step(top_k, counts, plan);
  deal_.make(counts, plan, comm_.rank());
  RouteBuilder routes(exchange_.arena_, deal_, comm_.rank(), chunk.dispatched, chunk.lifetime(),
                      chunk.messages);
  routes.outward(top_k, exchange_.chosen_);
  routes.queue_messages_in(*slices_);
  chunk.expected = slices_->post(arrivals_, "dispatch indices");
  routes.queue_messages_out(*slices_);
  slices_->post(departures_, "dispatch indices");
  chunk.rows_sent = exchange_.pack_rows(chunk.dispatched, hidden, chunk.lifetime());
  slices_->send_rows(chunk.dispatched, chunk.rows_sent.bytes(), exchange_.row_bytes());
  chunk.sent = slices_->post(departures_, "dispatch");
}

void OverlappedExchange::depart_gradients(TravellingChunk& chunk, const void* grad_output,
                                          std::span<const float> weights) {
  const Dispatched& dispatched = chunk.dispatched;
  chunk.gradients_expected = true;
  chunk.incoming.router = exchange_.open_weights(dispatched, weights, chunk.lifetime());
  chunk.gradients_sent = exchange_.pack_rows(dispatched, grad_output, chunk.lifetime());
  slices_->send_positions(dispatched, std::as_bytes(chunk.incoming.router.values), sizeof(float));
  slices_->send_rows(dispatched, chunk.gradients_sent.bytes(), exchange_.row_bytes());
  chunk.sent = slices_->post(departures_, "dispatch gradients");
}

void OverlappedExchange::expect(TravellingChunk& chunk) {
  Dispatched& dispatched = chunk.dispatched;
  Arena& arena = exchange_.arena_;
  const bool has_rows = !chunk.messages.received.empty();
  const auto received = [&](const char* name) {
    return arena.allocate((dispatched.rows_here - dispatched.own_rows) * exchange_.row_bytes(), name,
                          chunk.lifetime());
  };
  if (has_rows) {
    chunk.expected.wait();
    RouteBuilder(arena, deal_, comm_.rank(), dispatched, chunk.lifetime(), chunk.messages).inward();
    dispatched.rows_ = received("dispatched rows");
    slices_->receive_rows(dispatched, dispatched.rows_.bytes(), exchange_.row_bytes());
    chunk.arrived = slices_->post(arrivals_, "dispatch");
  }
  if (chunk.gradients_expected) {
    chunk.incoming.rows = received("dispatched gradients");
    slices_->receive_positions(dispatched, std::as_writable_bytes(chunk.incoming.router.values),
                               sizeof(float));
    slices_->receive_rows(dispatched, chunk.incoming.rows.bytes(), exchange_.row_bytes());
    chunk.arrived = slices_->post(arrivals_, "dispatch gradients");
  }
}

void OverlappedExchange::arrive(TravellingChunk& chunk) {
  chunk.arrived.wait();
}

void OverlappedExchange::send_results_home(TravellingChunk& chunk) {
  const std::span<std::byte> results = chunk.results.bytes();
  slices_->send_positions_home(chunk.dispatched, results, exchange_.row_bytes(), std::identity());
  chunk.sent = slices_->post(departures_, "combine");
  slices_->receive_positions_home(chunk.dispatched, results, exchange_.row_bytes(), std::identity());
  chunk.came_home = slices_->post(homecomings_, "combine");
}

void OverlappedExchange::send_gradients_home(TravellingChunk& chunk) {
  exchange_.round_row_gradients(chunk.dispatched, chunk.computed);
  exchange_.queue_gradients_out(chunk.dispatched, chunk.computed, chunk.incoming.router, *slices_);
  chunk.sent = slices_->post(departures_, "combine gradients");
  exchange_.queue_gradients_in(chunk.dispatched, chunk.computed, chunk.incoming.router, *slices_);
  chunk.came_home = slices_->post(homecomings_, "combine gradients");
}

void OverlappedExchange::sum_results(TravellingChunk& chunk, std::span<const float> weights, void* output) {
  chunk.came_home.wait();
  exchange_.sum_results(chunk.dispatched, chunk.results, weights, output);
}

void OverlappedExchange::sum_gradients(TravellingChunk& chunk, void* grad_hidden,
                                       std::span<float> grad_weights) {
  chunk.came_home.wait();
  exchange_.sum_gradients(chunk.dispatched, chunk.computed, chunk.incoming.router, grad_hidden, grad_weights);
}

void OverlappedExchange::end(TravellingChunk& chunk) {
  chunk.sent.wait();
}

}  // namespace evenkeel
