#include "benchmarks/cuda/ranks_in_turn.h"

#include <algorithm>
#include <array>

#include "evenkeel/layer/cuda/chunk_limits.h"
#include "evenkeel/plan/counts.h"

namespace evenkeel::benchmark {

using cuda::ExpertTensors;
using cuda::OutboxView;
using cuda::PeerView;
using testing::DeviceMemory;

namespace {

// Repeated random numbers, since products of zeros would run faster.
void fill_with_numbers(const DeviceMemory<std::byte>& memory, float scale) {
  constexpr std::size_t kPattern = 1 << 20;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, scale);
  std::vector<bf16> pattern(kPattern);
  for (bf16& number : pattern) number = bf16(normal(random));
  const std::size_t bytes = pattern.size() * sizeof(bf16);
  const std::size_t first = std::min(bytes, memory.size());
  EVENKEEL_CUDA_CALL(cudaMemcpy, memory.data(), pattern.data(), first, cudaMemcpyDefault);
  for (std::size_t at = first; at < memory.size();) {
    const std::size_t piece = std::min(at, memory.size() - at);
    EVENKEEL_CUDA_CALL(cudaMemcpy, memory.data() + at, memory.data(), piece, cudaMemcpyDefault);
    at += piece;
  }
}

std::size_t size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

template <class T>
void upload(const std::vector<T>& from, T* to) {
  if (!from.empty())
    EVENKEEL_CUDA_CALL(cudaMemcpy, to, from.data(), from.size() * sizeof(T), cudaMemcpyDefault);
}
template <class T>
std::vector<T> download(const T* from, int count) {
  std::vector<T> values(size(count));
  EVENKEEL_CUDA_CALL(cudaMemcpy, values.data(), from, values.size() * sizeof(T), cudaMemcpyDefault);
  return values;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

std::vector<std::int32_t> concentrated_ids(std::mt19937_64& random, const ModelCase& model, double share,
                                           int hot) {
  std::vector<std::int32_t> ids(size(model.tokens * model.moe.top_k));
  std::uniform_real_distribution<double> chance;
  std::uniform_int_distribution<std::int32_t> among_hot(0, std::max(hot, 1) - 1);
  std::uniform_int_distribution<std::int32_t> among_rest(hot, model.moe.num_experts - 1);
  for (std::int32_t& id : ids)
    id = hot > 0 && chance(random) < share ? among_hot(random) : among_rest(random);
  return ids;
}

// The steps of one routing under one planner.
class StepRunner {
 public:
  using Times = std::vector<std::vector<RankTimes>>;  // by rank and step

  StepRunner(RanksInTurn& all, const std::vector<std::vector<std::int32_t>>& ids,
             const PlannerOptions& planner, std::int64_t budget)
      : all_(all), stream_(all.stream_), counts_(ranks(), experts()), traffic_(size(ranks())) {
    for (int r = 0; r < ranks(); ++r) {
      for (const std::int32_t id : ids[size(r)]) ++counts_.rows()[size(r * experts() + id)];
      ids_.emplace_back(std::span<const std::int32_t>(ids[size(r)]));
    }
    counts_.sum_loads();
    make_planner(planner)->plan(counts_, all.placement_, plan_);
    open(planner, budget);
  }

  void step(Times& times) {
    for (int r = 0; r < ranks(); ++r)
      cuda::count_slices(shape(r), slices(r), buffers(r).block_counts, stream_);
    for (int r = 0; r < ranks(); ++r) times[size(r)].emplace_back();
    plan(times);
    // As in the layer, chunks that the step does not need are launched too, and do nothing.
    for (int c = 0; c < shape(0).most_chunks; ++c) run_chunk(c, times);
    stream_.synchronize();
    traffic_counted_ = true;
  }

  // The amounts that are the same in every step. Valid after a step has run.
  RankTimes traffic(int me) const {
    RankTimes t = traffic_[size(me)];
    t.positions = plan_.rank_loads()[size(me)];
    t.bytes = buffers_[size(me)].bytes;
    t.chunks = download(buffers(me).states[0].step.num_chunks, 1)[0];
    for (const Transfer& transfer : plan_.transfers()) {
      t.weights_in += transfer.to.value() == me;
      t.weights_out += transfer.from.value() == me;
    }
    return t;
  }

 private:
  void plan(Times& times) {
    for_ranks(times, &RankTimes::plan, [&](int r) {
      cuda::count_slices(shape(r), slices(r), buffers(r).block_counts, stream_);
      const cuda::StepView& step = buffers(r).states[0].step;
      cuda::gather_counts(shape(r), {buffers(r).outboxes[0], buffers(r).views}, buffers(r).states[0].counts,
                          stream_);
      planners_[size(r)]->plan(step.counts, shape(r).most_chunks, nullptr, buffers(r).planner, step.plan,
                               stream_);
      cuda::prepare_step(shape(r), homes(r), step, stream_);
    });
  }

  void run_chunk(int c, Times& times) {
    for_ranks(times, &RankTimes::tables, [&](int r) { cuda::deal_and_send(work(r, c), stream_); });
    if (!traffic_counted_) count_traffic();
    for_ranks(times, &RankTimes::tables, [&](int r) { cuda::receive(work(r, c), stream_); });
    for_ranks(times, &RankTimes::gather, [&](int r) {
      cuda::gather_rows(work(r, c), cuda::TokenRows::hidden, hidden(), buffers(r).rows, stream_);
    });
    for (int r = 0; c == 0 && r < ranks(); ++r)
      cuda::borrow_weights(work(r, c), all_.layout(), 0, buffers(r).slot_weights, stream_);
    for_ranks(times, &RankTimes::experts, [&](int r) {
      all_.ffn_->forward(groups(r), buffers(r).rows, buffers(r).exchanged, nullptr,
                         {buffers(r).workspace, size(shapes_[size(r)].workspace_bytes)}, stream_);
    });
    for_ranks(times, &RankTimes::combine, [&](int r) {
      cuda::combine(work(r, c), all_.router_weights_.data(), hidden(), all_.output_.data(), stream_);
    });
  }

  // Adds the traffic of the current chunk.
  void count_traffic() {
    stream_.synchronize();
    for (int from = 0; from < ranks(); ++from) {
      const auto begin = download(buffers(from).outbox[0].begin, ranks() + 1);
      const auto rows = download(buffers(from).outbox[0].rows, ranks());
      for (int to = 0; to < ranks(); ++to) {
        const std::int64_t results = begin[size(to) + 1] - begin[size(to)];
        traffic_[size(to)].rows += rows[size(to)];
        if (to == from) continue;
        traffic_[size(from)].rows_out += rows[size(to)];
        traffic_[size(from)].results_in += results;
        traffic_[size(to)].rows_in += rows[size(to)];
        traffic_[size(to)].results_out += results;
      }
    }
  }

  int ranks() const { return all_.model_.ranks; }
  int experts() const { return all_.model_.moe.num_experts; }
  std::int64_t hidden() const { return all_.model_.moe.expert.hidden; }
  const cuda::LayerBuffers& buffers(int r) const { return buffers_[size(r)]; }
  const cuda::RouteShape& shape(int r) const { return shapes_[size(r)].route; }
  cuda::PlacementView homes(int r) const { return all_.tables_.view_at(buffers(r).homes); }
  cuda::SliceView slices(int r) const {
    const cuda::StateBuffers& state = buffers(r).states[0];
    return {ids_[size(r)].data(), all_.model_.tokens, state.before, state.rank_in_slice};
  }
  cuda::ChunkWork work(int r, int chunk) const {
    return {shape(r),
            slices(r),
            buffers(r).states[0].step,
            buffers(r).chunk,
            buffers(r).outbox[0],
            {buffers(r).outboxes[0], buffers(r).views},
            chunk};
  }
  DeviceGroups groups(int r) const {
    DeviceGroups groups;
    groups.num_groups = shape(r).num_groups();
    groups.begin = buffers(r).chunk.group_begin;
    groups.weights = buffers(r).group_weights;
    groups.input_row = buffers(r).chunk.input_row;
    groups.output_row = buffers(r).chunk.output_row;
    groups.max_positions = shape(r).most_positions;
    return groups;
  }

  template <class Work>
  void for_ranks(Times& times, double RankTimes::*phase, const Work& work) {
    for (int r = 0; r < ranks(); ++r)
      times[size(r)].back().*phase += static_cast<double>(all_.timer_.milliseconds([&] { work(r); }));
  }

  cuda::BufferShape shape_of(int r, int borrow_slots, const cuda::ChunkLimits& cut) const {
    const ModelCase& model = all_.model_;
    cuda::BufferShape made;
    made.route = {ranks(),
                  experts(),
                  r,
                  model.moe.top_k,
                  cut.num_slices,
                  cut.most_chunks,
                  static_cast<int>(all_.placement_.natives(RankId(r)).size()),
                  borrow_slots,
                  1,
                  static_cast<int>(model.tokens * model.moe.top_k),
                  static_cast<std::int32_t>(cut.most_positions)};
    made.num_slots = all_.tables_.view().num_slots;
    made.with_backward = false;
    made.hidden = hidden();
    made.planner_integers = std::int64_t{ranks()} * experts();
    made.layout = all_.layout();
    made.workspace_bytes =
        all_.ffn_->forward_workspace_bytes(made.route.num_groups(), made.route.most_positions);
    return made;
  }

  // One chunk with exactly the positions of this routing, since the plan is known.
  cuda::ChunkLimits whole(int r) const {
    return {1, static_cast<int>((all_.model_.tokens + cuda::kSliceTokens - 1) / cuda::kSliceTokens),
            std::max<std::int64_t>(plan_.rank_loads()[size(r)], 1)};
  }
  // The chunks that a layer makes under a budget. All ranks have equally many native experts.
  cuda::ChunkLimits cut(std::int64_t budget, int borrow_slots) const {
    const ModelCase& model = all_.model_;
    return cuda::fit_chunks(
        ranks(), model.tokens, model.moe.top_k, budget, [&](int chunks, std::int64_t positions) {
          const int slices = 2 * chunks + static_cast<int>(model.tokens / 64);
          return cuda::lay_out(shape_of(0, borrow_slots, {chunks, slices, positions}), nullptr).bytes;
        });
  }

  void open(const PlannerOptions& options, std::int64_t budget) {
    std::vector<int> borrowed(size(ranks()));
    for (const Transfer& transfer : plan_.transfers()) ++borrowed[transfer.to.offset()];
    const int most_borrowed = *std::ranges::max_element(borrowed);
    for (int r = 0; r < ranks(); ++r) {
      shapes_.push_back(budget == kNoBudget ? shape_of(r, borrowed[size(r)], whole(r))
                                            : shape_of(r, most_borrowed, cut(budget, most_borrowed)));
      memory_.emplace_back(size(cuda::lay_out(shapes_.back(), nullptr).bytes));
      buffers_.push_back(cuda::lay_out(shapes_.back(), memory_.back().data()));
    }
    std::vector<OutboxView> outboxes;
    std::vector<PeerView> views;
    for (int r = 0; r < ranks(); ++r) {
      outboxes.push_back(buffers(r).outbox[0]);
      views.push_back({buffers(r).tensors, buffers(r).block_counts, buffers(r).exchanged, nullptr, nullptr,
                       buffers(r).published_weights, nullptr});
    }
    for (int r = 0; r < ranks(); ++r) {
      upload(outboxes, buffers(r).outboxes[0]);
      upload(views, buffers(r).views);
      const auto integers = all_.tables_.integers();
      upload(std::vector<std::int32_t>(integers.begin(), integers.end()), buffers(r).homes);
      planners_.push_back(std::make_unique<cuda::CudaPlanner>(homes(r), cuda::rules_of(options)));
      cuda::publish_tensors(buffers(r).tensors, {all_.hidden_.data(), all_.router_weights_.data(), nullptr},
                            stream_);
      show_weights(r);
    }
  }

  ExpertWeights tensors_in(std::byte* block) const {
    const cuda::ExpertLayout layout = all_.layout();
    std::array<void*, 4> parts{};
    for (int part = 0; part < 4; ++part)
      if (layout.elements[part] > 0) parts[size(part)] = block + 2 * layout.begin(part);
    return {parts[0], parts[1], parts[2], parts[3]};
  }

  void show_weights(int r) {
    const std::int64_t block = 2 * all_.layout().block();
    std::vector<ExpertTensors> published(size(experts()));
    std::vector<ExpertWeights> weights;
    for (ExpertId expert : all_.placement_.natives(RankId(r))) {
      const ExpertWeights own = tensors_in(all_.weights_.data() + expert.value() * block);
      weights.push_back(own);
      published[expert.offset()] = {{const_cast<void*>(own.gate_up), const_cast<void*>(own.down),
                                     const_cast<void*>(own.gate_up_bias), const_cast<void*>(own.down_bias)}};
    }
    for (int b = 0; b < shape(r).borrow_slots; ++b)
      weights.push_back(tensors_in(reinterpret_cast<std::byte*>(buffers(r).slot_weights) + b * block));
    upload(published, buffers(r).published_weights);
    upload(weights, buffers(r).group_weights);
  }

  RanksInTurn& all_;
  CudaStream& stream_;
  Counts counts_;
  StepPlan plan_;
  std::vector<RankTimes> traffic_;
  bool traffic_counted_ = false;
  std::vector<DeviceMemory<std::int32_t>> ids_;
  std::vector<cuda::BufferShape> shapes_;
  std::vector<DeviceMemory<std::byte>> memory_;
  std::vector<cuda::LayerBuffers> buffers_;
  std::vector<std::unique_ptr<cuda::CudaPlanner>> planners_;
};

RanksInTurn::RanksInTurn(const ModelCase& model, CudaStream& stream)
    : model_(model),
      stream_(stream),
      timer_(stream),
      placement_(LayerPlacement::contiguous(model.moe.num_experts, model.ranks)),
      tables_(placement_),
      ffn_((static_cast<void>(stream.native()), make_cuda_expert_ffn(model.moe.expert))),
      weights_(size(2 * layout().block() * model.moe.num_experts)),
      hidden_(size(2 * model.tokens * model.moe.expert.hidden)),
      output_(hidden_.size()),
      router_weights_(
          std::span<const float>(std::vector<float>(size(model.tokens * model.moe.top_k), 1.0f / 8))) {
  fill_with_numbers(weights_, 0.02f);
  fill_with_numbers(hidden_, 1.0f);
}

cuda::ExpertLayout RanksInTurn::layout() const {
  const ExpertShape& e = model_.moe.expert;
  return {{e.gate_up_rows() * e.hidden, e.intermediate * e.hidden, e.biases ? e.gate_up_rows() : 0,
           e.biases ? e.hidden : 0}};
}

std::vector<RankTimes> RanksInTurn::run(const std::vector<std::vector<std::int32_t>>& ids,
                                        const PlannerOptions& planner, int repeats, std::int64_t budget) {
  StepRunner runner(*this, ids, planner, budget);
  StepRunner::Times times(ids.size());
  runner.step(times);
  for (auto& of_rank : times) of_rank.clear();
  for (int i = 0; i < repeats; ++i) runner.step(times);
  std::vector<RankTimes> result;
  for (std::size_t r = 0; r < ids.size(); ++r) {
    RankTimes all = runner.traffic(static_cast<int>(r));
    for (double RankTimes::*phase : {&RankTimes::plan, &RankTimes::tables, &RankTimes::gather,
                                     &RankTimes::experts, &RankTimes::combine}) {
      std::vector<double> values;
      for (const RankTimes& step : times[r]) values.push_back(step.*phase);
      all.*phase = median(values);
    }
    result.push_back(all);
  }
  return result;
}

}  // namespace evenkeel::benchmark
