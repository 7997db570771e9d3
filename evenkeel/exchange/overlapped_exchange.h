// An exchange whose messages travel while the rank computes: of one chunk of tokens what goes out, of another
// what comes home.
//
// Problem    Between the dispatch of a chunk and its products, and again between these and its sums, a rank
//            waits for its slowest peer, although it has other chunks to compute.
// Method     A chunk departs, arrives, is sent home and is summed there; between one and the next a rank
//            computes something of this chunk or another, and what its peers send has that long to come. Only
//            what is read next is waited for. What was sent stays until the end of the chunk, so that nobody
//            waits for a peer to take it.
// Memory     All buffers of a chunk are cut from one end of the arena's gap, in stack order: two chunks at a
//            time, one from either end, take no more than both need alone.
// Order      Collective: every rank makes the same calls for the same chunks in the same order.
// Errors     A chunk must not go while its messages travel: let Communicator::abort() come before, where an
//            exception passes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/exchange/exchange.h"
#include "evenkeel/plan/deal.h"

namespace evenkeel {

// Tables and buffers that a chunk holds from its departure until it is at home.
struct TravellingChunk {
  explicit TravellingChunk(Lifetime lifetime = Lifetime::step) : messages{lifetime, {}, {}, {}} {}
  Lifetime lifetime() const { return messages.lifetime; }

  Dispatched dispatched;
  IndexMessages messages;
  Buffer rows_sent;
  Buffer gradients_sent;
  bool gradients_expected = false;
  Exchange::IncomingGradients incoming;
  Exchange::RowGradients computed;
  Buffer results;
  Event expected;
  Event arrived;
  Event came_home;
  Event sent;
};

class OverlappedExchange {
 public:
  // For rows and numbers as `exchange` has them; what that refers to, and itself, must outlive this.
  OverlappedExchange(Communicator& comm, Exchange& exchange);
  ~OverlappedExchange();

  void reserve(const StepPlan& plan) { deal_.reserve(plan); }  // as Exchange::reserve()

  // Sends rows, as Exchange::dispatch() does; with depart_gradients(), which comes after it, also what
  // Exchange::dispatch_gradients() does. A chunk whose Dispatched is there already begins with the latter.
  // Until expect() of this chunk no other departs, and nothing of another is sent home: peers take messages
  // in the order in which they were sent.
  void depart(TravellingChunk& chunk, const void* hidden, const TopK& top_k, const Counts& counts,
              const StepPlan& plan);
  void depart_gradients(TravellingChunk& chunk, const void* grad_output, std::span<const float> weights);

  // Reads what the others announce, and makes space for it; then takes it in. A rank that posts what it has
  // for others between the two finds theirs as it waits.
  void expect(TravellingChunk& chunk);
  void arrive(TravellingChunk& chunk);

  // Of `results`, and of `computed`.
  void send_results_home(TravellingChunk& chunk);
  void send_gradients_home(TravellingChunk& chunk);

  // Returns when results, or gradients, of this rank's tokens are here and summed.
  void sum_results(TravellingChunk& chunk, std::span<const float> weights, void* output);
  void sum_gradients(TravellingChunk& chunk, void* grad_hidden, std::span<float> grad_weights);

  // Returns when all others have what this rank sent of the chunk.
  void end(TravellingChunk& chunk);

 private:
  Communicator& comm_;
  Exchange& exchange_;
  Deal deal_;
  std::unique_ptr<Slices> slices_;
  // Apart, since each is waited for at another time.
  CpuStream departures_, arrivals_, homecomings_;
};

}  // namespace evenkeel
