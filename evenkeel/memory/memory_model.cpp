#include "evenkeel/memory/memory_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/base/error.h"
#include "evenkeel/memory/internal/bytes_math.h"

namespace evenkeel {

namespace {

void require_positive(const char* what, std::int64_t number) {
  if (number < 1) throw InvalidArgument(what, fmt::format("{}", number), "1 or more");
}

void require_sense(const ModelDescription& model, const MemorySetup& setup) {
  const Parallelism& parallel = setup.parallel;
  for (const std::int64_t size : {parallel.tensor, parallel.pipeline, parallel.expert, parallel.data,
                                  parallel.virtual_stages, parallel.context})
    require_positive("parallel", size);
  require_positive("sequence", setup.sequence);
  require_positive("micro_batch", setup.micro_batch);
  if (parallel.pipeline > model.num_layers / parallel.virtual_stages)
    throw InvalidArgument("parallel",
                          fmt::format("pp={} with vp={} makes more stages than the model has layers, {}",
                                      parallel.pipeline, parallel.virtual_stages, model.num_layers),
                          "pp x vp of at most the layers");
  if (parallel.expert > model.experts.count)
    throw InvalidArgument(
        "parallel", fmt::format("ep={}, but the model has {} experts", parallel.expert, model.experts.count),
        fmt::format("1..{}", model.experts.count));
  if (setup.extra.sharded_optimizer && parallel.data * parallel.context % parallel.expert != 0)
    throw InvalidArgument(
        "parallel",
        fmt::format("ep={} does not divide dp x cp = {}, so an expert's optimizer states cannot be sharded",
                    parallel.expert, parallel.data * parallel.context),
        "ep that divides dp x cp");
}

// The pipeline's pieces are cut as evenly as layers allow, and dealt to the stages in turns.
std::vector<std::vector<std::int64_t>> layers_of_stages(std::int64_t num_layers,
                                                        const Parallelism& parallel) {
  const std::int64_t pieces = parallel.pipeline * parallel.virtual_stages;
  std::vector<std::vector<std::int64_t>> layers(static_cast<std::size_t>(parallel.pipeline));
  for (std::int64_t piece = 0; piece < pieces; ++piece)
    for (std::int64_t layer = piece * num_layers / pieces; layer < (piece + 1) * num_layers / pieces; ++layer)
      layers[static_cast<std::size_t>(piece % parallel.pipeline)].push_back(layer);
  return layers;
}

}  // namespace

MemoryModel::MemoryModel(ModelDescription model, MemorySetup setup)
    : model_(std::move(model)), setup_(setup) {
  require_sense(model_, setup_);
  layers_ = layers_of_stages(model_.num_layers, setup_.parallel);
}

bool MemoryModel::has_experts(int stage) const {
  return std::ranges::any_of(layers(stage), [this](std::int64_t layer) {
    return model_.has_experts[static_cast<std::size_t>(layer)];
  });
}

std::int64_t MemoryModel::schedule_copies(int stage) const {
  return setup_.parallel.virtual_stages * setup_.parallel.pipeline + setup_.parallel.pipeline - 2 * stage - 1;
}

std::int64_t MemoryModel::micro_batches_in_flight(int stage) const {
  return setup_.parallel.virtual_stages == 1 ? setup_.parallel.pipeline - stage : schedule_copies(stage);
}

std::int64_t MemoryModel::stored_copies(int stage) const {
  return setup_.full_recompute ? 1 : schedule_copies(stage);
}

std::int64_t MemoryModel::local_experts() const {
  return (model_.experts.count + setup_.parallel.expert - 1) / setup_.parallel.expert;
}

std::int64_t MemoryModel::worst_received() const {
  return internal::narrow(internal::Wide{setup_.parallel.expert} * setup_.sequence *
                          std::min(model_.experts.top_k, local_experts()));
}

std::int64_t MemoryModel::even_received() const {
  return internal::narrow(internal::Wide{setup_.sequence} * model_.experts.top_k);
}

std::int64_t total_bytes(const std::vector<StaticItem>& items) {
  internal::Wide sum = 0;
  for (const StaticItem& item : items) sum += item.total_bytes();
  return internal::narrow(sum);
}

std::int64_t total_bytes(const std::vector<ActiveItem>& items) {
  internal::Wide sum = 0;
  for (const ActiveItem& item : items) sum += item.bytes;
  return internal::narrow(sum);
}

}  // namespace evenkeel
