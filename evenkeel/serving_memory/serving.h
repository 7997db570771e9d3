// The memory of one device that serves a Mixture-of-Experts model: weights, key-value cache, and the
// workspace of its MoE layers at even, worst and recorded routing.
//
//   ServingModel serving(read_model_description("config.json"), {.parallel = {.expert = 16, .data = 16}});
//   fit_serving(serving, /*available_bytes=*/std::int64_t{64} << 30).fits;
//
// Layout     A pipeline stage has t d devices: d replicas of attention with t devices each; each replica
//            serves its own sequences. The same devices hold the experts, in e parts of e_t slices each.
// Weights    Attention, dense networks, shared experts and the vocabulary are divided by t. Norms, routers
//            and the shared parts of latent attention are whole. A device has ceil((E + redundant) / e)
//            experts, 1 / e_t of each.
// Cache      Per token and layer: keys and values of ceil(key heads / t) heads. With latent attention:
//            kv_rank + rope numbers, whole on every device. An indexer's key in fp8, with a scale per 128
//            numbers. A window bounds the tokens. Linear attention and state spaces keep one state per
//            sequence.
// Workspace  rows x (max(I, K) + max(2 I, K)) numbers. K is the width of a row, I an expert's width on this
//            device. The first term is the gathered or activated rows, the second the result of a product. A
//            row is an assignment to an expert on this device. Each expert's rows begin on a multiple of 128:
//            rows + 127 experts, rounded up.
// Rows       The ranks of e bring T tokens: T k / e rows if even, T min(k, experts here) at worst.
// Left out   Activations outside of experts, received rows before they are gathered, CUDA graphs, NCCL.
// Cost       O(layers) per call. Judging a recording: one placement and O(steps layers experts).
// Source     vLLM: deep_gemm_moe.py (workspace_shapes), deep_gemm_utils.py (compute_aligned_M), the table of
//            pull request 57270; docs/serving-memory.md compares it with ours.
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
  Parallelism parallel = {};                 // c and v must be 1
  std::int64_t sequences = 1;                // of each replica, all at once
  std::int64_t context = 4096;               // tokens of each sequence
  std::int64_t tokens = 8192;                // of each replica in a step
  std::int64_t redundant_experts = 0;        // copies of a layer's experts, beyond the first of each
  std::optional<std::int64_t> slots;         // for borrowed experts; default: slots_for_any_routing()
  std::int64_t activation_bytes = 2;         // bytes per number
  std::optional<std::int64_t> cache_bytes;   // bytes per number; default: the config's type
  std::optional<std::int64_t> weight_bytes;  // bytes per matrix weight; default: the checkpoint's
  std::optional<std::int64_t> expert_bytes;  // bytes of a whole routed expert
};

// One routing, and one way to run it.
struct RoutingCase {
  std::string name;                  // "worst"
  std::int64_t rows = 0;             // of the fullest device in a step
  std::int64_t chunks = 1;           // number of chunks in a step
  std::int64_t borrowed = 0;         // number of borrowed experts on a device
  std::int64_t workspace_bytes = 0;  // of one chunk
  std::int64_t borrowed_bytes = 0;
  std::int64_t total_bytes = 0;  // of the fullest stage
  // Cache tokens of a replica that fit beside everything else, in sequences as long as the context.
  std::int64_t cache_tokens = 0;
  bool fits = false;
};

class ServingModel {
 public:
  // Throws InvalidArgument as MemoryModel does. Also for c or v above 1, numbers out of range, more copies
  // than put every expert on every rank, and too few slots to level any routing.
  ServingModel(ModelDescription model, ServingSetup setup);

  const ModelDescription& model() const { return layout_.model(); }
  const ServingSetup& setup() const { return setup_; }
  const MemoryModel& layout() const { return layout_; }
  // ceil((E + redundant) / e).
  std::int64_t local_experts() const;
  std::int64_t expert_bytes() const;  // one slice of an expert
  std::vector<StaticItem> weights(int stage) const;
  // Bytes on a device, for the tokens that an entry of `cache` covers.
  std::int64_t cache_bytes(const CacheShape& cache) const;
  // Cache bytes of one sequence in all layers of a stage.
  std::int64_t sequence_bytes(int stage) const;

  // Assignments of all ranks in a step.
  std::int64_t assignments() const;
  std::int64_t even_rows() const;
  // The most rows that routing can send to a rank, if copies are spread as evenly as possible and share their
  // load.
  std::int64_t worst_rows() const;
  // With this many slots no rank computes more than even_rows(), whatever the routing.
  std::int64_t slots_for_any_routing() const;
  RoutingCase routing(std::string name, std::int64_t rows, std::int64_t chunks = 1,
                      std::int64_t borrowed = 0) const;

  // What a reader of the figures must know, one sentence each.
  std::vector<std::string> notes() const;

 private:
  // Bytes of one expert in the types of its tensors, if these are known.
  std::optional<std::int64_t> stored_expert_bytes() const;
  std::int64_t own_bytes() const;     // bytes per number in the config's type
  std::int64_t matrix_bytes() const;  // bytes per matrix weight

  ServingSetup setup_;
  MemoryModel layout_;
};

// Cases from the recorded routing, scaled to the assignments of a step: the fullest rank over all layers and
// steps, with contiguous experts. With two or more steps there are two more cases: their second half, and the
// second half with experts placed and copied by the first half. Throws InvalidArgument if the recording has
// another number of experts.
std::vector<RoutingCase> recorded_cases(const ServingModel& serving, const std::string& name,
                                        std::span<const RoutingProfile> steps);

struct ServingStage {
  int stage = 0;
  bool has_experts = false;
  std::vector<StaticItem> weights;
  std::int64_t weight_bytes = 0;
  std::int64_t sequence_bytes = 0;
  std::int64_t cache_bytes = 0;  // of all sequences
  std::int64_t total_bytes = 0;  // in the judged case
  bool fits = false;
};

struct ServingFit {
  std::vector<ServingStage> stages;
  std::vector<RoutingCase> cases;  // even, worst, given if `received` is set, then others
  std::size_t judged = 1;          // the case that decides whether it fits
  int tightest = 0;                // the stage that holds the most bytes
  bool fits = false;

  const ServingStage& tightest_stage() const { return stages[static_cast<std::size_t>(tightest)]; }
  const RoutingCase& judged_case() const { return cases[judged]; }
};

// `received` is the number of rows of the fullest device in a step; it decides whether the model fits.
// Without it the worst case decides. `recorded` are further cases.
ServingFit fit_serving(const ServingModel& serving, std::int64_t available_bytes,
                       std::optional<std::int64_t> received = {}, std::vector<RoutingCase> recorded = {});

}  // namespace evenkeel
