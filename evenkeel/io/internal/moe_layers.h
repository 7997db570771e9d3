// Recordings that count every hidden layer: dense ones have no assignment, and are left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/bare_array.h"
#include "evenkeel/io/routing_file.h"

namespace evenkeel::internal {

// The kind of layers that the rows of counts are:
//
//   moe_layers       MoE layers, whose numbers are for the caller to say
//   hidden_layers    all hidden layers of the model, as in SGLang's own recordings
//   hidden_if_dense  counts by the name that SGLang gives its own: hidden layers where any is without an
//                    assignment, else as moe_layers
//   unsaid           counts that somebody saved: hidden layers where the first is without any assignment, as
//                    in all models with dense layers, else MoE layers whose numbers nobody said
enum class CountRows { moe_layers, hidden_layers, hidden_if_dense, unsaid };

// Counts [layers, E], or [steps, layers, E], which are added up. Of hidden layers those without any
// assignment are dense: left out, and the numbers of the others said. Throws ParseError: another shape, a
// negative number, no assignment at all, or a total above 2^63-1.
RoutingFile routing_of_counts(IntArray counts, const std::string& file, const std::string& key,
                              CountRows rows);
// As above; loads that are not whole are scaled to whole ones.
RoutingFile routing_of_counts(const DoubleArray& counts, const std::string& file, const std::string& key,
                              CountRows rows);
// Takes out what notes say of dense layers that were left out, for whoever knows better.
void forget_dense_layers(std::vector<std::string>& notes);

// The trace of an array of numbers that nobody named, if they are recorded ids [tokens, layers, k], or
// [tokens, k] of one layer, whose dense layers are left out (internal/array_trace.h); none, and `numbers` as
// they were, if they are counts. `name` is that of the array. Throws as bare_array_kind().
std::optional<RoutingFile> routing_of_bare_ids(IntArray& numbers, const std::string& file,
                                               const std::string& name, const RoutingOptions& options,
                                               std::optional<int> num_experts,
                                               std::optional<BareArray> where_open = {});

// Ids [tokens, layers, k] of the model's layers `layers`, -1 where there is none.
struct TokenIds {
  std::vector<std::int32_t> ids;
  std::vector<int> layers;
  int top_k = 1;
  std::vector<std::vector<TokenRange>> steps = {};  // the tokens of each, where the file says them
};
// Leaves out layers and places of the top-k that hold no id at all. `num_experts` 0: the largest id plus one.
RoutingFile routing_of_tokens(TokenIds tokens, int num_experts, const std::string& file);

}  // namespace evenkeel::internal
