#include "evenkeel/study/calibration.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <thread>

#include "evenkeel/base/clock.h"
#include "evenkeel/base/cores.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/cost/spill_costs.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/study/experiment.h"
#include "evenkeel/study/internal/product_times.h"
#include "evenkeel/study/round_ratio.h"

namespace evenkeel {

namespace {

using internal::GroupTime;
using internal::kLeastSeconds;
using internal::ProductTimes;

// How much is measured.
struct Effort {
  int repeats = 9;
  std::int64_t many_rows = 512;
  std::int64_t weight_bytes = std::int64_t{256} << 20;  // beyond what caches hold
};
constexpr Effort kQuick = {.repeats = 3, .many_rows = 128, .weight_bytes = std::int64_t{48} << 20};

constexpr int kManyChunks = 32;
constexpr std::int64_t kChunkTokens = 2;
constexpr std::int64_t kNarrow = 16;

// Of this thread's CPU time; the first call warms up.
template <class Work>
double median_seconds(int repeats, const Work& work) {
  std::vector<double> seconds;
  for (int i = -1; i < repeats; ++i) {
    const double before = thread_cpu_seconds();
    work(i + 1);
    if (i >= 0) seconds.push_back(thread_cpu_seconds() - before);
  }
  std::ranges::sort(seconds);
  return quantile(seconds, 0.5);
}

// Weights beyond what caches hold, in the order in which the products want them.
struct ManyExperts {
  std::shared_ptr<const ExpertFfn> ffn;
  ExpertModel model;
  Arena arena{Device::cpu()};
  std::vector<Buffer> prepared;

