#include "evenkeel/routing/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/base/stop.h"

namespace evenkeel {

namespace {

// The number of assignments converted at a time: 2 MiB of int64, which is small compared with the batch that
// a caller requests.
constexpr std::int64_t block_assignments = std::int64_t{1} << 18;
constexpr std::int64_t batch_assignments = std::int64_t{1} << 20;

void require_shape(const TraceInfo& info) {
  if (info.num_layers < 1 || info.top_k < 1 || info.num_tokens < 0)
    throw ParseError(
        info.name, "topk_ids",
        fmt::format("shape [{}, {}, {}] is not [tokens, layers, k] with at least one layer and k >= 1",
                    info.num_tokens, info.num_layers, info.top_k));
  if (info.assignments_per_token() > max_trace_assignments_per_token)
    throw ParseError(info.name, "topk_ids",
                     fmt::format("{} layers of top-{} are more than {} assignments a token", info.num_layers,
                                 info.top_k, max_trace_assignments_per_token));
  if (info.num_experts < 0 || info.num_experts > max_trace_experts)
    throw ParseError(info.name, "num_experts",
                     fmt::format("{} experts; allowed: 1..{}", info.num_experts, max_trace_experts));
}

void require_sequences(const TraceInfo& info) {
  const auto& offsets = info.sequence_offsets;
  if (offsets.empty()) return;
  if (offsets.front() != 0)
    throw ParseError(info.name, "sequence_offsets", fmt::format("begin at {}, not at 0", offsets.front()));
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1])
      throw ParseError(
          info.name, "sequence_offsets",
          fmt::format("offset {} is {}, below the one before it, {}", i, offsets[i], offsets[i - 1]));
  }
  if (offsets.back() != info.num_tokens)
    throw ParseError(info.name, "sequence_offsets",
                     fmt::format("end at {} in a trace of {} tokens", offsets.back(), info.num_tokens));
}

std::int64_t tokens_for(std::int64_t assignments, const TraceInfo& info) {
  return std::max<std::int64_t>(1, assignments / info.assignments_per_token());
}

std::size_t assignments_in(TokenRange range, const TraceInfo& info) {
  return static_cast<std::size_t>(range.size() * info.assignments_per_token());
}

std::string likely_experts(std::int64_t id) {
  if (id < 0) return "; -1 means no expert";
  if (id >= max_trace_experts) return "";
  return fmt::format("; was num_experts meant to be {}?", std::bit_ceil(static_cast<std::uint64_t>(id) + 1));
}

}  // namespace

std::vector<TokenRange> sequences_of(const TraceInfo& info) {
  std::vector<TokenRange> sequences;
  for (std::size_t i = 1; i < info.sequence_offsets.size(); ++i)
    if (const TokenRange tokens{info.sequence_offsets[i - 1], info.sequence_offsets[i]}; tokens.size() > 0)
      sequences.push_back(tokens);
  return sequences;
}

TraceReader::TraceReader(TraceInfo info) : info_(std::move(info)) {
  require_shape(info_);
  require_sequences(info_);
}

void TraceReader::set_layers(LayerNumbers layers) {
  if (layers.known() && std::ssize(layers.numbers()) != info_.num_layers)
    throw InvalidArgument("layers",
                          fmt::format("{} layer numbers, but {} has {} layers", layers.numbers().size(),
                                      info_.name, info_.num_layers),
                          fmt::format("{} layers", info_.num_layers));
  info_.layers = std::move(layers);
}

void TraceReader::require_range(TokenRange range, std::size_t size) const {
  if (range.begin < 0 || range.begin > range.end || range.end > info_.num_tokens)
    throw InvalidArgument("tokens", fmt::format("no tokens {}..{} in {}", range.begin, range.end, info_.name),
                          fmt::format("0..{}", info_.num_tokens));
  const std::size_t needed = assignments_in(range, info_);
  if (size != needed)
    throw InvalidArgument("buffer", fmt::format("{} elements", size), fmt::format("{}", needed));
}

void TraceReader::refuse_id(std::int64_t id, TokenRange range, std::size_t at) const {
  const std::int64_t place = static_cast<std::int64_t>(at);
  const std::int64_t token = range.begin + place / info_.assignments_per_token();
  const std::int64_t layer = place % info_.assignments_per_token() / info_.top_k;
  const std::int64_t experts = info_.num_experts > 0 ? info_.num_experts : max_trace_experts;
  throw ParseError(info_.name, "topk_ids",
                   fmt::format("expert id {} at token {}, layer {} is outside 0..{}{}", id, token, layer,
                               experts - 1, likely_experts(id)));
}

void TraceReader::read_ids(TokenRange range, std::span<std::int32_t> ids) {
  require_range(range, ids.size());
  const std::int64_t experts = info_.num_experts > 0 ? info_.num_experts : max_trace_experts;
  const std::int64_t block_tokens = tokens_for(block_assignments, info_);
  for (std::int64_t begin = range.begin; begin < range.end; begin += block_tokens) {
    stop_if_asked();
    const TokenRange block{begin, std::min(begin + block_tokens, range.end)};
    fetched_.resize(assignments_in(block, info_));
    fetch_ids(block, fetched_);
    const auto out = ids.subspan(assignments_in({range.begin, begin}, info_), fetched_.size());
    for (std::size_t i = 0; i < fetched_.size(); ++i) {
      if (fetched_[i] < no_expert || fetched_[i] >= experts) refuse_id(fetched_[i], block, i);
      out[i] = static_cast<std::int32_t>(fetched_[i]);
    }
  }
}

