#include "evenkeel/layer/cuda/moe_layer.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "evenkeel/balance/cuda/planner.h"
#include "evenkeel/base/error.h"
#include "evenkeel/compute/cuda/expert_ffn.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/device/cuda/gpu.h"
#include "evenkeel/device/cuda/runtime.cuh"
#include "evenkeel/exchange/cuda/device_exchange.h"
#include "evenkeel/exchange/cuda/meeting.h"
#include "evenkeel/layer/cuda/chunk_room.h"
#include "evenkeel/layer/cuda/internal/layer_room.h"
#include "evenkeel/layer/cuda/internal/step_order.h"
#include "evenkeel/plan/cuda/placement_tables.h"

namespace evenkeel {

using cuda::ChunkRoom;
using cuda::ChunkWork;
using cuda::ExpertTensors;
using cuda::LayerRoom;
using cuda::OutboxView;
using cuda::PeerView;
using cuda::RoomShape;
using cuda::StateRoom;

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
  if (options.with_backward && !placement.has_single_homes())
    throw Unsupported(
        "backward on a GPU with redundant experts; make the layer without it, or give each one home");
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

class CudaMoeLayer::Body {
 public:
  Body(Communicator& comm, Arena& arena, CudaStream& stream, const MoeShape& shape, LayerPlacement placement,
       const CudaMoeOptions& options);

  void set_weights(std::span<const ExpertWeights> natives, std::span<const ExpertGradients> gradients);
  template <class Work>
  void abort_on_error(const Work& work) {
    try {
      work();
    } catch (const std::exception& error) {
      comm_.abort(error.what());
      throw;
    }
  }
  std::size_t take_slot();
  void give_slot(std::size_t slot) noexcept { free_slots_.push_back(slot); }
  void forward(const void* hidden, const DeviceTopK& top_k, void* output, std::size_t slot);
  void backward(const void* hidden, const DeviceTopK& top_k, std::size_t slot, const void* grad_output,
                void* grad_hidden, float* grad_router_weights);
  CudaStepReport report(std::size_t slot);
  const cuda::RouteShape& route() const { return room_shape_.route; }

 private:
  class Step;
  class ForwardStep;
  class BackwardStep;

  RoomShape room_for(int places, int chunks, int slices, std::int64_t positions) const;
  void fit(std::int64_t budget);
  void upload_tables();
  void meet_peers();
  template <class T>
  std::vector<T> gather(const T& mine);
  template <class T>
  void upload(const std::vector<T>& from, T* to);
  void open_peers();
  void require_input(const void* hidden, const DeviceTopK& top_k) const;

  cuda::SliceView slices(const StateRoom& state, const DeviceTopK& top_k) const {
    return {top_k.experts, top_k.tokens, state.before, state.rank_in_slice};
  }
  ChunkWork work(const StateRoom& state, const DeviceTopK& top_k, int chunk) const;
  // The groups whose weights are at hand in a round: natives and the first places, then the next places.
  DeviceGroups groups(int round) const;
  void borrow(const ChunkWork& any, Fork& side);
  std::span<std::byte> workspace() const {
    return {room_.workspace, static_cast<std::size_t>(room_shape_.workspace_bytes)};
  }
  DeviceBackward backward_call() const;
  int rounds() const { return route().places > 0 ? options_.rounds : 1; }
  bool borrows_once() const { return rounds() == 1; }

