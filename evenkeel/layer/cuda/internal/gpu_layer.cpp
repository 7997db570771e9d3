// Sets up a layer's memory, and shares addresses between the ranks before the first step.
#include "evenkeel/layer/cuda/internal/gpu_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <set>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/abort_on_error.h"
#include "evenkeel/device/cuda/gpu.h"
#include "evenkeel/layer/cuda/chunk_limits.h"
#include "evenkeel/layer/internal/expert_parts.h"

namespace evenkeel::internal {

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
  cuda::ExpertLayout layout;
  std::ranges::copy(part_elements(e), layout.elements);
  return layout;
}

// The tensors within a block of memory; null for parts that the expert does not have.
template <class Number>
std::array<Number*, 4> parts_of(const cuda::ExpertLayout& layout, Number* block) {
  std::array<Number*, 4> parts{};
  for (int part = 0; part < 4; ++part)
    if (layout.elements[part] > 0) parts[static_cast<std::size_t>(part)] = block + layout.begin(part);
  return parts;
}

// Without a budget any cut fits.
constexpr std::int64_t kUnboundedBytes = std::numeric_limits<std::int64_t>::max();

// Returns the layer if a GPU can run it; throws otherwise.
const LayerParts& checked(const LayerParts& layer, const CudaStream& stream, const GpuOptions& gpu) {
  if (layer.shape.expert.type != DataType::bf16)
    throw Unsupported("a layer on a GPU takes bf16 rows, not " +
                      std::string(name_of(layer.shape.expert.type)));
  if (layer.arena.gpu() != stream.gpu())
    throw InvalidArgument("arena", "is not on the stream's GPU", fmt::format("one on GPU {}", stream.gpu()));
  if (gpu.borrow_slots < 0)
    throw InvalidArgument("borrow_slots", fmt::format("{}", gpu.borrow_slots), "0 or more");
  if (gpu.rounds < 1) throw InvalidArgument("rounds", fmt::format("{}", gpu.rounds), "1 or more");
  return layer;
}

// Creates the experts' products on the stream's GPU, which becomes the thread's current GPU.
std::shared_ptr<const CudaExpertFfn> make_ffn(CudaStream& stream, const ExpertShape& shape) {
  static_cast<void>(stream.native());
  return make_cuda_expert_ffn(shape);
}

}  // namespace

const StepPlan& GpuState::plan() const {
  throw Unsupported("the plan of a step on a GPU stays there; use report()");
}
std::span<const Chunk> GpuState::chunks() const {
  throw Unsupported("the chunks of a step on a GPU stay there; report() has their number");
}

GpuLayer::GpuLayer(const LayerParts& layer, CudaStream& stream, const GpuOptions& options)
    : parts_(checked(layer, stream, options)),
      stream_(stream),
      options_(options),
      ffn_(make_ffn(stream, layer.shape.expert)),
      tables_(layer.placement),
      side_(stream.gpu()),
      barrier_(layer.comm) {
  abort_on_error(layer.comm, [&] { set_up(); });
}

GpuLayer::~GpuLayer() {
  await_others();
}

void GpuLayer::await_others() noexcept {
  barrier_.await_others();
  for (const int gpu : std::set<int>(gpus_.begin(), gpus_.end())) cuda::await_gpu(gpu);
  cuda::await_gpu(stream_.gpu());  // last, so that this is the thread's current GPU again
}

void GpuLayer::set_up() {
  enable_peer_access();
  Arena& arena = parts_.arena;
  // All ranks must decide alike, so the smallest budget decides for all.
  std::int64_t budget[] = {arena.is_bounded() ? arena.largest_gap_bytes() : kUnboundedBytes};
  parts_.comm.all_reduce(budget, Reduction::min, host_stream_, "budget").wait();
  fit(budget[0]);
  memory_ = arena.allocate(lay_out(buffer_shape_, nullptr).bytes, "a layer on a GPU", Lifetime::held);
  buffers_ = lay_out(buffer_shape_, memory_.data());
  upload_tables();
  exchange_addresses();
  for (std::size_t slot = buffers_.states.size(); slot-- > 0;)
    free_.push_back(std::make_unique<GpuState>(slot));
  // If all ranks use the same kernels, a row's result depends only on that row.
  const Digest kernels[] = {{"kernels", static_cast<std::uint64_t>(ffn_->kernels())}};
  const int unlike = first_to_differ(parts_.comm, kernels).front();
  bits_.holds = unlike < 0;
  if (unlike >= 0) bits_.reason = fmt::format("rank {}'s GPU runs other kernels than rank 0's", unlike);
}

