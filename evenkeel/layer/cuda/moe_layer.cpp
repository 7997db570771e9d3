#include "evenkeel/layer/cuda/moe_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/comm/abort_on_error.h"
#include "evenkeel/exchange/cuda/weight_copies.h"
#include "evenkeel/layer/cuda/internal/layer_body.h"

namespace evenkeel {

namespace {

// A step that fails ends on all ranks; when it throws, nobody reads the caller's tensors any more.
template <class Body, class Step>
void run_or_end_all(Body& body, const Step& step) {
  try {
    abort_on_error(body.comm(), step);
  } catch (...) {
    body.await_others();
    throw;
  }
}

}  // namespace

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

CudaStepReport CudaMoeLayer::Body::report(std::size_t slot) {
  const cuda::StepView& step = buffers_.states[slot].step;
  CudaStepReport report;
  std::int32_t transfers = 0, fell_back_to_ep = 0, chunks = 0;
  std::vector<std::int32_t> borrowed(static_cast<std::size_t>(route().most_borrowed()));
  report.rank_loads.resize(static_cast<std::size_t>(comm_.size()));
  static_cast<void>(stream_.native());
  stream_.copy(&transfers, step.plan.num_transfers, sizeof transfers);
  stream_.copy(&fell_back_to_ep, step.plan.fell_back_to_ep, sizeof fell_back_to_ep);
  stream_.copy(&chunks, step.num_chunks, sizeof chunks);
  stream_.copy(borrowed.data(), step.borrowed_expert, borrowed.size() * sizeof(std::int32_t));
  stream_.copy(report.rank_loads.data(), step.plan.rank_loads,
               report.rank_loads.size() * sizeof(std::int32_t));
  stream_.synchronize();
  report.transfers = transfers;
  report.fell_back_to_ep = fell_back_to_ep != 0;
  report.chunks = chunks;
  report.borrowed = static_cast<int>(std::ranges::count_if(borrowed, [](int e) { return e >= 0; }));
  report.weights_sent = cuda::weight_copies(report.borrowed, route().places, chunks);
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
  run_or_end_all(*body_, [&] { body_->set_weights(natives, gradients); });
}

CudaForwardState CudaMoeLayer::forward(const void* hidden, const DeviceTopK& top_k, void* output) {
  CudaForwardState state;
  state.slot_ = body_->take_slot();
  state.layer_ = this;
  state.top_k_ = top_k;
  state.hidden_ = hidden;
  run_or_end_all(*body_, [&] { body_->forward(hidden, top_k, output, state.slot_); });
  return state;
}

void CudaMoeLayer::backward(CudaForwardState state, const void* grad_output, void* grad_hidden,
                            float* grad_router_weights) {
  if (state.layer_ != this)
    throw InvalidArgument("state", "holds no forward step of this layer", "what forward returned, once");
  run_or_end_all(*body_, [&] {
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
