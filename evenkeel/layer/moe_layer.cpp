#include "evenkeel/layer/moe_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/layer/internal/agreement.h"
#include "evenkeel/layer/internal/native_experts.h"
#include "evenkeel/layer/internal/phase_clock.h"

namespace evenkeel {

using internal::Hash;

namespace {

constexpr std::uint64_t kLayerVersion = 1;

std::uint64_t hash_of(const LayerPlacement& placement) {
  Hash hash;
  hash.add(placement.num_experts()).add(placement.num_ranks());
  for (ExpertId expert : indices<ExpertId>(placement.num_experts()))
    for (RankId home : placement.homes(expert)) hash.add(expert.value()).add(home.value());
  return hash.value();
}

std::uint64_t hash_of(const MoeShape& shape) {
  const ExpertShape& e = shape.expert;
  return Hash()
      .add(shape.num_experts)
      .add(shape.top_k)
      .add(e.hidden)
      .add(e.intermediate)
      .add(e.activation)
      .add(e.biases)
      .add(e.type)
      .value();
}

std::uint64_t hash_of(const MoeOptions& options) {
  const PlannerOptions& p = options.planner;
  return Hash()
      .add(p.kind)
      .add(p.capacity_factor_thousandths)
      .add(p.min_segment)
      .add(p.imbalance_threshold_thousandths)
      .add(options.max_tokens)
      .add(options.with_backward)
      .value();
}

std::shared_ptr<const ExpertFfn> given_or_cpu(const MoeOptions& options, const MoeShape& shape) {
  if (options.experts == nullptr) return make_cpu_expert_ffn(shape.expert, options.with_backward);
  if (options.experts->shape() != shape.expert)
    throw InvalidArgument("experts", "made for another shape", "an ExpertFfn of the layer's shape");
  return options.experts;
}

void require_layer(const MoeShape& shape, const LayerPlacement& placement, const MoeOptions& options,
                   int ranks) {
  if (placement.num_experts() != shape.num_experts || placement.num_ranks() != ranks)
    throw InvalidArgument(
        "placement", fmt::format("{} experts on {} ranks", placement.num_experts(), placement.num_ranks()),
        fmt::format("{} experts on {} ranks", shape.num_experts, ranks));
  if (shape.top_k < 1) throw InvalidArgument("top_k", fmt::format("{}", shape.top_k), "1 or more");
  constexpr std::int64_t kMostAssignments = std::int64_t{1} << 30;
  if (options.max_tokens < 1 || options.max_tokens > kMostAssignments / shape.top_k / ranks)
    throw InvalidArgument("max_tokens", fmt::format("{}", options.max_tokens),
                          fmt::format("1..{}", kMostAssignments / shape.top_k / ranks));
}

}  // namespace

MoeLayer::MoeLayer(Communicator& comm, Arena& arena, const MoeShape& shape, LayerPlacement placement,
                   MoeOptions options)
    : comm_(comm),
      arena_(arena),
      shape_(shape),
      placement_(std::move(placement)),
      max_tokens_(options.max_tokens),
      with_backward_(options.with_backward),
      on_step_(std::move(options.on_step)),
      ffn_((require_layer(shape, placement_, options, comm.size()), given_or_cpu(options, shape))),
      planner_(make_planner(options.planner)),
      bitwise_(agree(options)),
      weights_comm_(comm.split(0)),
      natives_(std::make_unique<internal::NativeExperts>(*ffn_, placement_, comm.rank(), with_backward_)),
      clock_(std::make_unique<internal::PhaseClock>()),
      counts_(comm.size(), shape.num_experts),
      owned_gradients_(static_cast<std::size_t>(shape.num_experts)),
      exchange_(comm, stream_, arena, shape.expert.hidden, shape.expert.type),
      transfer_(*weights_comm_, arena, internal::part_elements(shape.expert), bytes_of(shape.expert.type)) {
  groups_.reserve(static_cast<std::size_t>(shape.num_experts));
  group_experts_.reserve(groups_.capacity());
}

MoeLayer::~MoeLayer() = default;

// What must be equal is required; unlike CPUs only cost the promise of equal bits.
BitwiseReport MoeLayer::agree(const MoeOptions& options) const {
  const std::vector<internal::Digest> required = {{"version", kLayerVersion},
                                                  {"shape", hash_of(shape_)},
                                                  {"options", hash_of(options)},
                                                  {"placement", hash_of(placement_)}};
  internal::require_agreement(comm_, required);
  BitwiseReport report = ffn_->bitwise();
  const internal::Digest arithmetic[] = {{"arithmetic", report.holds ? report.fingerprint : 0}};
  if (const int rank = internal::first_to_differ(comm_, arithmetic).front(); rank >= 0) {
    report.holds = false;
    report.reason = fmt::format("the CPU of rank {} multiplies to other bits than that of rank 0", rank);
  }
  return report;
}

void MoeLayer::set_weights(std::span<const ExpertWeights> natives) {
  natives_->set(natives);
}

void MoeLayer::set_planner(const PlannerOptions& options) {
  planner_ = make_planner(options);
}

template <class Body>
auto MoeLayer::abort_on_error(const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    comm_.abort(error.what());
    throw;
  }
}