  Communicator& comm_;
  CudaStream& stream_;
  MoeShape shape_;
  LayerPlacement placement_;
  CudaMoeOptions options_;
  std::shared_ptr<const CudaExpertFfn> ffn_;
  cuda::PlacementTables tables_;
  CudaStream side_;  // weights travel beside tokens
  cuda::Meeting meeting_;
  CpuStream words_;
  RoomShape room_shape_;
  Buffer memory_;
  LayerRoom room_;
  cuda::PlacementView homes_;  // on the device
  std::unique_ptr<cuda::CudaPlanner> planner_;
  std::vector<std::size_t> free_slots_;
  bool weights_set_ = false;
};

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
      meeting_(comm) {
  open_peers();
  // Ranks must decide alike, so that the tightest decides for all.
  std::int64_t budget[] = {arena.is_bounded() ? arena.largest_gap_bytes() : std::int64_t{1} << 62};
  comm_.all_reduce(budget, Reduction::min, words_, "budget").wait();
  fit(budget[0] == std::int64_t{1} << 62 ? -1 : budget[0]);
  memory_ = arena.allocate(lay_out(room_shape_, nullptr).bytes, "a layer on a GPU", Lifetime::held);
  room_ = lay_out(room_shape_, memory_.data());
  upload_tables();
  meet_peers();
  for (std::size_t slot = room_.states.size(); slot-- > 0;) free_slots_.push_back(slot);
}

// Kernels of this rank's GPU read the memory of all others'.
void CudaMoeLayer::Body::open_peers() {
  const std::vector<int> gpus = gather(stream_.gpu());
  for (std::size_t rank = 0; rank < gpus.size(); ++rank)
    if (!cuda::open_memory(gpus[rank], stream_.gpu()))
      throw Unsupported(
          fmt::format("a layer across GPUs {} and {} (ranks {} and {}): neither reads the other's memory",
                      gpus[rank], stream_.gpu(), rank, comm_.rank().value()));
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

RoomShape CudaMoeLayer::Body::room_for(int places, int chunks, int slices, std::int64_t positions) const {
  RoomShape room;
  room.route = {comm_.size(),
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
  room.num_slots = tables_.view().num_slots;
  room.states = options_.states_in_flight;
  room.with_backward = options_.with_backward;
  room.hidden = shape_.expert.hidden;
  room.max_tokens = options_.max_tokens;
  room.planner_integers = std::int64_t{comm_.size()} * shape_.num_experts;
  room.layout = layout_of(shape_.expert);
  room.workspace_bytes = ffn_->forward_workspace_bytes(room.route.num_groups(), positions);
  if (options_.with_backward) {
    // Which pointers are null is what the size depends on.
    static float some;
    DeviceBackward call;
    call.grad_input = &some;
    call.input_rows = positions;
    room.workspace_bytes = std::max(room.workspace_bytes,
                                    ffn_->backward_workspace_bytes(room.route.num_groups(), positions, call));
  }
  return room;
}

// Places first: fewer of them where the finest cut does not fit beside them.
void CudaMoeLayer::Body::fit(std::int64_t budget) {
  const int ranks = comm_.size();
  int places = options_.places > 0 ? options_.places : (shape_.num_experts + ranks - 1) / ranks;
  if (ranks == 1) places = 0;
  while (true) {
    // Ranks have unlike numbers of experts at home: the largest decides for all.
    const auto bytes = [&](int chunks, std::int64_t positions) {
      RoomShape room =
          room_for(places, chunks, 2 * chunks + static_cast<int>(options_.max_tokens / 64), positions);
      for (RankId rank : indices<RankId>(ranks))
        room.route.num_natives =
            std::max(room.route.num_natives, static_cast<int>(placement_.natives(rank).size()));
      return lay_out(room, nullptr).bytes;
    };
    try {
      const ChunkRoom fitting = cuda::fit_chunks(ranks, options_.max_tokens, shape_.top_k, budget, bytes);
      room_shape_ = room_for(places, fitting.most_chunks, fitting.num_slices, fitting.most_positions);
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
  upload(std::vector<std::int32_t>(integers.begin(), integers.end()), room_.homes);
  homes_ = tables_.view_at(room_.homes);
  cuda::PlanRules rules = cuda::rules_of(options_.planner);
  rules.most_borrowed = route().most_borrowed();
  planner_ = std::make_unique<cuda::CudaPlanner>(homes_, rules);
}

// Every rank learns where the others keep what it reads.
void CudaMoeLayer::Body::meet_peers() {
  for (std::size_t turn = 0; turn < 2; ++turn) upload(gather(room_.outbox[turn]), room_.outboxes[turn]);
  PeerView mine;
  mine.tensors = room_.tensors;
  mine.block_counts = room_.block_counts;
  mine.results = room_.exchanged;
  mine.row_gradients = room_.row_gradients;
  mine.weight_gradients = room_.weight_gradients;
  mine.weights = room_.shown_weights;
  mine.borrowed_gradients = room_.borrowed_gradients;
  upload(gather(mine), room_.views);
}

void CudaMoeLayer::Body::set_weights(std::span<const ExpertWeights> natives,
                                     std::span<const ExpertGradients> gradients) {
  const auto own = placement_.natives(comm_.rank());
  if (natives.size() != own.size())
    throw InvalidArgument("weights", fmt::format("of {} experts", natives.size()),
                          fmt::format("of the {} at home on this rank", own.size()));
  if (options_.with_backward && gradients.size() != own.size())
    throw InvalidArgument("gradients", fmt::format("of {} experts", gradients.size()),
                          fmt::format("of the {} at home on this rank, for backward", own.size()));
  const cuda::RouteShape& route = room_shape_.route;
  const cuda::ExpertLayout& layout = room_shape_.layout;
  std::vector<ExpertTensors> shown(static_cast<std::size_t>(shape_.num_experts));
  std::vector<DeviceExpertWeights> weights(natives.begin(), natives.end());
  for (std::size_t i = 0; i < own.size(); ++i) shown[own[i].offset()] = tensors_of(natives[i]);
  for (int b = 0; b < route.most_borrowed(); ++b) {
    const auto parts = parts_of(layout, room_.places + b % route.places * layout.block());
    weights.push_back({parts[0], parts[1], parts[2], parts[3]});
  }
  upload(shown, room_.shown_weights);
  upload(weights, room_.group_weights);
  if (options_.with_backward) {
    std::vector<ExpertTensors> native_gradients;
    std::vector<DeviceExpertGradients> group_gradients;
    for (const ExpertGradients& g : gradients) {
      native_gradients.push_back(tensors_of(g));
      group_gradients.push_back({g.gate_up, g.down, g.gate_up_bias, g.down_bias});
    }
    for (int b = 0; b < route.most_borrowed(); ++b) {
      const auto parts = parts_of(layout, room_.borrowed_gradients + b * layout.block());
      group_gradients.push_back({parts[0], parts[1], parts[2], parts[3]});
    }
    upload(native_gradients, room_.native_gradients);
    upload(group_gradients, room_.group_gradients);
  }
  weights_set_ = true;
  meeting_.meet(stream_);
}

std::size_t CudaMoeLayer::Body::take_slot() {
  if (free_slots_.empty())
    throw InvalidArgument("forward", "more states are alive than the layer was made for",
                          "a larger states_in_flight, or backward before the next forward");
  const std::size_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void CudaMoeLayer::Body::require_input(const void* hidden, const DeviceTopK& top_k) const {
  if (!weights_set_) throw InvalidArgument("weights", "are not set", "set_weights before forward");
  if (top_k.tokens < 0 || top_k.tokens > options_.max_tokens)
    throw InvalidArgument("top_k", fmt::format("{} tokens", top_k.tokens),
                          fmt::format("0..{}", options_.max_tokens));
  if (top_k.tokens > 0 && (hidden == nullptr || top_k.experts == nullptr || top_k.weights == nullptr))
    throw InvalidArgument("hidden or top_k", "is null");
}

ChunkWork CudaMoeLayer::Body::work(const StateRoom& state, const DeviceTopK& top_k, int chunk) const {
  const auto turn = static_cast<std::size_t>(chunk % 2);
  ChunkWork work;
  work.shape = route();
  work.slices = slices(state, top_k);
  work.step = state.step;
  work.chunk = room_.chunk;
  work.outbox = room_.outbox[turn];
  work.peers = {room_.outboxes[turn], room_.views};
  work.index = chunk;
  return work;
}

DeviceGroups CudaMoeLayer::Body::groups(int round) const {
  const cuda::RouteShape& shape = route();
  const int first = round == 0 ? 0 : shape.num_natives + round * shape.places;
  DeviceGroups groups;
  groups.num_groups = round == 0 ? shape.num_natives + shape.places : shape.places;
  groups.begin = room_.chunk.group_begin + first;
  groups.weights = room_.group_weights + first;
  groups.gradients = room_.group_gradients == nullptr ? nullptr : room_.group_gradients + first;
  groups.input_row = room_.chunk.input_row;
  groups.output_row = room_.chunk.output_row;
  groups.max_positions = shape.most_positions;
  return groups;
}

// On the side, while tokens are dealt and gathered.
void CudaMoeLayer::Body::borrow(const ChunkWork& any, Fork&) {
  cuda::borrow_weights(any, room_shape_.layout, 0, room_.places, side_);
}

// What order_forward() and order_backward() call, beside what is said below of either.
class CudaMoeLayer::Body::Step {
 public:
  Step(Body& body, const DeviceTopK& top_k, std::size_t slot)
      : body_(body), state_(body.room_.states[slot]), top_k_(top_k) {}

  void meet() { body_.meeting_.meet(body_.stream_); }
  void deal(int index) {
    chunk_ = body_.work(state_, top_k_, index);
    if (index == 0 || !body_.borrows_once())
      body_.borrow(chunk_, weights_.emplace(body_.stream_, body_.side_));
    cuda::deal_and_send(chunk_, body_.stream_);
  }

 protected:
  void receive_rows() {
    cuda::receive(chunk_, body_.stream_);
    cuda::gather_rows(chunk_, cuda::TokenRows::hidden, columns(), body_.room_.rows, body_.stream_);
  }
  // Round by round, each after its weights are here.
  template <class Run>
  void run_rounds(const Run& run) {
    weights_.reset();
    for (int round = 0; round < body_.rounds(); ++round) {
      if (round > 0)
        cuda::borrow_weights(chunk_, body_.room_shape_.layout, round, body_.room_.places, body_.stream_);
      const DeviceGroups groups = body_.groups(round);
      if (groups.num_groups > 0) run(groups);
    }
  }
  std::int64_t columns() const { return body_.shape_.expert.hidden; }

  Body& body_;
  const StateRoom& state_;
  const DeviceTopK& top_k_;
  ChunkWork chunk_;
  std::optional<Fork> weights_;  // while they travel beside tokens
};

class CudaMoeLayer::Body::ForwardStep : public Step {
 public:
  ForwardStep(Body& body, const DeviceTopK& top_k, std::size_t slot, const void* hidden, void* output)
      : Step(body, top_k, slot), hidden_(hidden), output_(output) {}

  void publish() {
    cuda::publish_tensors(body_.room_.tensors, {hidden_, top_k_.weights, nullptr}, body_.stream_);
  }
  void count() {
    cuda::count_slices(body_.route(), body_.slices(state_, top_k_), body_.room_.block_counts, body_.stream_);
  }
  // The only agreement between ranks: counts gathered, plan made by each from the same.
  void plan() {
    const cuda::Peers peers{body_.room_.outboxes[0], body_.room_.views};
    cuda::gather_counts(body_.route(), peers, state_.counts, body_.stream_);
    body_.planner_->plan(state_.counts, body_.route().most_chunks, nullptr, body_.room_.planner,
                         state_.step.plan, body_.stream_);
    cuda::prepare_step(body_.route(), body_.homes_, state_.step, body_.stream_);
  }
  void receive(int) { receive_rows(); }
  void run_experts(int) {
    run_rounds([&](const DeviceGroups& groups) {
      body_.ffn_->forward(groups, body_.room_.rows, body_.room_.exchanged, nullptr, body_.workspace(),
                          body_.stream_);
    });
  }
  void combine(int) { cuda::combine(chunk_, top_k_.weights, columns(), output_, body_.stream_); }

 private:
  const void* hidden_;
  void* output_;
};

void CudaMoeLayer::Body::forward(const void* hidden, const DeviceTopK& top_k, void* output,
                                 std::size_t slot) {
  require_input(hidden, top_k);
  ForwardStep step(*this, top_k, slot, hidden, output);
  cuda::order_forward(step, route().most_chunks);
}

DeviceBackward CudaMoeLayer::Body::backward_call() const {
  DeviceBackward call;
  call.input = room_.rows;
  call.grad_output = room_.exchanged;
  call.weight = room_.weights;
  call.grad_weight = room_.weight_gradients;
  call.grad_input = room_.row_gradients;
  call.input_rows = route().most_positions;
  return call;
}

class CudaMoeLayer::Body::BackwardStep : public Step {
 public:
  BackwardStep(Body& body, const DeviceTopK& top_k, std::size_t slot, const cuda::StepTensors& tensors,
               void* grad_hidden, float* grad_weights)
      : Step(body, top_k, slot), tensors_(tensors), grad_hidden_(grad_hidden), grad_weights_(grad_weights) {}

  void publish() { cuda::publish_tensors(body_.room_.tensors, tensors_, body_.stream_); }
  void clear() {
    const std::int64_t borrowed = body_.route().most_borrowed() * body_.room_shape_.layout.block();
    EVENKEEL_CUDA_CALL(cudaMemsetAsync, body_.room_.borrowed_gradients, 0,
                       static_cast<std::size_t>(borrowed) * sizeof(float),
                       static_cast<cudaStream_t>(body_.stream_.native()));
  }
  void receive(int) {
    receive_rows();
    cuda::gather_rows(chunk_, cuda::TokenRows::grad_output, columns(), body_.room_.exchanged, body_.stream_);
    cuda::gather_weights(chunk_, body_.room_.weights, body_.stream_);
  }
  void run_experts(int) {
    cuda::zero_rows(chunk_, columns(), body_.room_.row_gradients, body_.stream_);
    run_rounds([&](const DeviceGroups& groups) {
      body_.ffn_->backward(groups, body_.backward_call(), body_.workspace(), body_.stream_);
    });
  }
  void combine(int) {
    cuda::combine_gradients(chunk_, columns(), grad_hidden_, grad_weights_, body_.stream_);
  }
  void return_gradients() {
    cuda::return_gradients(chunk_, body_.homes_, body_.room_shape_.layout, body_.room_.native_gradients,
                           body_.stream_);
  }

 private:
  cuda::StepTensors tensors_;
  void* grad_hidden_;
  float* grad_weights_;
};

void CudaMoeLayer::Body::backward(const void* hidden, const DeviceTopK& top_k, std::size_t slot,
                                  const void* grad_output, void* grad_hidden, float* grad_router_weights) {
  if (!options_.with_backward)
    throw InvalidArgument("backward", "the layer was made without it", "with_backward");
  BackwardStep step(*this, top_k, slot, {hidden, top_k.weights, grad_output}, grad_hidden,
                    grad_router_weights);
  cuda::order_backward(step, route().most_chunks);
}

CudaStepReport CudaMoeLayer::Body::report(std::size_t slot) {
  const cuda::StepView& step = room_.states[slot].step;
  CudaStepReport report;
  std::int32_t transfers = 0, gave_way = 0, chunks = 0;
  report.rank_loads.resize(static_cast<std::size_t>(comm_.size()));
  static_cast<void>(stream_.native());
  stream_.copy(&transfers, step.plan.num_transfers, sizeof transfers);
  stream_.copy(&gave_way, step.plan.gave_way, sizeof gave_way);
  stream_.copy(&chunks, step.num_chunks, sizeof chunks);
  stream_.copy(report.rank_loads.data(), step.plan.rank_loads,
               report.rank_loads.size() * sizeof(std::int32_t));
  stream_.synchronize();
  report.transfers = transfers;
  report.gave_way = gave_way != 0;
  report.chunks = chunks;
  return report;
}

CudaForwardState::CudaForwardState(CudaForwardState&& other) noexcept
    : layer_(std::exchange(other.layer_, nullptr)),
      slot_(other.slot_),
      top_k_(other.top_k_),
      hidden_(other.hidden_) {}

CudaForwardState& CudaForwardState::operator=(CudaForwardState&& other) noexcept {
  if (this == &other) return *this;
  release();
  layer_ = std::exchange(other.layer_, nullptr);
  slot_ = other.slot_;
  top_k_ = other.top_k_;
  hidden_ = other.hidden_;
  return *this;
}

void CudaForwardState::release() noexcept {
  if (layer_ != nullptr) std::exchange(layer_, nullptr)->body_->give_slot(slot_);
}

CudaMoeLayer::CudaMoeLayer(Communicator& comm, Arena& arena, CudaStream& stream, const MoeShape& shape,
                           LayerPlacement placement, const CudaMoeOptions& options)
    : body_(std::make_unique<Body>(comm, arena, stream, shape, std::move(placement), options)) {}

CudaMoeLayer::~CudaMoeLayer() = default;

void CudaMoeLayer::set_weights(std::span<const ExpertWeights> natives,
                               std::span<const ExpertGradients> gradients) {
  body_->set_weights(natives, gradients);
}

CudaForwardState CudaMoeLayer::forward(const void* hidden, const DeviceTopK& top_k, void* output) {
  CudaForwardState state;
  state.slot_ = body_->take_slot();
  state.layer_ = this;
  state.top_k_ = top_k;
  state.hidden_ = hidden;
  body_->abort_on_error([&] { body_->forward(hidden, top_k, output, state.slot_); });
  return state;
}

void CudaMoeLayer::backward(CudaForwardState state, const void* grad_output, void* grad_hidden,
                            float* grad_router_weights) {
  if (state.layer_ != this)
    throw InvalidArgument("state", "holds no forward step of this layer", "what forward returned, once");
  body_->abort_on_error([&] {
    body_->backward(state.hidden_, state.top_k_, state.slot_, grad_output, grad_hidden, grad_router_weights);
  });
}

CudaStepReport CudaMoeLayer::report(const CudaForwardState& state) {
  return body_->report(state.slot_);
}

int CudaMoeLayer::most_chunks() const {
  return body_->route().most_chunks;
}
std::int64_t CudaMoeLayer::most_positions() const {
  return body_->route().most_positions;
}
int CudaMoeLayer::places() const {
  return body_->route().places;
}

}  // namespace evenkeel
