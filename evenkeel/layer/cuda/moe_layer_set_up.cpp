// A layer's memory, and what ranks tell each other before the first step.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/abort_on_error.h"
#include "evenkeel/device/cuda/gpu.h"
#include "evenkeel/layer/cuda/chunk_limits.h"
#include "evenkeel/layer/cuda/internal/layer_body.h"
#include "evenkeel/layer/internal/whole_expert.h"

namespace evenkeel {

using cuda::BufferShape;
using cuda::ChunkLimits;
using cuda::ExpertTensors;
using cuda::PeerView;

namespace {

ExpertTensors tensors_of(const ExpertWeights& w) {
  return {{const_cast<void*>(w.gate_up), const_cast<void*>(w.down), const_cast<void*>(w.gate_up_bias),
           const_cast<void*>(w.down_bias)}};
}
ExpertTensors tensors_of(const ExpertGradients& g) {
  return {{g.gate_up, g.down, g.gate_up_bias, g.down_bias}};
}

cuda::ExpertLayout layout_of(const ExpertShape& e) {
  return {{e.gate_up_rows() * e.hidden, e.intermediate * e.hidden, e.biases ? e.gate_up_rows() : 0,
           e.biases ? e.hidden : 0}};
}

// The tensors of a block of memory; null where an expert has none.
template <class Number>
std::array<Number*, 4> parts_of(const cuda::ExpertLayout& layout, Number* block) {
  std::array<Number*, 4> parts{};
  for (int part = 0; part < 4; ++part)
    if (layout.elements[part] > 0) parts[static_cast<std::size_t>(part)] = block + layout.begin(part);
  return parts;
}

void require_layer(const MoeShape& shape, const LayerPlacement& placement, const CudaMoeOptions& options,
                   int ranks) {
  if (shape.expert.type != DataType::bf16)
    throw Unsupported("a layer on a GPU of " + std::string(name_of(shape.expert.type)) +
                      " rows; it takes bf16");
  if (placement.num_experts() != shape.num_experts || placement.num_ranks() != ranks)
    throw InvalidArgument(
        "placement", fmt::format("{} experts on {} ranks", placement.num_experts(), placement.num_ranks()),
        fmt::format("{} on {}", shape.num_experts, ranks));
  if (shape.top_k < 1) throw InvalidArgument("top_k", fmt::format("{}", shape.top_k), "1 or more");
  if (options.max_tokens < 1 || options.max_tokens > cuda::kMostLoad / shape.top_k / ranks)
    throw InvalidArgument("max_tokens", fmt::format("{}", options.max_tokens),
                          fmt::format("1..{}", cuda::kMostLoad / shape.top_k / ranks));
  if (options.states_in_flight < 1)
    throw InvalidArgument("states_in_flight", fmt::format("{}", options.states_in_flight), "1 or more");
  if (options.places < 0) throw InvalidArgument("places", fmt::format("{}", options.places), "0 or more");
  if (options.rounds < 1) throw InvalidArgument("rounds", fmt::format("{}", options.rounds), "1 or more");
}

}  // namespace

CudaMoeLayer::Body::Body(Communicator& comm, Arena& arena, CudaStream& stream, const MoeShape& shape,
                         LayerPlacement placement, const CudaMoeOptions& options)
    : comm_(comm),
      stream_(stream),
      shape_(shape),
      placement_((require_layer(shape, placement, options, comm.size()), std::move(placement))),
      options_(options),
      ffn_((static_cast<void>(stream.native()), make_cuda_expert_ffn(shape.expert))),
      tables_(placement_),
      side_(stream.gpu()),
      barrier_(comm) {
  abort_on_error(comm_, [&] { set_up(arena); });
}

CudaMoeLayer::Body::~Body() {
  await_others();
}

void CudaMoeLayer::Body::await_others() noexcept {
  barrier_.await_others();
  for (const int gpu : std::set<int>(gpus_.begin(), gpus_.end())) cuda::await_gpu(gpu);
  cuda::await_gpu(stream_.gpu());  // the thread's current GPU again
}

void CudaMoeLayer::Body::set_up(Arena& arena) {
  open_peers();
  // Ranks must decide alike, so that the tightest decides for all.
  std::int64_t budget[] = {arena.is_bounded() ? arena.largest_gap_bytes() : std::int64_t{1} << 62};
  comm_.all_reduce(budget, Reduction::min, words_, "budget").wait();
  fit(budget[0] == std::int64_t{1} << 62 ? -1 : budget[0]);
  memory_ = arena.allocate(lay_out(buffer_shape_, nullptr).bytes, "a layer on a GPU", Lifetime::held);
  buffers_ = lay_out(buffer_shape_, memory_.data());
  upload_tables();
  meet_peers();
  for (std::size_t slot = buffers_.states.size(); slot-- > 0;) free_slots_.push_back(slot);
}

// Kernels of this rank's GPU read the memory of all others'.
void CudaMoeLayer::Body::open_peers() {
  gpus_ = gather(stream_.gpu());
  for (std::size_t rank = 0; rank < gpus_.size(); ++rank)
    if (!cuda::open_memory(gpus_[rank], stream_.gpu()))
      throw Unsupported(
          fmt::format("a layer across GPUs {} and {} (ranks {} and {}): neither reads the other's memory",
                      gpus_[rank], stream_.gpu(), rank, comm_.rank().value()));
  static_cast<void>(stream_.native());
}

template <class T>
std::vector<T> CudaMoeLayer::Body::gather(const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(comm_.size()));
  comm_
      .all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), words_,
                  "a layer's addresses")
      .wait();
  return all;
}

