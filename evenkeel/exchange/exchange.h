// A step plan carried out: rows go to the ranks that compute them, results come back, and the same for
// gradients. Public, for users who bring their own products: between dispatch() and combine() they compute
// outputs[output_row[i]] = expert(rows[input_row[i]]) for the groups of the Dispatched.
//
// Bytes    A row that goes to one rank for several experts is sent once; a row that is computed where it is
//          is not copied, so that what was given to dispatch() must stay. Results come back unsummed, k rows
//          a token, so that a token's sum does not depend on the plan.
// Order    Collective: every rank of the communicator makes the same calls.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "evenkeel/base/data_type.h"
#include "evenkeel/comm/communicator.h"
#include "evenkeel/device/arena.h"
#include "evenkeel/exchange/dispatched.h"
#include "evenkeel/exchange/result_rows.h"
#include "evenkeel/plan/deal.h"
#include "evenkeel/plan/nodes.h"
#include "evenkeel/plan/routes.h"
#include "evenkeel/plan/top_k.h"

namespace evenkeel {

class NodeSums;
class Slices;

class Exchange {
 public:
  // `hidden` elements a row. Communicator, stream and arena must outlive the exchange and what it dispatches.
  // With nodes in two levels, rows that several ranks of another node compute cross the link to it once and
  // are passed on there, as "dispatch in the node"; what is sent home goes straight, unsummed. Tables of what
  // is passed on are outside the arena. With `sum_in_nodes`, which needs nodes, each node adds a token's
  // results and gradients before they leave it: one row returns for each that went out, and the plan decides
  // the last bits.
  Exchange(Communicator& comm, Stream& stream, Arena& arena, std::int64_t hidden, DataType type,
           Nodes nodes = {}, bool sum_in_nodes = false);
  ~Exchange();

  // Takes the memory that steps of `top_k` experts a token want under any plan of this one's placement; where
  // it was not called, the first ones do.
  void reserve(const StepPlan& plan, int top_k) {
    deal_.reserve(plan);
    router_.reserve(plan.num_experts(), plan.num_ranks());
    token_rows_.reserve(static_cast<std::size_t>(top_k));
    token_weights_.reserve(static_cast<std::size_t>(top_k));
  }

  // Sends this rank's rows, [tokens, hidden], to where the plan has them computed, and takes in those that
  // this rank computes. `counts` are the all-gathered counts from which `plan` was made; `lifetime` says
  // until when the result is wanted.
  // Throws InvalidArgument, before anything is sent, where choices, counts and plan are not of one step of
  // this communicator, naming the expert; BudgetTooSmall where the arena has no space; CommError where
  // another rank has thrown or does not answer.
  Dispatched dispatch(const void* hidden, const TopK& top_k, const Counts& counts, const StepPlan& plan,
                      Lifetime lifetime = Lifetime::step);

  // Space for results: those computed here, and behind them those to be received.
  Buffer result_buffer(const Dispatched& dispatched) {
    return arena_.allocate(chunk_buffers::result_rows(dispatched.load(), 0) * row_bytes(), "results");
  }
  // Sends results home and writes each token's weighted sum, in top-k order, in f32, rounded once.
  void combine(const Dispatched& dispatched, const Buffer& results, std::span<const float> weights,
               void* output);

  // The same in less space and in parts, with the results where `rows` has them. result_buffer() is their
  // space. return_results() sends home the results that wait. When they are here, and the own results of the
  // present range are, sum_results() writes the sums of the range's tokens.
  Buffer result_buffer(const ResultRows& rows) {
    return arena_.allocate(rows.rows() * row_bytes(), "results");
  }
  Event return_results(const Dispatched& dispatched, const Buffer& results, const ResultRows& rows,
                       std::span<const float> weights);
  void sum_results(const Dispatched& dispatched, const Buffer& results, const ResultRows& rows,
                   std::span<const float> weights, void* output);

  // The router weight of each position and its gradient: of positions here (by output_row), then of those
  // elsewhere.
  struct RouterWeights {
    Buffer numbers;
    std::span<float> values, gradients;
  };
  // The gradient rows received for tokens computed here (Dispatched::rows() finds this rank's own among
  // grad_output), and the router weights, with space for their gradients.
  struct IncomingGradients {
    Buffer rows;
    RouterWeights router;
  };
  IncomingGradients dispatch_gradients(const Dispatched& dispatched, const void* grad_output,
                                       std::span<const float> weights);

  // Gradients of the rows here, f32 zeros to add to: `sums`. Where the layer's type is f32, the sums of this
  // rank's own rows are those of grad_hidden [tokens, hidden]; the others are in `rows`, with space for those
  // to be received.
  struct RowGradients {
    Buffer rows;
    SplitSums sums;
  };
  RowGradients gradient_buffer(const Dispatched& dispatched, void* grad_hidden);
  // Sends gradients home and writes grad_hidden [tokens, hidden] and grad_weights [tokens * k].
  void combine_gradients(const Dispatched& dispatched, const RowGradients& gradients,
                         const RouterWeights& router, void* grad_hidden, std::span<float> grad_weights);

 private:
  void require_same_step(const TopK& top_k, const Counts& counts, const StepPlan& plan);
  void require_counted(const TopK& top_k, const Counts& counts);
  Dispatched exchange_indices(const TopK& top_k, Lifetime lifetime);
  void exchange_rows(const Dispatched& dispatched, const void* by_token, std::span<std::byte> received,
                     const char* name, const char* name_in_node);
  void exchange_in_two_levels(const Dispatched& dispatched, const void* by_token,
                              std::span<std::byte> received, const char* name, const char* name_in_node);
  RouterWeights dispatch_weights(const Dispatched& dispatched, std::span<const float> weights);
  void add_by_row(const Dispatched& dispatched, const Buffer& results, const ResultRows& rows,
                  std::span<const float> weights, std::span<float> sums) const;
  void sum_gradients(const Dispatched& dispatched, const RowGradients& gradients, const RouterWeights& router,
                     void* grad_hidden, std::span<float> grad_weights);
  bool adds_in_place() const { return type_ == DataType::f32; }
  void round_in_place(std::int64_t count, std::byte* numbers) const;

  std::int64_t row_bytes() const { return hidden_ * bytes_of(type_); }
  ExchangeShape shape_of(const Dispatched& dispatched) const {
    return {comm_.size(), dispatched.k, hidden_, bytes_of(type_)};
  }

  Communicator& comm_;
  Stream& stream_;
  Arena& arena_;
  std::int64_t hidden_;
  DataType type_;
  Nodes nodes_;
  Deal deal_;
  Router router_;
  std::unique_ptr<Slices> slices_;
  bool sum_in_nodes_;
  ResultRows whole_;                      // of combine()
  std::unique_ptr<NodeSums> node_sums_;   // of a chunk on its way home
  std::vector<std::int32_t> token_rows_;  // that one token's sum adds
  std::vector<float> token_weights_;
  std::vector<std::int64_t> chosen_;  // [E] by this rank's tokens
};

}  // namespace evenkeel