  ManyExperts(const MoeShape& layer, std::int64_t bytes) : ffn(make_cpu_expert_ffn(layer.expert, false)) {
    const ExpertShape& shape = ffn->shape();
    const std::int64_t count =
        std::min<std::int64_t>(std::max<std::int64_t>(bytes / shape.weight_bytes(), 2), layer.num_experts);
    model = seeded_experts(shape, static_cast<int>(count), 1);
    for (std::int64_t e = 0; e < count; ++e) {
      prepared.push_back(arena.allocate(ffn->prepared_bytes(Pass::forward), "prepared weights"));
      ffn->prepare(model.weights(e), Pass::forward, prepared.back().bytes());
    }
  }
  ExpertGroup group(std::int64_t expert, std::int64_t rows) const {
    ExpertGroup group;
    group.prepared = prepared[static_cast<std::size_t>(expert % model.num_experts)].data();
    group.end = rows;
    return group;
  }
};

ProductTimes measure_products(const ManyExperts& experts, int thread, const Effort& effort) {
  const ExpertShape& shape = experts.ffn->shape();
  const Tensor input = seeded_tensor(shape.type, effort.many_rows * shape.hidden, 1, 1.0);
  const Tensor output(shape.type, effort.many_rows * shape.hidden);
  Arena arena(Device::cpu());
  const Buffer workspace = arena.allocate(experts.ffn->workspace_bytes(Pass::forward), "products");
  std::vector<std::int32_t> row(static_cast<std::size_t>(effort.many_rows));
  std::iota(row.begin(), row.end(), 0);
  const auto forward = [&](std::span<const ExpertGroup> groups) {
    experts.ffn->forward({groups, row, row}, {nullptr, {}, 0, input.at(0)}, output.at(0), workspace.bytes());
  };
  const auto of_each = [&](std::int64_t count) -> GroupTime {
    std::vector<ExpertGroup> each;
    for (std::int64_t e = 0; e < experts.model.num_experts; ++e) each.push_back(experts.group(e, count));
    return {count, median_seconds(effort.repeats, [&](int) { forward(each); }) / experts.model.num_experts};
  };
  const GroupTime many = {effort.many_rows, median_seconds(effort.repeats, [&](int i) {
                            const ExpertGroup group =
                                experts.group(i + thread * effort.repeats, effort.many_rows);
                            forward({&group, 1});
                          })};
  const GroupTime few = of_each(1);
  return internal::fit_products(few, of_each(internal::rows_between(few, many)), many);
}

void calibrate_products(const MoeShape& layer, int ranks, const Effort& effort, CostModel& cost) {
  const ManyExperts experts(layer, effort.weight_bytes);
  const int threads = std::min(ranks, usable_cores());
  std::vector<ProductTimes> times(static_cast<std::size_t>(threads));
  run_ranks(threads, [&](Communicator& comm) {
    times[comm.rank().offset()] = measure_products(experts, comm.rank().value(), effort);
  });
  const ExpertShape& shape = experts.ffn->shape();
  cost.flops_per_second =
      2 * static_cast<double>(shape.elements()) / std::ranges::max(times, {}, &ProductTimes::row).row;
  cost.weight_bytes_per_second =
      static_cast<double>(shape.weight_bytes()) / std::ranges::max(times, {}, &ProductTimes::weights).weights;
  cost.overlap = std::ranges::min(times, {}, &ProductTimes::overlap).overlap;
}

void calibrate_link(const MoeShape& layer, const Effort& effort, CostModel& cost) {
  const std::int64_t bytes = layer.expert.weight_bytes();
  const DataType type = layer.expert.type;
  const std::int64_t weights = std::clamp<std::int64_t>(effort.weight_bytes / bytes, 1, 1 + effort.repeats);
  const Tensor from = seeded_tensor(type, weights * bytes / bytes_of(type), 1, 1.0);
  const Tensor to(type, weights * bytes / bytes_of(type));
  std::ranges::fill(to.bytes(), std::byte{0});
  double seconds = 0;
  run_ranks(2, [&](Communicator& comm) {
    CpuStream stream;
    const double median = median_seconds(effort.repeats, [&](int i) {
      const auto at = static_cast<std::size_t>(i % weights * bytes);
      const SendSlice send{RankId(1), from.bytes().subspan(at, static_cast<std::size_t>(bytes))};
      const ReceiveSlice receive{RankId(0), to.bytes().subspan(at, static_cast<std::size_t>(bytes))};
      if (comm.rank().value() == 0)
        comm.send_receive({&send, 1}, {}, stream, "weights").wait();
      else
        comm.send_receive({}, {&receive, 1}, stream, "weights").wait();
    });
    if (comm.rank().value() == 1) seconds = median;
  });
  cost.link_bytes_per_second = static_cast<double>(bytes) / std::max(seconds, kLeastSeconds);
}

// Tokens that spread over all ranks, at one expert each.
Batch spread_batch(const LayerPlacement& placement, int top_k) {
  const int ranks = placement.num_ranks();
  std::vector<std::int32_t> first_native;
  for (RankId rank : indices<RankId>(ranks))
    if (const auto natives = placement.natives(rank); !natives.empty())
      first_native.push_back(natives.front().value());
  Batch batch;
  batch.name = "spread";
  batch.top_k = top_k;
  for (int rank = 1; rank <= ranks; ++rank) batch.first_token.push_back(rank * kManyChunks * kChunkTokens);
  for (std::int64_t i = 0; i < batch.num_tokens() * top_k; ++i)
    batch.experts.push_back(first_native[static_cast<std::size_t>(i) % first_native.size()]);
  batch.router_weights.assign(batch.experts.size(), 1.0f);
  return batch;
}

void calibrate_chunk(const MoeShape& layer, int ranks, CostModel& cost) {
  ExperimentSetup setup{layer, LayerPlacement::contiguous(layer.num_experts, ranks)};
  setup.shape.expert.hidden = setup.shape.expert.intermediate = kNarrow;
  setup.rounds = Effort{}.repeats;
  const Batch batch = spread_batch(setup.placement, layer.top_k);
  const LayerInputs inputs =
      seeded_inputs(setup.shape.expert, layer.num_experts, batch.num_tokens(), 1, setup.backward);
  setup.inputs = &inputs;
  const auto milliseconds = [&](int chunks) {
    setup.reference.budget.memory.rule = {ChunkRule::Kind::equal, chunks};
    return measure(setup, batch).reference.critical_ms;
  };
  const double more = 1e-3 * (milliseconds(kManyChunks) - milliseconds(1));
  cost.chunk_seconds = std::max(more / (kManyChunks - 1), kLeastSeconds);
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      if (const std::size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "unknown";
}

}  // namespace

Calibration calibrate(const MoeShape& layer, int ranks) {
  Calibration calibration;
  MoeShape few = layer;  // as there are at least in what is measured
  few.num_experts = std::min(layer.num_experts, 2);
  require_memory({few, LayerPlacement::contiguous(few.num_experts, 1)}, 0);
  calibrate_products(layer, ranks, Effort{}, calibration.cost);
  calibrate_link(layer, Effort{}, calibration.cost);
  calibrate_chunk(layer, ranks, calibration.cost);
  calibration.on = {cpu_name(), usable_cores(), ranks, describe(layer)};
  return calibration;
}

SpillCosts spill_costs_of(const MoeShape& layer, int ranks, bool backward, const CostModel* given) {
  CostModel cost;
  if (given != nullptr) {
    cost = *given;
  } else {
    calibrate_products(layer, ranks, kQuick, cost);
    calibrate_link(layer, kQuick, cost);
  }
  const ExpertShape& expert = layer.expert;
  return spill_costs({expert.elements(), bytes_of(expert.type), expert.hidden}, cost, backward);
}

}  // namespace evenkeel