BufferShape CudaMoeLayer::Body::shape_for(int places, int chunks, int slices, std::int64_t positions) const {
  BufferShape shape;
  shape.route = {comm_.size(),
                 shape_.num_experts,
                 comm_.rank().value(),
                 shape_.top_k,
                 slices,
                 chunks,
                 static_cast<int>(placement_.natives(comm_.rank()).size()),
                 places,
                 options_.rounds,
                 static_cast<int>(options_.max_tokens * shape_.top_k),
                 static_cast<std::int32_t>(positions)};
  shape.num_slots = tables_.view().num_slots;
  shape.num_copies = placement_.num_copies(comm_.rank());
  shape.states = options_.states_in_flight;
  shape.with_backward = options_.with_backward;
  shape.hidden = shape_.expert.hidden;
  shape.max_tokens = options_.max_tokens;
  shape.planner_integers = std::int64_t{comm_.size()} * shape_.num_experts;
  shape.layout = layout_of(shape_.expert);
  shape.workspace_bytes = ffn_->forward_workspace_bytes(shape.route.num_groups(), positions);
  if (options_.with_backward) {
    // Which pointers are null is what the size depends on.
    static float some;
    DeviceBackward call;
    call.grad_input = &some;
    call.input_rows = positions;
    shape.workspace_bytes = std::max(
        shape.workspace_bytes, ffn_->backward_workspace_bytes(shape.route.num_groups(), positions, call));
  }
  return shape;
}

// Places first: fewer of them where the finest cut does not fit beside them.
void CudaMoeLayer::Body::fit(std::int64_t budget) {
  const int ranks = comm_.size();
  int places = options_.places > 0 ? options_.places : (shape_.num_experts + ranks - 1) / ranks;
  if (ranks == 1) places = 0;
  while (true) {
    // Ranks have unlike numbers of experts at home: the largest decides for all.
    const auto bytes = [&](int chunks, std::int64_t positions) {
      BufferShape shape =
          shape_for(places, chunks, 2 * chunks + static_cast<int>(options_.max_tokens / 64), positions);
      for (RankId rank : indices<RankId>(ranks)) {
        shape.route.num_natives =
            std::max(shape.route.num_natives, static_cast<int>(placement_.natives(rank).size()));
        shape.num_copies = std::max(shape.num_copies, placement_.num_copies(rank));
      }
      return lay_out(shape, nullptr).bytes;
    };
    try {
      const ChunkLimits fitting = cuda::fit_chunks(ranks, options_.max_tokens, shape_.top_k, budget, bytes);
      buffer_shape_ = shape_for(places, fitting.most_chunks, fitting.num_slices, fitting.most_positions);
      return;
    } catch (const BudgetTooSmall&) {
      if (places == 0) throw;
      places /= 2;
    }
  }
}

template <class T>
void CudaMoeLayer::Body::upload(const std::vector<T>& from, T* to) {
  if (from.empty()) return;
  static_cast<void>(stream_.native());
  stream_.copy(to, from.data(), from.size() * sizeof(T));
  stream_.synchronize();
}