void TraceReader::read_weights(TokenRange range, std::span<float> weights) {
  if (!info_.has_weights) throw InvalidArgument("weights", fmt::format("{} has none", info_.name));
  require_range(range, weights.size());
  fetch_weights(range, weights);
  const auto bad = std::find_if_not(weights.begin(), weights.end(), [](float w) { return std::isfinite(w); });
  if (bad == weights.end()) return;
  const std::int64_t place = bad - weights.begin();
  throw ParseError(info_.name, "topk_weights",
                   fmt::format("weight {} at token {}, layer {} is not finite", *bad,
                               range.begin + place / info_.assignments_per_token(),
                               place % info_.assignments_per_token() / info_.top_k));
}

LayerRouting TraceReader::read_layer(LayerId layer, TokenRange range) {
  if (layer.value() < 0 || layer.value() >= info_.num_layers)
    throw InvalidArgument("layer", fmt::format("no layer {} in {}", layer.value(), info_.name),
                          fmt::format("0..{}", info_.num_layers - 1));
  const std::size_t k = static_cast<std::size_t>(info_.top_k);
  const std::size_t stride = static_cast<std::size_t>(info_.assignments_per_token());
  LayerRouting routing{.top_k = info_.top_k, .ids = {}, .weights = {}};
  for (TraceBatches batches(*this, range); batches.next();) {
    const auto weights = info_.has_weights ? batches.weights() : std::span<const float>{};
    for (std::size_t at = layer.offset() * k; at < batches.ids().size(); at += stride) {
      const auto ids = batches.ids().subspan(at, k);
      routing.ids.insert(routing.ids.end(), ids.begin(), ids.end());
      if (weights.empty()) continue;
      const auto of_token = weights.subspan(at, k);
      routing.weights.insert(routing.weights.end(), of_token.begin(), of_token.end());
    }
  }
  return routing;
}

void TraceReader::set_num_experts(int num_experts) {
  if (num_experts < 1 || num_experts > max_trace_experts)
    throw InvalidArgument("num_experts", fmt::format("{} experts", num_experts),
                          fmt::format("1..{}", max_trace_experts));
  info_.num_experts = num_experts;
}

int TraceReader::largest_id_plus_one() {
  const int stated = std::exchange(info_.num_experts, 0);
  std::int32_t largest = 0;
  try {
    for (TraceBatches batches(*this); batches.next();)
      for (std::int32_t id : batches.ids()) largest = std::max(largest, id);
  } catch (...) {
    info_.num_experts = stated;
    throw;
  }
  info_.num_experts = stated;
  return largest + 1;
}

TraceBatches::TraceBatches(TraceReader& reader, std::int64_t tokens_per_batch)
    : TraceBatches(reader, {0, reader.info().num_tokens}, tokens_per_batch) {}

TraceBatches::TraceBatches(TraceReader& reader, TokenRange range, std::int64_t tokens_per_batch)
    : reader_(&reader),
      whole_(range),
      tokens_per_batch_(tokens_per_batch > 0 ? tokens_per_batch
                                             : tokens_for(batch_assignments, reader.info())),
      batch_{range.begin, range.begin} {
  const TraceInfo& info = reader.info();
  if (range.begin < 0 || range.begin > range.end || range.end > info.num_tokens)
    throw InvalidArgument("tokens", fmt::format("no tokens {}..{} in {}", range.begin, range.end, info.name),
                          fmt::format("0..{}", info.num_tokens));
}

bool TraceBatches::next() {
  if (batch_.end >= whole_.end) return false;
  batch_ = {batch_.end, batch_.end + std::min(tokens_per_batch_, whole_.end - batch_.end)};
  ids_.resize(assignments_in(batch_, reader_->info()));
  reader_->read_ids(batch_, ids_);
  weights_read_ = false;
  return true;
}

std::span<const float> TraceBatches::weights() {
  if (!weights_read_) {
    weights_.resize(ids_.size());
    reader_->read_weights(batch_, weights_);
    weights_read_ = true;
  }
  return weights_;
}

namespace {

TraceInfo info_of_memory(const MemoryTrace::Shape& shape, std::size_t num_ids, std::size_t num_weights,
                         std::vector<std::int64_t> sequence_offsets, std::string name) {
  TraceInfo info;
  info.name = std::move(name);
  info.num_layers = shape.num_layers;
  info.top_k = shape.top_k;
  info.num_experts = shape.num_experts;
  info.has_weights = num_weights > 0;
  info.sequence_offsets = std::move(sequence_offsets);
  const std::size_t per_token =
      static_cast<std::size_t>(std::max<std::int64_t>(1, info.assignments_per_token()));
  info.num_tokens = static_cast<std::int64_t>(num_ids / per_token);
  if (num_ids % per_token != 0 || (num_weights != 0 && num_weights != num_ids))
    throw InvalidArgument(
        "ids", fmt::format("{} ids and {} weights", num_ids, num_weights),
        fmt::format("a multiple of layers x k = {} ids, and as many weights or none", per_token));
  return info;
}

}  // namespace

MemoryTrace::MemoryTrace(Shape shape, std::vector<std::int32_t> ids, std::vector<float> weights,
                         std::vector<std::int64_t> sequence_offsets, std::string name)
    : TraceReader(
          info_of_memory(shape, ids.size(), weights.size(), std::move(sequence_offsets), std::move(name))),
      ids_(std::move(ids)),
      weights_(std::move(weights)) {
  if (info().num_experts == 0) set_num_experts(largest_id_plus_one());
}

void MemoryTrace::fetch_ids(TokenRange range, std::span<std::int64_t> ids) {
  std::copy_n(ids_.begin() + range.begin * info().assignments_per_token(), ids.size(), ids.begin());
}

void MemoryTrace::fetch_weights(TokenRange range, std::span<float> weights) {
  std::copy_n(weights_.begin() + range.begin * info().assignments_per_token(), weights.size(),
              weights.begin());
}

}  // namespace evenkeel