// Lets kernels on this rank's GPU read the memory of all other ranks' GPUs.
void GpuLayer::enable_peer_access() {
  gpus_ = gather(stream_.gpu());
  for (std::size_t rank = 0; rank < gpus_.size(); ++rank)
    if (!cuda::open_memory(gpus_[rank], stream_.gpu()))
      throw Unsupported(
          fmt::format("a layer across GPUs {} and {} (ranks {} and {}): they cannot read each other's memory",
                      gpus_[rank], stream_.gpu(), rank, parts_.comm.rank().value()));
  static_cast<void>(stream_.native());
}

template <class T>
std::vector<T> GpuLayer::gather(const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(parts_.comm.size()));
  parts_.comm
      .all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), host_stream_,
                  "a layer's addresses")
      .wait();
  return all;
}

BufferShape GpuLayer::shape_for(int slots, int chunks, int slices, std::int64_t positions) const {
  BufferShape shape;
  shape.route = {parts_.comm.size(),
                 parts_.shape.num_experts,
                 parts_.comm.rank().value(),
                 parts_.shape.top_k,
                 slices,
                 chunks,
                 static_cast<int>(parts_.placement.natives(parts_.comm.rank()).size()),
                 slots,
                 options_.rounds,
                 static_cast<int>(parts_.options.max_tokens * parts_.shape.top_k),
                 static_cast<std::int32_t>(positions)};
  shape.num_slots = tables_.view().num_slots;
  shape.num_copies = parts_.placement.num_copies(parts_.comm.rank());
  shape.states = parts_.options.states_in_flight;
  shape.with_backward = parts_.options.with_backward;
  shape.hidden = parts_.shape.expert.hidden;
  shape.planner_integers = std::int64_t{parts_.comm.size()} * parts_.shape.num_experts;
  shape.layout = layout_of(parts_.shape.expert);
  shape.workspace_bytes = ffn_->forward_workspace_bytes(shape.route.num_groups(), positions);
  if (parts_.options.with_backward) {
    // The size depends on which pointers are null, so any non-null pointer will do.
    static float some;
    DeviceBackward call;
    call.grad_input = &some;
    call.input_rows = positions;
    shape.workspace_bytes = std::max(
        shape.workspace_bytes, ffn_->backward_workspace_bytes(shape.route.num_groups(), positions, call));
  }
  return shape;
}

// The most bytes that any rank needs. Ranks have different numbers of native experts but must decide alike.
std::int64_t GpuLayer::most_bytes(int slots, int chunks, std::int64_t positions) const {
  const auto slices = static_cast<int>(parts_.options.max_tokens / 64);
  BufferShape shape = shape_for(slots, chunks, 2 * chunks + slices, positions);
  for (RankId rank : indices<RankId>(parts_.comm.size())) {
    shape.route.num_natives =
        std::max(shape.route.num_natives, static_cast<int>(parts_.placement.natives(rank).size()));
    shape.num_copies = std::max(shape.num_copies, parts_.placement.num_copies(rank));
  }
  return lay_out(shape, nullptr).bytes;
}