ForwardState MoeLayer::forward(ConstRows hidden, const TopK& top_k, Rows output) {
  return abort_on_error([&] {
    clock_->start(false);
    require_input(hidden, top_k, output);
    ForwardState state = begin(top_k);  // the only agreement between ranks
    ForwardState::Body& step = *state.body_;

    clock_->enter(Phase::transfer);
    transfer_.start(step.plan, natives_->parts());  // travels while native experts compute
    clock_->enter(Phase::dispatch);
    step.dispatched = exchange_.dispatch(hidden.data, top_k, counts_, step.plan);
    save_for_backward(step, top_k);
    const Buffer results = exchange_.result_buffer(step.dispatched);
    run_experts(step, results);
    if (!with_backward_) step.dispatched.release_rows();
    clock_->enter(Phase::combine);
    exchange_.combine(step.dispatched, results, top_k.weights, output.data);
    clock_->enter(Phase::transfer);
    transfer_.finish();
    finish_step();
    return state;
  });
}

void MoeLayer::backward(ForwardState state, ConstRows grad_output, const MoeGradients& gradients) {
  abort_on_error([&] {
    clock_->start(true);
    if (!with_backward_) throw InvalidArgument("backward", "the layer was made without it", "with_backward");
    if (!state) throw InvalidArgument("state", "holds no forward step", "what forward returned, once");
    ForwardState::Body& step = *state.body_;
    require_rows("grad_output", grad_output, step.dispatched.tokens);
    require_rows("gradient of hidden", gradients.hidden, step.dispatched.tokens);
    if (gradients.experts.size() != natives().size())
      throw InvalidArgument("gradients", fmt::format("of {} experts", gradients.experts.size()),
                            fmt::format("of the {} at home on this rank", natives().size()));
    const auto choices = step.dispatched.result_slot().size();
    if (gradients.router_weights.size() != choices)
      throw InvalidArgument("gradient of router weights",
                            fmt::format("{} numbers", gradients.router_weights.size()),
                            fmt::format("{}, one for each of the top-k", choices));

    clock_->enter(Phase::transfer);
    transfer_.start(step.plan, natives_->parts());
    transfer_.open_gradients(step.plan, placement_);
    clock_->enter(Phase::dispatch);
    const auto weights = step.router_weights.as<const float>();
    Exchange::GradientRows incoming =
        exchange_.dispatch_gradients(step.dispatched, grad_output.data, weights);
    Exchange::ComputedGradients computed = exchange_.gradient_buffer(step.dispatched);
    run_experts_backward(step, incoming, computed, gradients);
    incoming = {};
    step.saved.release();
    step.dispatched.release_rows();
    clock_->enter(Phase::combine);
    exchange_.combine_gradients(step.dispatched, std::move(computed), gradients.hidden.data,
                                gradients.router_weights);
    clock_->enter(Phase::transfer);
    transfer_.return_gradients(owned_gradients_);
    transfer_.finish();
    finish_step();
  });
}

ForwardState MoeLayer::begin(const TopK& top_k) {
  gather_counts(top_k);
  ForwardState state = ForwardState::take(pool_);
  const double before = internal::seconds_of(CLOCK_THREAD_CPUTIME_ID);
  planner_->plan(counts_, placement_, state.body_->plan);
  clock_->statistics().planning_seconds = internal::seconds_of(CLOCK_THREAD_CPUTIME_ID) - before;
  return state;
}

void MoeLayer::gather_counts(const TopK& top_k) {
  counts_.resize(comm_.size(), shape_.num_experts);
  const auto experts = static_cast<std::size_t>(shape_.num_experts);
  const auto mine = counts_.rows().subspan(comm_.rank().offset() * experts, experts);
  for (std::size_t a = 0; a < top_k.experts.size(); ++a) {
    const std::int32_t expert = top_k.experts[a];
    if (expert < -1 || expert >= shape_.num_experts)
      throw InvalidArgument(
          "top_k", fmt::format("expert id {} at token {}", expert, a / static_cast<std::size_t>(top_k.k)),
          fmt::format("-1..{}", shape_.num_experts - 1));
    if (expert >= 0) ++mine[static_cast<std::size_t>(expert)];
  }
  comm_.all_gather(std::as_bytes(mine), std::as_writable_bytes(counts_.rows()), stream_, "counts").wait();
  counts_.sum_loads();
}

void MoeLayer::save_for_backward(ForwardState::Body& step, const TopK& top_k) {
  clock_->statistics().assignments = step.dispatched.positions_here;
  if (!with_backward_) return;
  step.saved =
      arena_.allocate(step.dispatched.positions_here * ffn_->saved_bytes_per_position(), "saved activations");
  step.router_weights =
      arena_.allocate(static_cast<std::int64_t>(top_k.weights.size_bytes()), "router weights");
  std::ranges::copy(top_k.weights, step.router_weights.as<float>().begin());
}

