// The memory of one device that serves a Mixture-of-Experts model: weights, key-value cache, and the
// workspace of its MoE layers at even, worst and recorded routing.
//
//   ServingModel serving(read_model_description("config.json"), {.parallel = {.expert = 16, .data = 16}});
//   fit_serving(serving, /*available_bytes=*/std::int64_t{64} << 30).fits;
//
// Layout     A pipeline stage has t d devices: d attention replicas of t devices each, and each replica
//            serves its own sequences. The same devices hold the experts, in e parts of e_t slices each.
// Weights    Attention, dense networks, shared experts and the vocabulary are divided by t. Every device has
//            whole norms, routers and shared parts of latent attention. It has ceil((E + redundant) / e)
//            experts, 1 / e_t of each.
// Cache      For each token and layer: keys and values of ceil(key heads / t) heads; or with latent
//            attention, kv_rank + rope numbers, whole on every device. An indexer adds its key in fp8, with a
//            scale for every 128 numbers. With windowed attention, the window limits the number of tokens.
//            Linear attention and state-space layers keep one state for each sequence.
// Workspace  rows x (max(I, K) + max(2 I, K)) numbers. K is the width of a row, I an expert's width on this
//            device. The first term is for the gathered or activated rows, the second for the result of a
//            product. A row is an assignment to an expert on this device. Each expert's rows begin on a
//            multiple of 128, so `rows` is the number of assignments + 127 x the number of experts, rounded
//            up.
// Rows       The e ranks have T tokens together. A rank gets T k / e rows if routing is even, and T min(k,
//            experts here) at worst.
// Left out   Activations outside of experts, received rows before they are gathered, CUDA graphs, NCCL.
// Cost       O(layers) per call. Judging a recording takes one placement and O(steps x layers x experts).
// Source     vLLM: deep_gemm_moe.py (workspace_shapes), deep_gemm_utils.py (compute_aligned_M), the table in
//            pull request 57270. docs/serving-memory.md compares that table with this model.
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
  Parallelism parallel = {};                 // context (c) and virtual_stages (v) must be 1
  std::int64_t sequences = 1;                // served by each replica at the same time
  std::int64_t context = 4096;               // tokens of each sequence
  std::int64_t tokens = 8192;                // computed by each replica in a step
  std::int64_t redundant_experts = 0;        // copies of a layer's experts, in addition to the first of each
  std::optional<std::int64_t> slots;         // slots for borrowed experts; default: slots_for_any_routing()
  std::int64_t activation_bytes = 2;         // bytes of a number
  std::optional<std::int64_t> cache_bytes;   // bytes of a number; default: those of the config's type
  std::optional<std::int64_t> weight_bytes;  // bytes of a matrix weight; default: as in the checkpoint
  std::optional<std::int64_t> expert_bytes;  // bytes of a whole routed expert
};

// A routing, and a way to run it.
struct RoutingCase {
  std::string name;                  // such as "worst"
  std::int64_t rows = 0;             // of the fullest device, in a step
  std::int64_t chunks = 1;           // number of chunks in a step
  std::int64_t borrowed = 0;         // number of borrowed experts on a device
  std::int64_t workspace_bytes = 0;  // of one chunk
  std::int64_t borrowed_bytes = 0;
  std::int64_t total_bytes = 0;  // of the fullest stage
  // The number of cache tokens of a replica that fit in addition to everything else, if sequences are as long
  // as the context.
  std::int64_t cache_tokens = 0;
  bool fits = false;
};

class ServingModel {
 public:
  // Throws InvalidArgument as MemoryModel does. Also throws it for context or virtual_stages above 1, for
  // numbers out of range, for more copies than needed to put every expert on every rank, and for fewer slots
  // than needed to level any routing.
  ServingModel(ModelDescription model, ServingSetup setup);

  const ModelDescription& model() const { return layout_.model(); }
  const ServingSetup& setup() const { return setup_; }
  const MemoryModel& layout() const { return layout_; }
  // ceil((E + redundant) / e).
  std::int64_t local_experts() const;
  std::int64_t expert_bytes() const;  // of one slice of an expert
  std::vector<StaticItem> weights(int stage) const;
  // Bytes on a device for one entry of the cache, which may cover several tokens.
  std::int64_t cache_bytes(const CacheShape& cache) const;
  // Cache bytes of one sequence in all layers of a stage.
  std::int64_t sequence_bytes(int stage) const;

  // The number of assignments of all ranks in a step.
  std::int64_t assignments() const;
  std::int64_t even_rows() const;
  // The most rows that routing can send to a rank, if copies are spread as evenly as possible and share their
  // load.
  std::int64_t worst_rows() const;
  // With this many slots, no rank computes more than even_rows() rows under any routing.
  std::int64_t slots_for_any_routing() const;
  RoutingCase routing(std::string name, std::int64_t rows, std::int64_t chunks = 1,
                      std::int64_t borrowed = 0) const;

  // Notes that a reader of the figures must know, one sentence each.
  std::vector<std::string> notes() const;

 private:
  // Bytes of one expert in the types of its tensors, if these are known.
  std::optional<std::int64_t> stored_expert_bytes() const;
  std::int64_t own_bytes() const;     // bytes of a number in the config's type
  std::int64_t matrix_bytes() const;  // bytes of a matrix weight

  ServingSetup setup_;
  MemoryModel layout_;
};

// Cases from the recorded routing, scaled to the number of assignments in a step. The first case is the
// fullest rank over all layers and steps, with contiguous experts. With two or more steps there are two more
// cases: the second half of the steps, and the second half with experts placed and copied according to the
// first half. Throws InvalidArgument if the recording has a different number of experts.
std::vector<RoutingCase> recorded_cases(const ServingModel& serving, const std::string& name,
                                        std::span<const RoutingProfile> steps);

struct ServingStage {
  int stage = 0;
  bool has_experts = false;
  std::vector<StaticItem> weights;
  std::int64_t weight_bytes = 0;
  std::int64_t sequence_bytes = 0;
  std::int64_t cache_bytes = 0;  // of all sequences
  std::int64_t total_bytes = 0;  // bytes in the judged case
  bool fits = false;
};

struct ServingFit {
  std::vector<ServingStage> stages;
  std::vector<RoutingCase> cases;  // "even", "worst", "given" if `received` is set, then others
  std::size_t judged = 1;          // the case that decides whether it fits
  int tightest = 0;                // the stage that holds the most bytes
  bool fits = false;

  const ServingStage& tightest_stage() const { return stages[static_cast<std::size_t>(tightest)]; }
  const RoutingCase& judged_case() const { return cases[judged]; }
};

// `received`, the number of rows of the fullest device in a step, decides whether the model fits. If it is
// not given, the worst case decides. `recorded` lists more cases.
ServingFit fit_serving(const ServingModel& serving, std::int64_t available_bytes,
                       std::optional<std::int64_t> received = {}, std::vector<RoutingCase> recorded = {});

}  // namespace evenkeel
