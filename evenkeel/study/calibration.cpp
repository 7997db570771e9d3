#include "evenkeel/study/calibration.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <thread>

#include "evenkeel/base/clock.h"
#include "evenkeel/base/cores.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/cost/fit.h"
#include "evenkeel/device/cpu/stream.h"
#include "evenkeel/study/experiment.h"
#include "evenkeel/study/round_ratio.h"

namespace evenkeel {

namespace {

// The amount of work that is measured.
struct Effort {
  int repeats = 9;
  std::int64_t many_rows = 512;
  std::int64_t weight_bytes = std::int64_t{256} << 20;  // larger than the caches
};
constexpr Effort kQuick = {.repeats = 3, .many_rows = 128, .weight_bytes = std::int64_t{48} << 20};

// A lower limit for measured times: a time of 0 would be a measurement error.
constexpr double kLeastSeconds = 1e-9;
constexpr std::int64_t kMessages[] = {4 << 10, 256 << 10, 8 << 20};  // message sizes in bytes
constexpr int kManyChunks = 32;
constexpr std::int64_t kChunkTokens = 2;
constexpr std::int64_t kNarrow = 16;
constexpr int kNarrower = 4;
constexpr double kSomeInnerHalf = 100;

// The median CPU time of this thread over `repeats` calls. One more call before them warms up and does not
// count.
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

// Weights larger than the caches, in the order in which the products use them.
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

ExpertWork work_of(const ExpertShape& shape) {
  return {.elements = static_cast<double>(shape.elements()),
          .outputs = static_cast<double>(shape.gate_up_rows() + shape.hidden),
          .bytes = static_cast<double>(shape.weight_bytes())};
}

// Times one row, many rows, and a number of rows with which reading and multiplying take about equally long.
std::vector<ProductTime> measure_products(const ManyExperts& experts, int thread, const Effort& effort) {
  const ExpertShape& shape = experts.ffn->shape();
  const Tensor input = seeded_tensor(shape.type, effort.many_rows * shape.hidden, 1, 1.0);
  const Tensor output(shape.type, effort.many_rows * shape.hidden);
  Arena arena(Device::cpu());
  const Buffer workspace = arena.allocate(experts.ffn->workspace_bytes(Pass::forward), "products");
  std::vector<std::int32_t> row(static_cast<std::size_t>(effort.many_rows));
  std::iota(row.begin(), row.end(), 0);
  const auto time_of = [&](std::int64_t count, std::int64_t rows) {
    const double seconds = median_seconds(effort.repeats, [&](int i) {
      std::vector<ExpertGroup> groups;
      for (std::int64_t e = 0; e < count; ++e)
        groups.push_back(experts.group(e + (i + thread * effort.repeats) * count, rows));
      experts.ffn->forward({groups, row, row}, {nullptr, {}, 0, input.at(0)}, output.at(0),
                           workspace.bytes());
    });
    return ProductTime{work_of(shape), static_cast<double>(count), static_cast<double>(rows),
                       std::max(seconds, kLeastSeconds)};
  };
  const std::int64_t all = experts.model.num_experts;
  const ProductTime few = time_of(all, 1), many = time_of(1, effort.many_rows);
  const double between = few.seconds / few.experts / (many.seconds / many.rows);
  return {few, time_of(all, std::llround(std::clamp(between, few.rows, many.rows))), many};
}

// Measures on as many threads as ranks can compute at the same time.
std::vector<ProductTime> product_times(const MoeShape& layer, int ranks, const Effort& effort) {
  const ManyExperts experts(layer, effort.weight_bytes);
  std::vector<std::vector<ProductTime>> times(static_cast<std::size_t>(std::min(ranks, usable_cores())));
  run_ranks(static_cast<int>(times.size()), [&](Communicator& comm) {
    times[comm.rank().offset()] = measure_products(experts, comm.rank().value(), effort);
  });
  std::vector<ProductTime> all;
  for (const std::vector<ProductTime>& of_thread : times)
    all.insert(all.end(), of_thread.begin(), of_thread.end());
  return all;
}

// The starting point of the fit. Times of a single shape do not determine `inner_half`; for these it is 0.
Machine start_of(double inner_half) {
  return {.inner_half = inner_half, .overlap = 0.5};
}

// Measures the layer's experts, and narrower experts, which show the cost of short inner dimensions.
Machine calibrate_products(const MoeShape& layer, int ranks) {
  std::vector<ProductTime> times = product_times(layer, ranks, Effort{});
  MoeShape narrow = layer;
  narrow.expert.hidden = std::max<std::int64_t>(layer.expert.hidden / kNarrower, 1);
  narrow.expert.intermediate = std::max<std::int64_t>(layer.expert.intermediate / kNarrower, 1);
  // as many bytes as the wide experts, so that caches hold no larger share
  narrow.num_experts *= kNarrower * kNarrower;
  for (const ProductTime& time : product_times(narrow, ranks, Effort{})) times.push_back(time);
  return fit_products(start_of(kSomeInnerHalf), times);
}

// Sends messages from memory that is in no cache.
void calibrate_link(const Effort& effort, Machine& machine) {
  const std::int64_t most = std::ranges::max(kMessages);
  const std::int64_t slices = std::min<std::int64_t>(effort.weight_bytes / most, 1 + effort.repeats);
  const Tensor from = seeded_tensor(DataType::f32, slices * most / 4, 1, 1.0);
  const Tensor to(DataType::f32, slices * most / 4);
  std::ranges::fill(to.bytes(), std::byte{0});
  std::vector<ExchangeTime> times;
  run_ranks(2, [&](Communicator& comm) {
    CpuStream stream;
    for (const std::int64_t bytes : kMessages) {
      const double seconds = median_seconds(effort.repeats, [&](int i) {
        const auto at = static_cast<std::size_t>(i % slices * most);
        const SendSlice send{RankId(1), from.bytes().subspan(at, static_cast<std::size_t>(bytes))};
        const ReceiveSlice receive{RankId(0), to.bytes().subspan(at, static_cast<std::size_t>(bytes))};
        if (comm.rank().value() == 0)
          comm.send_receive({&send, 1}, {}, stream, "weights").wait();
        else
          comm.send_receive({}, {&receive, 1}, stream, "weights").wait();
      });
      if (comm.rank().value() == 1)
        times.push_back({{.within = static_cast<double>(bytes)}, std::max(seconds, kLeastSeconds)});
    }
  });
  machine.link_seconds = 1e-6;
  machine.ramp_bytes = static_cast<double>(kMessages[1]);
  machine = fit_exchanges(machine, times);
  machine.nic_bytes_per_second = machine.link_bytes_per_second;
  machine.nic_seconds = machine.link_seconds;
}

// A batch with tokens on all ranks, all of whose assignments go to one expert on each rank.
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

void calibrate_chunk(const MoeShape& layer, int ranks, Machine& machine) {
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
  machine.chunk_seconds = std::max(more / (kManyChunks - 1), kLeastSeconds);
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
  MoeShape few = layer;  // checked with this many experts, which are always measured
  few.num_experts = std::min(layer.num_experts, 2);
  require_memory({few, LayerPlacement::contiguous(few.num_experts, 1)}, 0);
  calibration.machine = calibrate_products(layer, ranks);
  calibrate_link(Effort{}, calibration.machine);
  calibrate_chunk(layer, ranks, calibration.machine);
  calibration.on = {cpu_name(), usable_cores(), ranks, describe(layer)};
  return calibration;
}

SpillCosts spill_costs_of(const MoeShape& layer, int ranks, bool backward, const Machine* given) {
  Machine machine;
  if (given != nullptr) {
    machine = *given;
  } else {
    machine = fit_products(start_of(0), product_times(layer, ranks, kQuick));
    calibrate_link(kQuick, machine);
  }
  const auto row = static_cast<double>(layer.expert.hidden * bytes_of(layer.expert.type));
  return spill_costs(machine, work_of(layer.expert), row, backward);
}

StepLinks links_of(const MoeShape& layer, const Topology& topology, const Machine& machine, bool backward) {
  return {.topology = topology,
          .machine = machine,
          .expert = work_of(layer.expert),
          .row_bytes = static_cast<double>(layer.expert.hidden * bytes_of(layer.expert.type)),
          .backward = backward};
}

}  // namespace evenkeel
