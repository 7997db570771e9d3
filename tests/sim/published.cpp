#include "tests/sim/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string_view>
#include <tuple>

#include "evenkeel/cost/fit.h"
#include "evenkeel/routing/workload.h"
#include "evenkeel/sim/layer_replay.h"
#include "evenkeel/topology/devices.h"
#include "evenkeel/topology/presets.h"
#include "tests/sim/critical_path.h"
#include "tests/support/published_table.h"

namespace evenkeel::published {

namespace {

using testing::number;
using testing::published_table;
using testing::PublishedRow;

struct Layer {
  std::int64_t hidden = 7168, intermediate = 2048;
  int experts = 256, top_k = 8;
  std::int64_t element_bytes = 2;
};
constexpr Layer kDeepSeekV3;

SimSetup setup_of(const Layer& layer, const Topology& topology, const Machine& machine,
                  bool backward = false) {
  SimSetup setup{.topology = topology, .machine = machine, .backward = backward};
  SimLayer& sim = setup.layer.emplace();
  const ExpertWork work = expert_work(layer.hidden, layer.intermediate, 3, layer.element_bytes);
  ChunkShape& chunk = sim.chunk;
  chunk.num_ranks = topology.num_ranks();
  chunk.num_experts = layer.experts;
  chunk.top_k = layer.top_k;
  chunk.hidden = layer.hidden;
  chunk.element_bytes = layer.element_bytes;
  chunk.weight_bytes = chunk.forward_weight_bytes = std::llround(work.bytes);
  chunk.row_outputs = std::llround(work.outputs);
  chunk.with_backward = backward;
  if (backward) {
    chunk.backward_weight_bytes = chunk.weight_bytes;
    chunk.gradient_bytes = std::llround(work.elements) * std::int64_t{sizeof(float)};
    chunk.saved_bytes = 2 * layer.intermediate * layer.element_bytes;
  }
  sim.sizes = {
      {work, static_cast<double>(chunk.gradient_bytes)}, static_cast<double>(chunk.row_bytes()), work.bytes};
  return setup;
}

// A setup with all ranks in one node.
SimSetup setup_of(const Layer& layer, int ranks, const Machine& machine, bool backward = false) {
  Topology::Description topology = Topology::uniform(1, ranks).description();
  topology.within = {machine.link_bytes_per_second * 1e-9, machine.link_seconds * 1e6};
  return setup_of(layer, Topology(topology), machine, backward);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

Prediction prediction(std::string what, double measured, const std::vector<double>& draws) {
  return {std::move(what), measured, median(draws), std::ranges::min(draws), std::ranges::max(draws)};
}

// An H200's fp8 products, fitted on bf16 products with even routing. Launches take as long as the shortest
// step whose distribution contains `even` in the collector's table.
Machine fp8_machine(const std::vector<PublishedRow>& collected, const char* even) {
  std::vector<ProductTime> times;
  for (const PublishedRow& row : published_table("experts_h200_bf16.csv"))
    if (row.at("matrices") == "3")
      times.push_back({expert_work(std::stoi(row.at("hidden")), std::stoi(row.at("intermediate")), 3, 2),
                       number(row, "experts"), number(row, "rows_per_expert"), 1e-3 * number(row, "ms")});
  Machine machine = fit_products({.flops_per_second = 1e14,
                                  .inner_half = 100,
                                  .weight_bytes_per_second = 1e12,
                                  .overlap = 0.5,
                                  .products_seconds = 1e-5},
                                 times);
  machine.flops_per_second *= 2;
  machine.products_seconds = 1;
  for (const PublishedRow& row : collected)
    if (row.at("distribution").find(even) != std::string::npos)
      machine.products_seconds = std::min(machine.products_seconds, 1e-3 * number(row, "ms"));
  return machine;
}

using Loads = std::vector<std::int64_t>;

// Removes rounding errors: adds missing assignments to each rank's least loaded expert in turn, or takes
// surplus ones from its most loaded expert.
void even_out(Loads& loads, std::size_t ranks, std::int64_t missing, std::int64_t most) {
  const std::size_t each = loads.size() / ranks;
  for (std::size_t rank = 0; missing != 0; rank = (rank + 1) % ranks) {
    const auto begin = loads.begin() + static_cast<std::ptrdiff_t>(rank * each);
    const auto end = begin + static_cast<std::ptrdiff_t>(each);
    if (missing > 0) {
      const auto least = std::ranges::min_element(begin, end);
      if (*least >= most) continue;
      const std::int64_t part =
          std::clamp<std::int64_t>(missing / static_cast<std::int64_t>(4 * ranks), 1, most - *least);
      *least += part;
      missing -= part;
    } else {
      const auto most_loaded = std::ranges::max_element(begin, end);
      if (*most_loaded == 0) continue;
      --*most_loaded;
      ++missing;
    }
  }
}

// The collectors' power law: an expert's popularity has density x^-alpha between 1 and four fifths of the
// number of tokens. No expert has more assignments than there are tokens.
Loads power_law(const Layer& layer, int ranks, std::int64_t tokens, double alpha, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::int64_t assignments = tokens * layer.top_k;
  const bool many = assignments > layer.experts;
  const double low = many ? 1 : 0.01, high = many ? 0.8 * static_cast<double>(tokens) : 2;
  const double begin = std::pow(low, 1 - alpha), end = std::pow(high, 1 - alpha);
  std::vector<double> popularity;
  double sum = 0;
  for (int expert = 0; expert < layer.experts; ++expert) {
    const double part = static_cast<double>(random() >> 11) * 0x1p-53;
    popularity.push_back(std::pow((end - begin) * part + begin, 1 / (1 - alpha)));
    sum += popularity.back();
  }
  Loads loads;
  std::int64_t missing = assignments;
  for (const double each : popularity) {
    loads.push_back(
        std::min<std::int64_t>(std::llround(each / sum * static_cast<double>(assignments)), tokens));
    missing -= loads.back();
  }
  even_out(loads, static_cast<std::size_t>(ranks), missing, tokens);
  return loads;
}

// The loads, sent in equal parts by all ranks.
LayerTokens tokens_of(const Loads& loads, int ranks) {
  LayerTokens tokens;
  tokens.counts.resize(ranks, static_cast<int>(loads.size()));
  const auto rows = tokens.counts.rows();
  tokens.first_token.assign(1, 0);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    std::int64_t sum = 0;
    for (std::size_t expert = 0; expert < loads.size(); ++expert)
      sum += rows[rank * loads.size() + expert] = (loads[expert] + static_cast<std::int64_t>(rank)) / ranks;
    tokens.first_token.push_back(tokens.first_token.back() + sum);
  }
  tokens.counts.sum_loads();
  return tokens;
}

PhaseSeconds step(const SimSetup& setup, const char* method, const LayerPlacement& homes,
                  const LayerTokens& tokens) {
  LayerReplay replay(setup, parse_method(method), {homes});
  return critical_path(replay.run(0, tokens, /*with_spans=*/true).spans, tokens.num_ranks());
}

// Seconds of the products of the rank with the most assignments, which the collectors time.
double products(const SimSetup& setup, const LayerPlacement& homes, const LayerTokens& tokens) {
  LayerReplay replay(setup, parse_method("ep"), {homes});
  const LayerOutcome& outcome = replay.run(0, tokens, /*with_spans=*/true);
  const auto loads = outcome.plan.rank_loads();
  const auto heaviest = std::ranges::max_element(loads) - loads.begin();
  double seconds = 0;
  for (const PhaseSpan& span : outcome.spans)
    if (span.rank == heaviest && span.phase == SimPhase::products) seconds += span.end - span.begin;
  return seconds;
}

LayerPlacement in_order(const Layer& layer, int ranks) {
  return LayerPlacement::contiguous(layer.experts, ranks);
}

// The collector's placement: each additional copy goes to the expert with the most load per copy. Then each
// copy, in order of falling load, goes to the least loaded rank that has a free slot.
LayerPlacement by_load(const Loads& loads, int ranks, int slots) {
  std::vector<int> copies(loads.size(), 1);
  const auto of_copy = [&](std::size_t expert) {
    return static_cast<double>(loads[expert]) / copies[expert];
  };
  std::vector<std::size_t> order(loads.size());
  std::iota(order.begin(), order.end(), 0);
  for (int more = slots - static_cast<int>(loads.size()); more > 0; --more)
    ++copies[*std::ranges::max_element(order, {}, of_copy)];
  std::ranges::stable_sort(order, std::greater(), of_copy);
  std::vector<double> rank_loads(static_cast<std::size_t>(ranks));
  std::vector<int> free(rank_loads.size(), slots / ranks);
  std::vector<std::vector<int>> homes(loads.size());
  for (const std::size_t expert : order)
    for (int copy = 0; copy < copies[expert]; ++copy) {
      std::size_t least = rank_loads.size();
      for (std::size_t rank = 0; rank < rank_loads.size(); ++rank)
        if (free[rank] > 0 && (least == rank_loads.size() || rank_loads[rank] < rank_loads[least]))
          least = rank;
      rank_loads[least] += of_copy(expert);
      --free[least];
      const auto home = static_cast<int>(least);
      if (std::ranges::find(homes[expert], home) == homes[expert].end()) homes[expert].push_back(home);
    }
  return LayerPlacement(homes, ranks);
}

double alpha_of(const std::string& distribution) {
  return std::stod(distribution.substr(std::string("power_law_").size()));
}

}  // namespace

Errors errors_of(const std::vector<Prediction>& predictions) {
  std::vector<double> sizes, errors;
  double within = 0;
  for (const Prediction& each : predictions) {
    errors.push_back(each.predicted / each.measured - 1);
    sizes.push_back(std::abs(errors.back()));
    within += each.least <= each.measured && each.measured <= each.most;
  }
  std::ranges::sort(sizes);
  return {median(sizes), sizes[sizes.size() * 9 / 10], median(errors),
          within / static_cast<double>(sizes.size())};
}

std::vector<Prediction> copies_over_none(int draws) {
  const Layer layer{.element_bytes = 1};
  const std::vector<PublishedRow> rows = published_table("copies_h200_trtllm.csv");
  const Machine machine = fp8_machine(rows, "");
  using Key = std::tuple<std::string, std::string, std::string>;  // (ranks, law, tokens)
  std::map<Key, double> without;
  for (const PublishedRow& row : rows)
    if (!row.at("distribution").ends_with("_eplb"))
      without[{row.at("ep"), row.at("distribution"), row.at("tokens")}] = number(row, "ms");
  std::vector<Prediction> predictions;
  for (const PublishedRow& row : rows) {
    std::string law = row.at("distribution");
    if (!law.ends_with("_eplb")) continue;
    law.resize(law.size() - std::string("_eplb").size());
    const int ranks = std::stoi(row.at("ep")), slots = std::stoi(row.at("slots"));
    const SimSetup setup = setup_of(layer, ranks, machine);
    std::vector<double> ratios;
    for (int draw = 0; draw < draws; ++draw) {
      const Loads loads = power_law(layer, ranks, std::stoll(row.at("tokens")), alpha_of(law),
                                    static_cast<std::uint64_t>(draw));
      const LayerTokens tokens = tokens_of(loads, ranks);
      ratios.push_back(products(setup, by_load(loads, ranks, slots), tokens) /
                       products(setup, in_order(layer, ranks), tokens));
    }
    predictions.push_back(
        prediction(fmt::format("{} ranks, {}, {} tokens, {} slots", ranks, law, row.at("tokens"), slots),
                   number(row, "ms") / without.at({row.at("ep"), law, row.at("tokens")}), ratios));
  }
  return predictions;
}

std::vector<Prediction> skewed_over_even(int draws) {
  const Layer layer{.element_bytes = 1};
  const std::vector<PublishedRow> rows = published_table("skew_h200_sglang.csv");
  const Machine machine = fp8_machine(rows, "uniform");
  std::map<std::pair<std::string, std::string>, double> even;  // (ranks, tokens) -> seconds
  for (const PublishedRow& row : rows)
    if (row.at("distribution") == "uniform")
      even[{row.at("ep"), row.at("tokens")}] = 1e-3 * number(row, "ms");
  const double memory = device_preset("h200").peak_memory_gigabytes_per_s * 1e9;
  const double expert_bytes = expert_work(layer.hidden, layer.intermediate, 3, 1).bytes;
  std::vector<Prediction> predictions;
  for (const PublishedRow& row : rows) {
    if (row.at("distribution") == "uniform") continue;
    const int ranks = std::stoi(row.at("ep"));
    const std::int64_t tokens = std::stoll(row.at("tokens"));
    double least = 1;
    for (const auto& [key, ms] : even)
      if (key.first == row.at("ep")) least = std::min(least, ms);
    if (least < layer.experts / ranks * expert_bytes / memory) continue;
    const SimSetup setup = setup_of(layer, ranks, machine);
    // The collector passes all ranks' tokens to its layer, which writes a bf16 row for each token.
    const double all_rows = static_cast<double>(tokens * layer.hidden) * 2 / machine.weight_bytes_per_second;
    const auto layer_seconds = [&](const Loads& loads) {
      return all_rows + products(setup, in_order(layer, ranks), tokens_of(loads, ranks));
    };
    const double evenly =
        layer_seconds(Loads(static_cast<std::size_t>(layer.experts), tokens * layer.top_k / layer.experts));
    std::vector<double> ratios;
    for (int draw = 0; draw < draws; ++draw)
      ratios.push_back(layer_seconds(power_law(layer, ranks, tokens, alpha_of(row.at("distribution")),
                                               static_cast<std::uint64_t>(draw))) /
                       evenly);
    predictions.push_back(
        prediction(fmt::format("{} ranks, {}, {} tokens", ranks, row.at("distribution"), tokens),
                   1e-3 * number(row, "ms") / even.at({row.at("ep"), row.at("tokens")}), ratios));
  }
  return predictions;
}

namespace {

// Measurements of LLEP's scenarios in docs/log/h200.md.
struct Measured {
  const char* scenario;
  double ep_ms, level_ms;
};
struct MeasuredModel {
  const char* name;
  Layer layer;
  std::int64_t tokens;  // per rank
  double tflops;        // of balanced products with 131,072 rows per rank
  double copy_gigabytes_per_s;
  Measured steps[4];
};
constexpr MeasuredModel kModels[] = {
    {"gpt-oss-120b",
     {2880, 2880, 128, 4},
     32768,
     609,
     3541,
     {{"balanced", 14.2, 14.3},
      {"concentrated:0.95:1", 95.5, 12.3},
      {"concentrated:0.95:4", 95.1, 14.2},
      {"concentrated:0.95:16", 94.9, 15.8}}},
    {"DeepSeek-V3",
     kDeepSeekV3,
     16384,
     636,
     3733,
     {{"balanced", 26.1, 26.8},
      {"concentrated:0.95:1", 167.7, 20.7},
      {"concentrated:0.95:4", 172.1, 25.1},
      {"concentrated:0.95:16", 173.3, 27.2}}},
    {"Kimi-K2",
     {7168, 2048, 384, 8},
     16384,
     604,
     3733,
     {{"balanced", 26.2, 26.4},
      {"concentrated:0.95:1", 173.6, 20.8},
      {"concentrated:0.95:4", 170.4, 25.5},
      {"concentrated:0.95:16", 171.5, 27.2}}},
};
constexpr int kRanks = 8;
constexpr double kLink = 450e9;

LayerTokens tokens_of(const Layer& layer, int ranks, std::int64_t tokens_of_rank, const char* scenario) {
  const Routing routing =
      make_routing(parse_workload(scenario), {ranks, tokens_of_rank, layer.experts, layer.top_k}, 1, 0);
  LayerTokens tokens;
  tokens.top_k = layer.top_k;
  tokens.first_token.assign(1, 0);
  tokens.counts.resize(ranks, layer.experts);
  for (RankId rank : indices<RankId>(ranks)) {
    const RankRouting& of_rank = routing.ranks[rank.offset()];
    tokens.first_token.push_back(tokens.first_token.back() + of_rank.num_tokens);
    tokens.experts.insert(tokens.experts.end(), of_rank.ids.begin(), of_rank.ids.end());
    for (const std::int32_t id : of_rank.ids)
      ++tokens.counts
            .rows()[rank.offset() * static_cast<std::size_t>(layer.experts) + static_cast<std::size_t>(id)];
  }
  tokens.counts.sum_loads();
  return tokens;
}

Machine machine_of(const MeasuredModel& model, Rates rates) {
  Machine machine = device_machine(device_preset("h200"));
  machine.link_bytes_per_second = machine.nic_bytes_per_second = kLink;
  if (rates == Rates::preset) return machine;
  machine.flops_per_second = model.tflops * 1e12;
  machine.weight_bytes_per_second = model.copy_gigabytes_per_s * 1e9;
  machine.overlap = 1;
  return machine;
}

}  // namespace

std::vector<Prediction> h200_steps(bool speedups, Rates rates) {
  std::vector<Prediction> predictions;
  for (const MeasuredModel& model : kModels) {
    const SimSetup setup = setup_of(model.layer, kRanks, machine_of(model, rates));
    for (const Measured& run : model.steps) {
      const LayerTokens tokens = tokens_of(model.layer, kRanks, model.tokens, run.scenario);
      const double ep = 1e3 * sum(step(setup, "ep", in_order(model.layer, kRanks), tokens));
      const double level = 1e3 * sum(step(setup, "level", in_order(model.layer, kRanks), tokens));
      const auto add = [&](const char* what, double measured, double predicted) {
        predictions.push_back(
            prediction(fmt::format("{}, {}{}", model.name, run.scenario, what), measured, {predicted}));
      };
      if (speedups) {
        add("", run.ep_ms / run.level_ms, ep / level);
      } else {
        add(", ep", run.ep_ms, ep);
        add(", level", run.level_ms, level);
      }
    }
  }
  return predictions;
}

std::vector<Prediction> cpu_speedups(bool backward) {
  struct Run {
    const char* scenario;
    double llep, level, level_with_backward;
  };
  constexpr Run kRuns[] = {{"balanced", 1.00, 1.00, 1.00},
                           {"concentrated:0.3:1", 2.79, 2.86, 2.89},
                           {"concentrated:0.3:4", 2.67, 2.75, 2.79},
                           {"concentrated:0.3:16", 2.25, 2.22, 2.25},
                           {"concentrated:0.5:1", 4.08, 4.15, 4.16},
                           {"concentrated:0.5:4", 4.07, 4.14, 4.10},
                           {"concentrated:0.5:16", 3.62, 3.65, 3.70},
                           {"concentrated:0.8:1", 6.06, 6.12, 6.19},
                           {"concentrated:0.8:4", 5.98, 6.16, 6.10},
                           {"concentrated:0.8:16", 5.79, 5.84, 5.89},
                           {"concentrated:0.95:1", 7.12, 7.16, 7.27},
                           {"concentrated:0.95:4", 6.95, 7.15, 6.84},
                           {"concentrated:0.95:16", 6.66, 6.81, 6.74},
                           {"concentrated:0.3:1:spread", 2.81, 2.85, 2.90},
                           {"concentrated:0.3:4:spread", 1.74, 1.75, 1.76},
                           {"concentrated:0.3:16:spread", 1.22, 1.21, 1.24},
                           {"concentrated:0.5:1:spread", 4.21, 4.22, 4.23},
                           {"concentrated:0.5:4:spread", 2.28, 2.32, 2.35},
                           {"concentrated:0.5:16:spread", 1.52, 1.54, 1.58},
                           {"concentrated:0.8:1:spread", 6.18, 6.19, 6.17},
                           {"concentrated:0.8:4:spread", 3.13, 3.17, 3.21},
                           {"concentrated:0.8:16:spread", 1.98, 2.03, 2.03},
                           {"concentrated:0.95:1:spread", 7.15, 7.16, 7.06},
                           {"concentrated:0.95:4:spread", 3.56, 3.57, 3.62},
                           {"concentrated:0.95:16:spread", 2.13, 2.21, 2.29}};
  const Layer layer{768, 768, 128, 4, 4};
  const SimSetup setup = setup_of(layer, kRanks, Machine{}, backward);
  std::vector<Prediction> predictions;
  for (const Run& run : kRuns) {
    const LayerTokens tokens = tokens_of(layer, kRanks, 2048, run.scenario);
    const auto seconds = [&](const char* method) {
      return sum(step(setup, method, in_order(layer, kRanks), tokens));
    };
    const double ep = seconds("ep");
    const auto add = [&](const char* method, double measured) {
      predictions.push_back(
          prediction(fmt::format("{}, {}", run.scenario, method), measured, {ep / seconds(method)}));
    };
    if (!backward) add("llep", run.llep);
    add("level", backward ? run.level_with_backward : run.level);
  }
  return predictions;
}

std::vector<Prediction> torch_speedups() {
  struct Run {
    const char* name;
    const char* scenario;
    bool backward;
    double speedups[2];
  };
  constexpr Run kRuns[] = {{"95 % into one, forward", "concentrated:0.95:1", false, {2.00, 1.94}},
                           {"95 % into one, with backward", "concentrated:0.95:1", true, {1.81, 2.06}},
                           {"balanced, forward", "balanced", false, {1.00, 1.07}},
                           {"balanced, with backward", "balanced", true, {1.05, 0.99}}};
  const Layer layer{768, 768, 32, 4, 4};
  constexpr int ranks = 2;
  std::vector<Prediction> predictions;
  for (const Run& run : kRuns) {
    SimSetup setup = setup_of(layer, ranks, Machine{}, run.backward);
    setup.planner.min_segment = 256;
    const LayerTokens tokens = tokens_of(layer, ranks, 2048, run.scenario);
    LayerTokens row_each = tokens;
    row_each.experts.clear();
    // If nothing moves, transformers' own all-to-all carries the step.
    const bool moves = std::string_view(run.scenario) != "balanced";
    LayerReplay stock(setup, parse_method("ep"), {in_order(layer, ranks)});
    LayerReplay ours(setup, parse_method("level"), {in_order(layer, ranks)});
    const double speedup = stock.run(0, row_each).seconds / ours.run(0, moves ? tokens : row_each).seconds;
    for (const double measured : run.speedups)
      predictions.push_back(prediction(run.name, measured, {speedup}));
  }
  return predictions;
}

std::vector<Prediction> shaped_link_speedups() {
  struct Run {
    const char* name;
    double busier_way_megabytes;
    double speedups[2];
  };
  struct Requests {
    double tokens_per_s;  // of contiguous homes under ep, mean of two runs
    double busier_way_megabytes;
    Run runs[5];
  };
  constexpr double kTokens = 2048, kLinkMegabytesPerS = 50.0 / 8;
  constexpr Requests kRequests[] = {{1519,
                                     6.85,
                                     {{"contiguous, level", 6.42, {0.99, 1.02}},
                                      {"contiguous, auto", 6.42, {0.99, 1.06}},
                                      {"placed, ep", 5.70, {1.14, 1.09}},
                                      {"placed, level", 5.86, {1.04, 1.09}},
                                      {"placed, auto", 5.70, {1.01, 1.07}}}},
                                    {1541,
                                     6.90,
                                     {{"by node: contiguous, level", 6.53, {1.01, 0.98}},
                                      {"by node: contiguous, auto", 6.54, {0.99, 1.03}},
                                      {"by node: placed, ep", 5.17, {1.29, 1.18}},
                                      {"by node: placed, level", 5.52, {1.16, 1.19}},
                                      {"by node: placed, auto", 5.17, {1.20, 1.15}}}}};
  std::vector<Prediction> predictions;
  for (const Requests& requests : kRequests) {
    const double whole = kTokens / requests.tokens_per_s;
    for (const Run& run : requests.runs) {
      const double spared = (requests.busier_way_megabytes - run.busier_way_megabytes) / kLinkMegabytesPerS;
      for (const double measured : run.speedups)
        predictions.push_back(prediction(run.name, measured, {whole / (whole - spared)}));
    }
  }
  return predictions;
}

std::vector<Prediction> llep_headlines() {
  constexpr double kPaper[] = {6.11, 5.13, 5.03};
  std::vector<Prediction> predictions;
  for (std::size_t i = 0; i < std::size(kModels); ++i) {
    const MeasuredModel& model = kModels[i];
    const LayerTokens tokens = tokens_of(model.layer, kRanks, model.tokens, "concentrated:0.95:1");
    const auto seconds = [&](const char* method) {
      const SimSetup setup = setup_of(model.layer, kRanks, machine_of(model, Rates::measured));
      LayerReplay replay(setup, parse_method(method), {in_order(model.layer, kRanks)});
      return replay.run(0, tokens).seconds;
    };
    predictions.push_back(prediction(fmt::format("LLEP over EP, {}", model.name), kPaper[i],
                                     {seconds("ep") / seconds("llep")}));
  }
  return predictions;
}

std::vector<Prediction> memfine_headlines() {
  // The largest expert load in each of layers 4 to 15.
  constexpr std::int64_t kLargest[] = {31702,  35313,  46104,  50780,  73130, 84049,
                                       119728, 126887, 105174, 121822, 93234, 129170};
  constexpr int ranks = 32;
  constexpr std::int64_t assignments = std::int64_t{ranks} * 4096 * 8;
  SimSetup setup = setup_of(kDeepSeekV3, preset_topology("4x8xh100"), device_machine(device_preset("h100")),
                            /*backward=*/true);
  setup.most_tokens = 4096;
  struct Step {
    double seconds = 0;
    std::int64_t peak = 0;
  };
  const auto train = [&](const ChunkRule& rule, std::optional<std::int64_t> budget) {
    setup.memory.recompute = Recompute::chunk;
    setup.memory.rule = rule;
    setup.budget = budget;
    LayerReplay replay(setup, parse_method(budget ? "ep+memfine" : "ep"), {in_order(kDeepSeekV3, ranks)});
    Step step;
    for (const std::int64_t largest : kLargest) {
      Loads loads(256, (assignments - largest) / 255);
      loads[0] = assignments - 255 * loads[1];
      const LayerOutcome& outcome = replay.run(0, tokens_of(loads, ranks));
      step.seconds += outcome.seconds;
      for (const Peaks& peak : outcome.peaks) step.peak = std::max(step.peak, peak.both());
    }
    return step;
  };
  const Step whole = train({ChunkRule::Kind::equal, 1}, {}), eighths = train({ChunkRule::Kind::equal, 8}, {}),
             halves = train({ChunkRule::Kind::equal, 2}, {});
  const Step chosen = train({}, halves.peak);
  const auto ratio = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  return {
      prediction("MemFine's peak, 8 chunks of 1", 3.7 / 22.9, {ratio(eighths.peak, whole.peak)}),
      prediction("MemFine's peak, MACT of 1 chunk", 11.9 / 22.9, {ratio(chosen.peak, whole.peak)}),
      prediction("MemFine's speed, 8 chunks over 1", 1332.1 / 1408.0, {whole.seconds / eighths.seconds}),
      prediction("MemFine's speed, MACT over 1 chunk", 1470.2 / 1408.0, {whole.seconds / chosen.seconds}),
      prediction("MemFine's speed, MACT over 8 chunks", 878.4 / 742.8, {eighths.seconds / chosen.seconds})};
}

}  // namespace evenkeel::published
