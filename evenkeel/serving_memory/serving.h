// The memory of one device while a Mixture-of-Experts model is served: weights, the cache of keys and values,
// and the workspace of its MoE layers at even routing, at the worst, and as it was recorded.
//
//   ServingModel serving(read_model_description("config.json"), {.parallel = {.expert = 16, .data = 16}});
//   fit_serving(serving, /*available_bytes=*/std::int64_t{64} << 30).fits;
//
// Layout     a pipeline stage has t d devices: d replicas of attention, which serve sequences of their own,
// of
//            t devices each. The same devices hold the experts, in e parts of e_t slices each.
// Weights    attention, dense networks, shared experts and the vocabulary over t; norms, routers and what all
//            heads share of latent attention whole; of experts ceil((E + redundant) / e), 1 / e_t of each.
// Cache      of a token and layer: keys and values of ceil(key heads / t) heads; with latent attention
//            kv_rank + rope numbers, whole on every device; an indexer's key in fp8 with a scale for each 128
//            numbers. A window bounds the tokens. Linear attention and state spaces keep a state a sequence.
// Workspace  rows x (max(I, K) + max(2 I, K)) numbers, K the width of a row, I that of an expert here: what
//            is gathered or activated, and what a product gives. A row is an assignment to an expert here.
//            Each expert's rows begin on a multiple of 128: rows + 127 experts, rounded up.
// Rows       of T tokens that the ranks of e bring: evenly T k / e, at worst T min(k, experts here).
// Not here   activations outside of experts, received rows before they are gathered, CUDA graphs, NCCL.
// Cost       O(layers) a call; judging a recording one placement and O(steps layers experts).
// Source     vLLM: deep_gemm_moe.py (workspace_shapes), deep_gemm_utils.py (compute_aligned_M), the table of
//            pull request 57270; docs/serving-memory.md holds ours beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/routing/profile.h"
#include "evenkeel/training_memory/memory_model.h"

namespace evenkeel {

struct ServingSetup {
  Parallelism parallel = {};                 // c and v are 1
  std::int64_t sequences = 1;                // of each replica, all at once
  std::int64_t context = 4096;               // tokens of each
  std::int64_t tokens = 8192;                // that a replica brings to a step
  std::int64_t redundant_experts = 0;        // copies of a layer's experts, beyond one of each
  std::optional<std::int64_t> slots;         // for borrowed experts; without, slots_for_any_routing()
  std::int64_t activation_bytes = 2;         // of a number
  std::optional<std::int64_t> cache_bytes;   // of a number; without, as the config's type
  std::optional<std::int64_t> weight_bytes;  // of a weight of a matrix; without, as the checkpoint has it
  std::optional<std::int64_t> expert_bytes;  // of a whole routed expert
};

// One routing, and one way to carry it out.
struct RoutingCase {
  std::string name;                  // "worst"
  std::int64_t rows = 0;             // of the fullest device, in a step
  std::int64_t chunks = 1;           // that the step is cut into
  std::int64_t borrowed = 0;         // experts of other devices whose weights are here
  std::int64_t workspace_bytes = 0;  // of a chunk
  std::int64_t borrowed_bytes = 0;
  std::int64_t total_bytes = 0;  // of the fullest stage
  // Of a replica, those that fit beside all else, in sequences as long as the context.
  std::int64_t cache_tokens = 0;
  bool fits = false;
};

class ServingModel {
 public:
  // Throws InvalidArgument where MemoryModel does, and for c or v above 1, numbers out of range, more copies
  // than put every expert on every rank, and fewer slots than level any routing.
  ServingModel(ModelDescription model, ServingSetup setup);

  const ModelDescription& model() const { return layout_.model(); }
  const ServingSetup& setup() const { return setup_; }
  const MemoryModel& layout() const { return layout_; }
  // ceil((E + redundant) / e).
  std::int64_t local_experts() const;
  std::int64_t expert_bytes() const;  // one slice of an expert
  std::vector<StaticItem> weights(int stage) const;
  // On a device, for the tokens that the numbers stand for.
  std::int64_t cache_bytes(const CacheShape& cache) const;
  // Of one sequence, of all layers of a stage.
  std::int64_t sequence_bytes(int stage) const;

  // Assignments of all ranks in a step.
  std::int64_t assignments() const;
  std::int64_t even_rows() const;
  // The most that routing can send to a rank, where copies lie as evenly as can be and share their load.
  std::int64_t worst_rows() const;
  // With so many slots no rank computes more than even_rows(), whatever the routing.
  std::int64_t slots_for_any_routing() const;
  RoutingCase routing(std::string name, std::int64_t rows, std::int64_t chunks = 1,
                      std::int64_t borrowed = 0) const;

  // What a reader of the figures must know, a sentence each.
  std::vector<std::string> notes() const;

 private:
  // Of one expert, in the types of its tensors, where those are known.
  std::optional<std::int64_t> stored_expert_bytes() const;
  std::int64_t own_bytes() const;     // of a number of the config's type
  std::int64_t matrix_bytes() const;  // of a weight

  ServingSetup setup_;
  MemoryModel layout_;
};

// The routing that was recorded, scaled to the assignments of a step: the fullest rank of all layers and
// steps, with contiguous experts. Of two steps or more also of their second half, and of that with the
// experts placed, and copied, by the first half. Throws InvalidArgument for a recording of other experts.
std::vector<RoutingCase> recorded_cases(const ServingModel& serving, const std::string& name,
                                        std::span<const RoutingProfile> steps);

struct ServingStage {
  int stage = 0;
  bool has_experts = false;
  std::vector<StaticItem> weights;
  std::int64_t weight_bytes = 0;
  std::int64_t sequence_bytes = 0;
  std::int64_t cache_bytes = 0;  // of all sequences
  std::int64_t total_bytes = 0;  // with the judged routing
  bool fits = false;
};

struct ServingFit {
  std::vector<ServingStage> stages;
  std::vector<RoutingCase> cases;  // even, worst, and given where it is
  std::size_t judged = 1;          // which of them says whether it fits
  int tightest = 0;                // the stage that holds most
  bool fits = false;

  const ServingStage& tightest_stage() const { return stages[static_cast<std::size_t>(tightest)]; }
  const RoutingCase& judged_case() const { return cases[judged]; }
};

// `received`: rows of the fullest device in a step, by which is judged; without, the worst. `recorded` are
// further cases.
ServingFit fit_serving(const ServingModel& serving, std::int64_t available_bytes,
                       std::optional<std::int64_t> received = {}, std::vector<RoutingCase> recorded = {});

}  // namespace evenkeel