void CudaMoeLayer::Body::upload_tables() {
  const auto integers = tables_.integers();
  upload(std::vector<std::int32_t>(integers.begin(), integers.end()), buffers_.homes);
  homes_ = tables_.view_at(buffers_.homes);
  cuda::PlanRules rules = cuda::rules_of(options_.planner);
  rules.most_borrowed = route().most_borrowed();
  planner_ = std::make_unique<cuda::CudaPlanner>(homes_, rules);
}

// Every rank learns where the others keep what it reads.
void CudaMoeLayer::Body::meet_peers() {
  for (std::size_t turn = 0; turn < 2; ++turn) upload(gather(buffers_.outbox[turn]), buffers_.outboxes[turn]);
  PeerView mine;
  mine.tensors = buffers_.tensors;
  mine.block_counts = buffers_.block_counts;
  mine.results = buffers_.exchanged;
  mine.row_gradients = buffers_.row_gradients;
  mine.weight_gradients = buffers_.weight_gradients;
  mine.weights = buffers_.shown_weights;
  mine.foreign_gradients = buffers_.foreign_gradients;
  upload(gather(mine), buffers_.views);
}

void CudaMoeLayer::Body::require_experts(std::span<const ExpertWeights> natives,
                                         std::span<const ExpertGradients> gradients) const {
  const auto own = placement_.natives(comm_.rank());
  const bool biases = shape_.expert.biases;
  if (natives.size() != own.size())
    throw InvalidArgument("weights", fmt::format("of {} experts", natives.size()),
                          fmt::format("of the {} at home on this rank", own.size()));
  for (std::size_t i = 0; i < own.size(); ++i) internal::require_whole(natives[i], "weights", own[i], biases);
  if (!options_.with_backward) return;
  if (gradients.size() != own.size())
    throw InvalidArgument("gradients", fmt::format("of {} experts", gradients.size()),
                          fmt::format("of the {} at home on this rank, for backward", own.size()));
  for (std::size_t i = 0; i < own.size(); ++i)
    if (is_owner(own[i])) internal::require_whole(gradients[i], "gradients", own[i], biases);
}

void CudaMoeLayer::Body::set_weights(std::span<const ExpertWeights> natives,
                                     std::span<const ExpertGradients> gradients) {
  require_experts(natives, gradients);
  const cuda::PeerAccessScope scope = barrier_.scope();
  const auto own = placement_.natives(comm_.rank());
  const cuda::RouteShape& route = buffer_shape_.route;
  const cuda::ExpertLayout& layout = buffer_shape_.layout;
  std::vector<ExpertTensors> shown(static_cast<std::size_t>(shape_.num_experts));
  std::vector<ExpertWeights> weights(natives.begin(), natives.end());
  for (std::size_t i = 0; i < own.size(); ++i) shown[own[i].offset()] = tensors_of(natives[i]);
  for (int b = 0; b < route.most_borrowed(); ++b) {
    const auto parts = parts_of(layout, buffers_.places + b % route.places * layout.block());
    weights.push_back({parts[0], parts[1], parts[2], parts[3]});
  }
  upload(shown, buffers_.shown_weights);
  upload(weights, buffers_.group_weights);
  if (options_.with_backward) set_gradients(gradients);
  weights_set_ = true;
  barrier_.sync(stream_);
}

// A rank's own experts add to the caller's tensors, all others to blocks that are their owners' to read.
void CudaMoeLayer::Body::set_gradients(std::span<const ExpertGradients> gradients) {
  const auto own = placement_.natives(comm_.rank());
  const cuda::ExpertLayout& layout = buffer_shape_.layout;
  std::vector<ExpertTensors> native_gradients;
  std::vector<DeviceExpertGradients> group_gradients;
  const auto push_block = [&](int block) {
    const auto parts = parts_of(layout, buffers_.foreign_gradients + block * layout.block());
    group_gradients.push_back({parts[0], parts[1], parts[2], parts[3]});
  };
  int copies = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const ExpertGradients& g = gradients[i];
    native_gradients.push_back(tensors_of(g));
    if (is_owner(own[i]))
      group_gradients.push_back({g.gate_up, g.down, g.gate_up_bias, g.down_bias});
    else
      push_block(route().most_borrowed() + copies++);
  }
  for (int b = 0; b < route().most_borrowed(); ++b) push_block(b);
  upload(native_gradients, buffers_.native_gradients);
  upload(group_gradients, buffers_.group_gradients);
}

}  // namespace evenkeel