// Native experts first: foreign weights are on their way meanwhile.
void MoeLayer::run_experts(ForwardState::Body& step, const Buffer& results) {
  clock_->enter(Phase::compute);
  const Buffer workspace = arena_.allocate(ffn_->workspace_bytes(Pass::forward), "products");
  const auto run = [&] {
    ffn_->forward({groups_, step.dispatched.input_row(), step.dispatched.output_row()},
                  step.dispatched.rows().data(), results.data(), step.saved.bytes(), workspace.bytes());
  };
  collect_native_groups(step.dispatched, Pass::forward);
  run();
  clock_->enter(Phase::transfer);
  transfer_.receive();
  clock_->enter(Phase::compute);
  collect_foreign_groups(step.dispatched);
  run();
}

void MoeLayer::run_experts_backward(ForwardState::Body& step, const Exchange::GradientRows& incoming,
                                    const Exchange::ComputedGradients& computed,
                                    const MoeGradients& gradients) {
  clock_->enter(Phase::compute);
  const Buffer workspace = arena_.allocate(ffn_->workspace_bytes(Pass::backward), "products");
  const auto run = [&] {
    attach_gradients(gradients);
    ffn_->backward({groups_, step.dispatched.input_row(), step.dispatched.output_row()},
                   step.dispatched.rows().data(), incoming.rows.data(), incoming.weights.as<const float>(),
                   step.saved.bytes(), computed.rows.as<float>().data(), computed.weights.as<float>(),
                   workspace.bytes());
  };
  collect_native_groups(step.dispatched, Pass::backward);
  run();
  clock_->enter(Phase::transfer);
  transfer_.receive();
  clock_->enter(Phase::compute);
  collect_foreign_groups(step.dispatched);
  run();
}

void MoeLayer::collect_native_groups(const Dispatched& dispatched, Pass pass) {
  groups_.clear();
  group_experts_.clear();
  for (const Dispatched::Group& group : dispatched.groups()) {
    if (!natives_->is_native(group.expert)) continue;
    groups_.push_back({natives_->weights(group.expert),
                       natives_->prepared(group.expert, pass),
                       {},
                       group.begin,
                       group.end});
    group_experts_.push_back(group.expert);
  }
}

void MoeLayer::collect_foreign_groups(const Dispatched& dispatched) {
  groups_.clear();
  group_experts_.clear();
  for (const Dispatched::Group& group : dispatched.groups()) {
    if (natives_->is_native(group.expert)) continue;
    const auto borrowed =
        std::ranges::find(transfer_.borrowed(), group.expert, &WeightTransfer::Borrowed::expert);
    EVENKEEL_CHECK(borrowed != transfer_.borrowed().end());
    groups_.push_back({internal::weights_of(borrowed->parts), nullptr, {}, group.begin, group.end});
    group_experts_.push_back(group.expert);
  }
}

// Owners add to the caller's gradients, everyone else to what will be sent to the owner.
void MoeLayer::attach_gradients(const MoeGradients& gradients) {
  for (ExpertId expert : natives())
    if (placement_.owner(expert) == comm_.rank())
      owned_gradients_[expert.offset()] =
          internal::parts_of(gradients.experts[natives_->index(expert)], shape_.expert);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const ExpertId expert = group_experts_[g];
    const auto away = std::ranges::find(transfer_.away(), expert, &WeightTransfer::Away::expert);
    groups_[g].gradients = internal::gradients_of(
        away == transfer_.away().end() ? owned_gradients_[expert.offset()] : away->parts);
  }
}

void MoeLayer::finish_step() {
  const StepStatistics statistics = clock_->stop();
  if (on_step_) on_step_(statistics);
}

void MoeLayer::require_rows(const char* name, ConstRows rows, std::int64_t tokens) const {
  const ExpertShape& expert = shape_.expert;
  if (rows.rows != tokens || rows.columns != expert.hidden || rows.type != expert.type)
    throw InvalidArgument(name, fmt::format("[{}, {}] {}", rows.rows, rows.columns, name_of(rows.type)),
                          fmt::format("[{}, {}] {}", tokens, expert.hidden, name_of(expert.type)));
  if (rows.data == nullptr && tokens > 0) throw InvalidArgument(name, "is null");
}

void MoeLayer::require_input(ConstRows hidden, const TopK& top_k, ConstRows output) const {
  if (!natives_->are_set()) throw InvalidArgument("weights", "are not set", "set_weights before forward");
  if (top_k.tokens < 0 || top_k.tokens > max_tokens_)
    throw InvalidArgument("top_k", fmt::format("{} tokens", top_k.tokens), fmt::format("0..{}", max_tokens_));
  const auto choices = static_cast<std::size_t>(top_k.tokens * shape_.top_k);
  if (top_k.k != shape_.top_k || top_k.experts.size() != choices || top_k.weights.size() != choices)
    throw InvalidArgument("top_k",
                          fmt::format("{} tokens, k = {}, {} experts, {} weights", top_k.tokens, top_k.k,
                                      top_k.experts.size(), top_k.weights.size()),
                          fmt::format("k = {}, and tokens * k experts and weights", shape_.top_k));
  require_rows("hidden", hidden, top_k.tokens);
  require_rows("output", output, top_k.tokens);
}

}  // namespace evenkeel
