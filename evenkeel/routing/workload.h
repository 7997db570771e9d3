// Synthetic routing: named workloads. Each is a pure function of workload, shape, seed and step.
//
//   name                         what the tokens choose
//   balanced                     every expert equally often (loads differ by at most 1), in seeded order
//   concentrated:F:N[:spread]    a share F of all assignments goes evenly to N experts, the rest evenly to
//                                the other experts. The N experts are 0..N-1; with :spread the seed chooses
//                                them. Shares are exact up to rounding; an id may repeat within a token
//   zipf:S                       the i-th most popular expert has weight i^-S; the seed gives the order
//   lognormal:SIGMA              expert popularity exp(SIGMA z), z standard normal, drawn from the seed
//   drift                        max(k, E/16) experts share half of the popularity; each step the set
//                                moves on by one expert
//   collapse                     popularity moves to max(k, E/32) experts: they gain half of the others'
//                                popularity at step 0, and half of what the others still have every two steps
//                                after that
//   w0 .. w7 the eight workloads of Megatron-LM pull request 7488, defined in docs/workloads.md
//
// Except in concentrated, each token chooses k distinct experts. A token's choice depends on its index among
// all tokens of the step. So the choices do not depend on the number of ranks, if the total number of tokens
// is the same. This includes w4, whose ranks have unequal numbers of tokens. All draws are integer arithmetic
// on a counter, so they are the same on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

struct Workload {
  enum class Kind {
    balanced,
    concentrated,
    zipf,
    lognormal,
    drift,
    collapse,
    w0_balanced,
    w1_hot_expert_set,
    w2_hot_rank,
    w3_spread_hot_experts,
    w4_source_ragged,
    w5_zero_expert_rank,
    w6_rotating_hotspot,
    w7_burst,
  };

  Kind kind = Kind::balanced;
  double share = 0;     // concentrated: F
  int hot_experts = 0;  // concentrated: N
  bool spread = false;  // concentrated: the seed chooses the N experts
  double exponent = 0;  // zipf: S; lognormal: SIGMA

  friend bool operator==(const Workload&, const Workload&) = default;
};

// Reads a name from the table above. Throws InvalidArgument, naming the parameter and its allowed values.
Workload parse_workload(std::string_view text);
std::string to_string(const Workload& workload);
// All names in one line, for help texts.
std::string_view workload_names();

struct WorkloadShape {
  int num_ranks = 8;
  std::int64_t tokens_per_rank = 2048;  // the mean, if ranks have unequal numbers of tokens (w4)
  int num_experts = 128;
  int top_k = 4;
};

// The tokens of one rank.
struct RankRouting {
  std::vector<std::int32_t> ids;  // [tokens, k]
  std::vector<float> weights;     // [tokens, k], positive; a token's weights descend and add up to 1
  std::int64_t num_tokens = 0;
};

struct Routing {
  std::vector<RankRouting> ranks;

  // The number of tokens of the rank that has the most; a layer's max_tokens must be at least this.
  std::int64_t max_tokens() const;
  // The number of assignments to each expert, over all ranks.
  std::vector<std::int64_t> loads(int num_experts) const;
};

// Throws InvalidArgument if a number in `shape` is below 1 (the number of tokens: below 0), if top_k is above
// num_experts although the workload needs distinct experts, or if the workload does not fit the number of
// experts.
Routing make_routing(const Workload& workload, const WorkloadShape& shape, std::uint64_t seed,
                     std::uint64_t step);

}  // namespace evenkeel
