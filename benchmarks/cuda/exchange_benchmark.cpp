// The parts of a step around the experts on a GPU: the planner in microseconds; gathering rows and combining
// results in GB/s, beside a copy of as many bytes; and the arena's calls.
//
// usage: exchange_cuda_benchmark OUT.json
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iostream>

#include "benchmarks/cuda/ranks_in_turn.h"
#include "evenkeel/device/cuda/gpu.h"

namespace evenkeel::benchmark {
namespace {

using testing::DeviceMemory;

// Counts of a step; the fraction `share` of the assignments goes to expert 0.
std::vector<std::int32_t> counts_of(std::mt19937_64& random, int experts, int ranks, double share) {
  std::vector<std::int32_t> counts(static_cast<std::size_t>(experts * ranks));
  std::uniform_real_distribution<double> chance;
  std::uniform_int_distribution<int> any(0, experts - 1);
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < 65536; ++i)
      ++counts[static_cast<std::size_t>(r * experts + (chance(random) < share ? 0 : any(random)))];
  return counts;
}

Json time_planner(CudaStream& stream, int experts, int ranks, PlannerOptions::Kind kind, double share) {
  std::mt19937_64 random(3);
  const cuda::PlacementTables tables(LayerPlacement::contiguous(experts, ranks));
  const DeviceMemory<std::int32_t> homes(tables.integers());
  const std::vector<std::int32_t> host_counts = counts_of(random, experts, ranks, share);
  const DeviceMemory<std::int32_t> counts{std::span<const std::int32_t>(host_counts)};
  const int segments = cuda::most_segments(experts, ranks);
  const DeviceMemory<std::int32_t> out(static_cast<std::size_t>(experts + 1 + 5 * segments + ranks + 2));
  const DeviceMemory<std::int32_t> workspace(static_cast<std::size_t>(experts * ranks));
  std::int32_t* at = out.data();
  const auto take = [&at](int n) { return (at += n) - n; };
  const cuda::PlanView plan{take(experts + 1), take(segments), take(segments), take(segments), take(segments),
                            take(segments),    take(1),        take(ranks),    take(1)};
  const cuda::CudaPlanner planner(tables.view_at(homes.data()), cuda::rules_of({kind}));
  Json json = EventTimer(stream).microseconds(
      50, 20, [&] { planner.plan(counts.data(), 1, nullptr, workspace.data(), plan, stream); });
  json["experts"] = experts;
  json["ranks"] = ranks;
  json["planner"] = make_planner({kind})->name();
  json["share_into_one"] = share;
  return json;
}

double copy_rate(CudaStream& stream, std::int64_t bytes) {
  const DeviceMemory<std::byte> from(static_cast<std::size_t>(bytes)), to(static_cast<std::size_t>(bytes));
  const Json time = EventTimer(stream).microseconds(20, 1, [&] {
    static_cast<void>(stream.native());
    stream.copy(to.data(), from.data(), static_cast<std::size_t>(bytes));
  });
  return 2e-3 * static_cast<double>(bytes) / time.at("microseconds").get<double>();
}

// Times a balanced step. Each row counts twice in the bytes: read once and written once.
Json time_rows(CudaStream& stream, const ModelCase& model) {
  std::mt19937_64 random(5);
  RanksInTurn turn(model, stream);
  std::vector<std::vector<std::int32_t>> ids;
  for (int r = 0; r < model.ranks; ++r) ids.push_back(concentrated_ids(random, model, 0, 0));
  const std::vector<RankTimes> ranks = turn.run(ids, {PlannerOptions::Kind::ep}, 9);
  const double row = 2.0 * static_cast<double>(model.moe.expert.hidden);
  const double copy = copy_rate(stream, model.tokens * model.moe.expert.hidden * 4);
  Json json = {{"model", model.name}, {"copy_gbps", copy}};
  const RankTimes& r = ranks.front();
  // Rows that stay on their rank are also read and written.
  const auto gathered = static_cast<double>(r.rows);
  const auto results = static_cast<double>(model.tokens * model.moe.top_k);
  const double gather = 2 * gathered * row / r.gather / 1e6;
  const double combine = (results + static_cast<double>(model.tokens)) * row / r.combine / 1e6;
  json["gather"] = {{"milliseconds", r.gather}, {"gbps", gather}, {"of_copy", gather / copy}};
  json["combine"] = {{"milliseconds", r.combine}, {"gbps", combine}, {"of_copy", combine / copy}};
  json["tables"] = {{"milliseconds", r.tables}};
  json["count_plan_and_prepare"] = {{"milliseconds", r.plan}};
  std::cout << fmt::format("{}: gather {:.0f} GB/s, combine {:.0f}, copy {:.0f}\n", model.name, gather,
                           combine, copy);
  return json;
}

Json time_arena() {
  Arena arena(Device::cuda(0), 1 << 30);
  constexpr int kCalls = 100000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) {
    const Buffer first = arena.allocate(1 << 20, "benchmark");
    const Buffer second = arena.allocate(3 << 20, "benchmark");
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return {{"microseconds_of_two_allocations", took.count() / kCalls}};
}

int run(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: exchange_cuda_benchmark OUT.json\n";
    return 2;
  }
  if (cuda::gpu_count() == 0) {
    std::cerr << cuda::why_no_gpu() << "\n";
    return 3;
  }
  CudaStream stream;
  Json all = {{"plan_goal_us", {{"128 experts, 8 ranks", 15}, {"384 experts, 64 ranks", 60}}}};
  using Kind = PlannerOptions::Kind;
  for (const auto& [experts, ranks] : {std::pair(128, 8), std::pair(256, 8), std::pair(384, 64)})
    for (Kind kind : {Kind::ep, Kind::least_loaded, Kind::level})
      for (double share : {0.0, 0.5, 0.95}) {
        all["plan"].push_back(time_planner(stream, experts, ranks, kind, share));
        std::cout << all["plan"].back().dump() << "\n";
      }
  const ExpertShape gpt_oss{2880, 2880, Activation::clamped_swiglu, true, DataType::bf16};
  const ExpertShape deepseek{7168, 2048, Activation::swiglu, false, DataType::bf16};
  all["rows"].push_back(time_rows(stream, {"gpt-oss-120b", {128, 4, gpt_oss}, 8, 32768}));
  all["rows"].push_back(time_rows(stream, {"DeepSeek-V3", {256, 8, deepseek}, 8, 16384}));
  all["arena"] = time_arena();
  std::ofstream(argv[1]) << all.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace evenkeel::benchmark

int main(int argc, char** argv) {
  try {
    return evenkeel::benchmark::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
