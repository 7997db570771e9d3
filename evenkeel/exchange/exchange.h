// Carries out a step plan: sends rows to the ranks that compute them and results back, and does the same for
// gradients. Public, for users who bring their own products: between dispatch() and combine() they compute
// outputs[output_row[i]] = expert(rows[input_row[i]]) for the groups of the Dispatched.
//
// Bytes    A row that one rank needs for several experts is sent once. A row computed on its own rank is not
//          copied, so the input of dispatch() must stay valid. Results come back unsummed, k rows per token,
//          so that a token's sum does not depend on the plan.
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
  // A row has `hidden` elements. Communicator, stream and arena must outlive the exchange and every
  // Dispatched. With two levels of nodes, a row that several ranks of another node need crosses the link once
  // and is forwarded within that node ("dispatch in the node"). Results and gradients return directly,
  // unsummed. The tables for forwarding are not in the arena.
  // With `sum_in_nodes`, which needs nodes, each node adds up a token's results and gradients before they
  // leave the node. So one row returns for each row that was sent, and the last bits depend on the plan.
  Exchange(Communicator& comm, Stream& stream, Arena& arena, std::int64_t hidden, DataType type,
           Nodes nodes = {}, bool sum_in_nodes = false);
  ~Exchange();

  // Allocates what steps with `top_k` experts per token need under any plan with the placement of `plan`.
  // Optional: otherwise the first steps allocate it.
  void reserve(const StepPlan& plan, int top_k) {
    deal_.reserve(plan);
    router_.reserve(plan.num_experts(), plan.num_ranks());
    token_rows_.reserve(static_cast<std::size_t>(top_k));
    token_weights_.reserve(static_cast<std::size_t>(top_k));
  }

  // Sends this rank's rows, [tokens, hidden], to the ranks that compute them, and receives the rows that this
  // rank computes. `counts` are the all-gathered counts from which `plan` was made. `lifetime` is how long
  // the result is needed.
  // Throws InvalidArgument, naming the expert and before sending anything, if top_k, counts and plan do not
  // belong to one step of this communicator. Throws BudgetTooSmall if the arena has too little space, and
  // CommError if another rank has thrown or does not answer.
  Dispatched dispatch(const void* hidden, const TopK& top_k, const Counts& counts, const StepPlan& plan,
                      Lifetime lifetime = Lifetime::step);

  // Allocates space for the results computed here, followed by the results to be received.
  Buffer result_buffer(const Dispatched& dispatched) {
    return arena_.allocate(chunk_buffers::result_rows(dispatched.load(), 0) * row_bytes(), "results");
  }
  // Sends results back and writes each token's weighted sum: in top-k order, in f32, rounded once.
  void combine(const Dispatched& dispatched, const Buffer& results, std::span<const float> weights,
               void* output);

  // combine() in parts and with less memory. Each result is stored at the row that `rows` assigns to it.
  // result_buffer() allocates the memory. return_results() sends the held results back once they are
  // computed. sum_results() writes the sums for the tokens of the current range, once their results have
  // arrived or been computed.
  Buffer result_buffer(const ResultRows& rows) {
    return arena_.allocate(rows.rows() * row_bytes(), "results");
  }
  Event return_results(const Dispatched& dispatched, const Buffer& results, const ResultRows& rows,
                       std::span<const float> weights);
  void sum_results(const Dispatched& dispatched, const Buffer& results, const ResultRows& rows,
                   std::span<const float> weights, void* output);

  // Each position's router weight and its gradient: positions here (by output_row), then positions elsewhere.
  struct RouterWeights {
    Buffer numbers;
    std::span<float> values, gradients;
  };
  // The gradient rows received for tokens computed here, and the router weights with space for their
  // gradients. This rank's own gradient rows stay in grad_output (Dispatched::rows() finds them).
  struct IncomingGradients {
    Buffer rows;
    RouterWeights router;
  };
  IncomingGradients dispatch_gradients(const Dispatched& dispatched, const void* grad_output,
                                       std::span<const float> weights);

  // `sums` are the gradients of the rows here: f32, zero at first, for the caller to add to. For type f32
  // this rank's own rows are summed directly in grad_hidden [tokens, hidden]. All other sums are in `rows`,
  // followed by space for the gradients to be received.
  struct RowGradients {
    Buffer rows;
    SplitSums sums;
  };
  RowGradients gradient_buffer(const Dispatched& dispatched, void* grad_hidden);
  // Sends gradients back and writes grad_hidden [tokens, hidden] and grad_weights [tokens * k].
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
  std::unique_ptr<NodeSums> node_sums_;   // of the chunk that is combined, with sum_in_nodes_
  std::vector<std::int32_t> token_rows_;  // [<= k] rows that are added for one token
  std::vector<float> token_weights_;      // their weights
  std::vector<std::int64_t> chosen_;      // [E] assignments of this rank's tokens
};

}  // namespace evenkeel
