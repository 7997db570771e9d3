#include "evenkeel/training_memory/memory_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/training_memory/internal/bytes_math.h"
#include "evenkeel/training_memory/names.h"

namespace evenkeel {

namespace {

void require_positive(const char* what, std::int64_t number) {
  if (number < 1) throw InvalidArgument(what, fmt::format("{}", number), "1 or more");
}

void require_degrees(const Parallelism& parallel) {
  for (const auto& [name, degree] : degree_names)
    if (parallel.*degree < 1 || parallel.*degree > most_degree)
      throw InvalidArgument("parallel", fmt::format("{}={}", name, parallel.*degree),
                            fmt::format("{} in 1..{}", name, most_degree));
  const internal::Wide devices =
      internal::Wide{parallel.tensor} * parallel.context * parallel.data * parallel.pipeline;
  if (devices > most_devices)
    throw InvalidArgument("parallel",
                          fmt::format("tp={} x cp={} x dp={} x pp={} are too many devices", parallel.tensor,
                                      parallel.context, parallel.data, parallel.pipeline),
                          fmt::format("at most {} devices", most_devices));
}

// Throws unless the devices of a stage together hold only whole copies of its experts.
void require_whole_experts(const Parallelism& parallel) {
  const std::int64_t devices = parallel.stage_devices();
  if (devices % parallel.expert_parts() == 0) return;
  throw InvalidArgument(
      "parallel",
      fmt::format(
          "tp={} x cp={} x dp={} makes {} devices a pipeline stage, not a multiple of ep={} x etp={} = {}, "
          "so that they cannot hold whole copies of the experts",
          parallel.tensor, parallel.context, parallel.data, devices, parallel.expert, parallel.expert_tensor,
          parallel.expert_parts()),
      fmt::format("dp={} or a multiple, or ep x etp that divides {}", parallel.least_data(), devices));
}

// Throws unless the model has the parts that backward is to recompute.
void require_parts(const ModelDescription& model, const SelectiveRecompute& selective) {
  const auto require = [](bool has, const char* part, const char* lack) {
    if (!has)
      throw InvalidArgument("recompute", fmt::format("{}, but the model has no {}", part, lack),
                            "parts that the model has");
  };
  const bool dense = std::ranges::find(model.has_experts, false) != model.has_experts.end();
  require(!selective.mla_up_proj || model.attention.latent, "mla_up_proj", "latent attention");
  require(!selective.shared_experts || model.experts.shared_width > 0, "shared_experts", "shared experts");
  require(!selective.mlp || dense, "mlp", "layer without experts");
}

void validate_options(const ModelDescription& model, const MemorySetup& setup) {
  if (model.weights.empty())
    throw Unsupported(fmt::format(
        "the config.json of a '{}' alone does not describe all its weights; give the folder of its "
        "checkpoint (--model DIR: the safetensors headers are read), or in Python the model "
        "itself, which may be on the meta device: evenkeel.memory(model)",
        model.family));
  const Parallelism& parallel = setup.parallel;
  require_degrees(parallel);
  require_positive("sequence", setup.sequence);
  require_positive("micro_batch", setup.micro_batch);
  if (setup.pieces.empty() && parallel.pipeline > model.num_layers / parallel.virtual_stages)
    throw InvalidArgument("parallel",
                          fmt::format("pp={} with vp={} makes more stages than the model has layers, {}",
                                      parallel.pipeline, parallel.virtual_stages, model.num_layers),
                          fmt::format("pp x vp of at most {}", model.num_layers));
  if (parallel.expert > model.experts.count)
    throw InvalidArgument(
        "parallel", fmt::format("ep={}, but the model has {} experts", parallel.expert, model.experts.count),
        fmt::format("1..{}", model.experts.count));
  if (model.experts.intermediate % parallel.expert_tensor != 0)
    throw InvalidArgument("parallel",
                          fmt::format("etp={} does not divide the width of an expert, {}",
                                      parallel.expert_tensor, model.experts.intermediate),
                          fmt::format("an etp that divides {}", model.experts.intermediate));
  require_whole_experts(parallel);
  if (setup.extra.kept_tensors && model.attention.heads % parallel.tensor != 0)
    throw InvalidArgument(
        "parallel",
        fmt::format("tp={} does not divide the {} attention heads", parallel.tensor, model.attention.heads),
        fmt::format("a tp that divides {}", model.attention.heads));
  if (setup.selective.any() && (setup.full_recompute || !setup.extra.kept_tensors))
    throw InvalidArgument(
        "recompute",
        setup.full_recompute ? "parts of a layer cannot be combined with full recomputation"
                             : "parts of a layer need the term kept-tensors: the paper's Table 2 does not "
                               "separate them",
        setup.full_recompute ? "either of the two" : "to count kept-tensors, or none or full");
  require_parts(model, setup.selective);
}

// Cuts the layers as evenly as possible.
std::vector<PipelinePiece> even_pieces(const ModelDescription& model, const Parallelism& parallel) {
  std::vector<PipelinePiece> pieces(static_cast<std::size_t>(parallel.pipeline * parallel.virtual_stages));
  const std::int64_t number = std::ssize(pieces);
  for (std::int64_t i = 0; i < number; ++i)
    pieces[static_cast<std::size_t>(i)].layers =
        (i + 1) * model.num_layers / number - i * model.num_layers / number;
  pieces.front().embedding = true;
  pieces.back().head = true;
  pieces.back().prediction_layers = std::ssize(model.prediction_layers);
  return pieces;
}

void require_whole_model(const std::vector<PipelinePiece>& pieces, const ModelDescription& model,
                         const MemorySetup& setup) {
  PipelinePiece sum;
  std::int64_t embeddings = 0, heads = 0;
  for (const PipelinePiece& piece : pieces) {
    sum.layers += piece.layers;
    sum.prediction_layers += piece.prediction_layers;
    embeddings += piece.embedding ? 1 : 0;
    heads += piece.head ? 1 : 0;
  }
  const std::int64_t number = setup.parallel.pipeline * setup.parallel.virtual_stages;
  const bool predicts = sum.prediction_layers == std::ssize(model.prediction_layers);
  if (std::ssize(pieces) == number && sum.layers == model.num_layers && embeddings == 1 && heads == 1 &&
      (predicts || !setup.extra.prediction))
    return;
  throw InvalidArgument(
      "pipeline_layout",
      fmt::format("has {} pieces with {} layers, {} prediction layers, {} embeddings and {} heads",
                  pieces.size(), sum.layers, sum.prediction_layers, embeddings, heads),
      fmt::format("pp x vp = {} pieces with {} layers, {} prediction layers (any number if the term "
                  "prediction is not counted), one embedding and one head",
                  number, model.num_layers, model.prediction_layers.size()));
}

}  // namespace

std::int64_t Parallelism::least_data() const {
  return expert_parts() / std::gcd(expert_parts(), tensor * context);
}

MemoryModel::MemoryModel(ModelDescription model, MemorySetup setup)
    : model_(std::move(model)), setup_(std::move(setup)) {
  validate_options(model_, setup_);
  pipeline_ = setup_.pieces.empty() ? even_pieces(model_, setup_.parallel) : setup_.pieces;
  require_whole_model(pipeline_, model_, setup_);
  const std::int64_t all = model_.num_layers + std::ssize(model_.prediction_layers);
  std::int64_t layer = 0, prediction = model_.num_layers;
  for (const PipelinePiece& piece : pipeline_) {
    auto& layers = pieces_.emplace_back();
    for (std::int64_t i = 0; i < piece.layers; ++i) layers.push_back(layer++);
    for (std::int64_t i = 0; setup_.extra.prediction && i < piece.prediction_layers; ++i)
      layers.push_back(prediction++);
  }
  parts_.resize(static_cast<std::size_t>(all));
  for (const Weight& weight : model_.weights) {
    if (weight.layer == no_layer) continue;
    LayerParts& parts = parts_[static_cast<std::size_t>(weight.layer)];
    parts.mixer |= weight.kind == WeightKind::attention;
    parts.experts |= weight.kind == WeightKind::experts;
    parts.dense |= weight.kind == WeightKind::dense;
  }
  layers_.resize(static_cast<std::size_t>(setup_.parallel.pipeline));
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {  // dealt to the stages in turn
    auto& layers = layers_[piece % layers_.size()];
    layers.insert(layers.end(), pieces_[piece].begin(), pieces_[piece].end());
  }
  stage_of_.assign(static_cast<std::size_t>(all), -1);
  for (int stage = 0; stage < num_stages(); ++stage)
    for (const std::int64_t mine : layers(stage)) stage_of_[static_cast<std::size_t>(mine)] = stage;
}

std::int64_t MemoryModel::prediction_layers(int stage) const {
  return std::ranges::count_if(layers(stage), [&](std::int64_t layer) { return layer >= model_.num_layers; });
}

bool MemoryModel::any_piece(int stage, bool PipelinePiece::*part) const {
  for (std::size_t piece = static_cast<std::size_t>(stage); piece < pipeline_.size(); piece += layers_.size())
    if (pipeline_[piece].*part) return true;
  return false;
}

bool MemoryModel::has_experts(int stage) const {
  return piece_layers(stage, Part::experts) > 0;
}

std::int64_t MemoryModel::piece_layers(int stage, Part part) const {
  const auto has = [&](std::int64_t layer) {
    const LayerParts& parts = parts_[static_cast<std::size_t>(layer)];
    switch (part) {
      case Part::mixer:
        return parts.mixer;
      case Part::network:
        return parts.experts || parts.dense;
      case Part::experts:
        return parts.experts;
      case Part::dense:
        return parts.dense && !parts.experts;
      default:
        return true;
    }
  };
  std::int64_t most = 0;
  for (std::size_t piece = static_cast<std::size_t>(stage); piece < pieces_.size(); piece += layers_.size())
    most = std::max<std::int64_t>(most, std::ranges::count_if(pieces_[piece], has));
  return most;
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
  return internal::narrow(internal::Wide{setup_.parallel.expert_parts()} * setup_.sequence *
                          std::min(model_.experts.top_k, local_experts()));
}

std::int64_t MemoryModel::even_received() const {
  return internal::narrow(internal::Wide{setup_.sequence} * model_.experts.top_k *
                          setup_.parallel.expert_tensor);
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