// Chooses the number of borrow slots first, and halves it while no cut into chunks fits beside the slots.
void GpuLayer::fit(std::int64_t budget) {
  const int ranks = parts_.comm.size();
  const std::int64_t max_tokens = parts_.options.max_tokens;
  const int top_k = parts_.shape.top_k;
  const auto bytes_with = [&](int slots) {
    return [this, slots](int chunks, std::int64_t positions) { return most_bytes(slots, chunks, positions); };
  };
  least_budget_ = cuda::least_bytes(ranks, max_tokens, top_k, bytes_with(0));
  int slots =
      options_.borrow_slots > 0 ? options_.borrow_slots : (parts_.shape.num_experts + ranks - 1) / ranks;
  if (ranks == 1) slots = 0;
  while (slots > 0 && cuda::least_bytes(ranks, max_tokens, top_k, bytes_with(slots)) > budget) slots /= 2;
  const ChunkLimits fitting = cuda::fit_chunks(ranks, max_tokens, top_k, budget, bytes_with(slots));
  buffer_shape_ = shape_for(slots, fitting.most_chunks, fitting.num_slices, fitting.most_positions);
}

template <class T>
void GpuLayer::upload(const std::vector<T>& from, T* to) {
  if (from.empty()) return;
  static_cast<void>(stream_.native());
  stream_.copy(to, from.data(), from.size() * sizeof(T));
  stream_.synchronize();
}

void GpuLayer::upload_tables() {
  const auto integers = tables_.integers();
  upload(std::vector<std::int32_t>(integers.begin(), integers.end()), buffers_.homes);
  homes_ = tables_.view_at(buffers_.homes);
  set_planner(parts_.options.planner);
}

void GpuLayer::set_planner(const PlannerOptions& options) {
  cuda::PlanRules rules = cuda::rules_of(options);
  rules.most_borrowed = route().most_borrowed();
  planner_ = std::make_unique<cuda::CudaPlanner>(homes_, rules);
}

// Shares the addresses of the memory that ranks read from each other.
void GpuLayer::exchange_addresses() {
  for (std::size_t turn = 0; turn < 2; ++turn) upload(gather(buffers_.outbox[turn]), buffers_.outboxes[turn]);
  PeerView mine;
  mine.tensors = buffers_.tensors;
  mine.block_counts = buffers_.block_counts;
  mine.results = buffers_.exchanged;
  mine.row_gradients = buffers_.row_gradients;
  mine.weight_gradients = buffers_.weight_gradients;
  mine.weights = buffers_.published_weights;
  mine.foreign_gradients = buffers_.foreign_gradients;
  upload(gather(mine), buffers_.views);
}

void GpuLayer::set_weights(std::span<const ExpertWeights> natives) {
  const cuda::PeerAccessScope scope = barrier_.scope();
  const auto own = parts_.natives();
  const cuda::ExpertLayout& layout = buffer_shape_.layout;
  std::vector<ExpertTensors> published(static_cast<std::size_t>(parts_.shape.num_experts));
  std::vector<ExpertWeights> weights(natives.begin(), natives.end());
  for (std::size_t i = 0; i < own.size(); ++i) published[own[i].offset()] = tensors_of(natives[i]);
  for (int b = 0; b < route().most_borrowed(); ++b) {
    const auto parts = parts_of(layout, buffers_.slot_weights + b % route().borrow_slots * layout.block());
    weights.push_back({parts[0], parts[1], parts[2], parts[3]});
  }
  upload(published, buffers_.published_weights);
  upload(weights, buffers_.group_weights);
  barrier_.sync(stream_);
}

// Gradients of owned experts are added to the caller's tensors, all others to blocks that their owners read.
// Uploads the addresses only when they change.
void GpuLayer::set_gradients(std::span<const ExpertGradients> gradients) {
  if (uploaded_gradients_ && std::ranges::equal(gradients, *uploaded_gradients_)) return;
  const auto own = parts_.natives();
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
    if (parts_.owns(own[i]))
      group_gradients.push_back({g.gate_up, g.down, g.gate_up_bias, g.down_bias});
    else
      push_block(route().most_borrowed() + copies++);
  }
  for (int b = 0; b < route().most_borrowed(); ++b) push_block(b);
  upload(native_gradients, buffers_.native_gradients);
  upload(group_gradients, buffers_.group_gradients);
  uploaded_gradients_.emplace(gradients.begin(), gradients.end());
}

}  // namespace evenkeel::internal
