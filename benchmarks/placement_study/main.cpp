// The tables of docs/placement-study.md: how placements perform on routing that they were not made from.
//
//   placement_study halves TRACE [DROP]       places from every second sequence, judges on the others
//   placement_study tokens TRACE [DROP]       the same, placed from fewer and fewer tokens
//   placement_study domains TRACE NAME...     cuts equal parts, one for each name; places from every part,
//                                             judges on every part
//   placement_study steps TRACE...            places from every trace, judges on every trace
//   placement_study recordings TRACE PARTS [DROP]   cuts equal parts; places from one of them, from the sum
//                                                   of several, or from several at once
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/placement_study/judge.h"
#include "benchmarks/placement_study/methods.h"
#include "benchmarks/placement_study/recording.h"
#include "benchmarks/placement_study/recordings.h"
#include "evenkeel/base/error.h"

namespace evenkeel::study {

namespace {

constexpr std::int64_t kWindow = 4096;
// The time of an assignment of gpt-oss-20b at 400 TFLOP/s, and the bytes of its bf16 row.
constexpr PlacementCost kCost{.assignment_us = 0.124, .assignment_bytes = 5760};
constexpr Link kNvlink{.gigabytes_per_s = 450, .latency_us = 0};
constexpr Link kInfiniband{.gigabytes_per_s = 50, .latency_us = 0};

Topology nodes_of(int ranks, int nodes) {
  return Topology::uniform(nodes, ranks / nodes, kNvlink, kInfiniband);
}

// The value, and its difference from the first row's value if there is one.
std::string beside(double value, double first, int decimals) {
  const double change = std::round(100 * (value / first - 1));
  return fmt::format("{:.{}f}", value, decimals) + (change == 0 ? "" : fmt::format(" ({:+.0f} %)", change));
}

// Judges each placement on two kinds of parts; each cell has the figure of the first kind, then that of the
// second.
void print_verdicts(const std::vector<Method>& methods, const std::vector<std::vector<Recording>>& kinds,
                    const Setting& setting) {
  const bool has_nodes = setting.topology.num_nodes() > 1;
  fmt::print(
      "| placement | max/mean | crossing |{} worst pair | ms a layer | spilled | transfers "
      "|\n{}|---|---|---|---|---|---|---|\n",
      has_nodes ? " across nodes |" : "", has_nodes ? "|---" : "");
  std::vector<Verdict> first;
  for (const Method& method : methods) {
    std::vector<Verdict> verdicts;
    for (const auto& parts : kinds) verdicts.push_back(judge(parts, method.placement, setting));
    if (first.empty()) first = verdicts;
    const auto cell = [&](auto text) {
      std::string both;
      for (std::size_t i = 0; i < verdicts.size(); ++i)
        both += (i > 0 ? "; " : "") + text(verdicts[i], first[i]);
      return both;
    };
    const auto share = [&](double Verdict::*member) {
      return cell([=](const Verdict& v, const Verdict&) { return fmt::format("{:.1f} %", 100 * v.*member); });
    };
    const auto change = [&](double Verdict::*member, double scale, int decimals) {
      return cell([=](const Verdict& v, const Verdict& to) {
        return beside(scale * v.*member, scale * to.*member, decimals);
      });
    };
    fmt::print(
        "| {} | {} | {} |{} {} | {} | {} | {} |\n", method.name, change(&Verdict::max_over_mean, 1, 2),
        share(&Verdict::crossing), has_nodes ? fmt::format(" {} |", share(&Verdict::across_nodes)) : "",
        change(&Verdict::worst_pair, 100, 2), change(&Verdict::predicted_ms, 1, 3), share(&Verdict::spilled),
        cell([](const Verdict& v, const Verdict&) { return fmt::format("{:.1f}", v.transfers); }));
  }
  fmt::print("\n");
}

void study_halves(const Recording& recording) {
  const Recording seen = every(recording, 0, 2, recording.num_sequences());
  const Recording other = every(recording, 1, 2, recording.num_sequences());
  const std::vector<Recording> parts = windows(other, kWindow);
  for (int ranks : {4, 8})
    for (int nodes : {1, 2})
      for (TrafficModel traffic : {TrafficModel::layer_to_layer, TrafficModel::dispatch_combine}) {
        const Topology topology = nodes_of(ranks, nodes);
        const Setting setting{topology, traffic, kCost};
        const std::vector<Method> methods = all_methods(seen, setting);
        const std::string title =
            fmt::format("{} ranks, {} node{}, {}", ranks, nodes, nodes > 1 ? "s" : "",
                        traffic == TrafficModel::layer_to_layer ? "layer-to-layer" : "dispatch-combine");
        fmt::print("### {}\n\n", title);
        print_verdicts(methods, {{other}, parts}, setting);
      }
}

void study_tokens(const Recording& recording) {
  const Recording seen = every(recording, 0, 2, recording.num_sequences());
  const Recording other = every(recording, 1, 2, recording.num_sequences());
  const Recording mixed = shuffled(seen, 1);
  const Topology topology = nodes_of(8, 1);
  const Setting setting{topology, TrafficModel::layer_to_layer, kCost};
  const auto verdict = [&](const Placement& placement) { return judge({other}, placement, setting); };
  const auto print = [](const std::string& name, const Verdict& a, const Verdict& b) {
    fmt::print("| {} | {:.3f} | {:.1f} % | {:.3f} | {:.1f} % |\n", name, a.max_over_mean, 100 * a.crossing,
               b.max_over_mean, 100 * b.crossing);
  };
  fmt::print(
      "| tokens | max/mean, as recorded | crossing | max/mean, sequences shuffled | crossing |\n"
      "|---|---|---|---|---|\n");
  const Verdict contiguous =
      verdict(Placement::contiguous(seen.num_layers, seen.num_experts, topology.num_ranks()));
  print("contiguous", contiguous, contiguous);
  for (std::int64_t tokens = 256; tokens < 2 * seen.num_tokens(); tokens *= 2) {
    const std::int64_t taken = std::min(tokens, seen.num_tokens());
    print(fmt::format("{}", taken), verdict(place_two_stage(first_tokens(seen, taken), setting)),
          verdict(place_two_stage(first_tokens(mixed, taken), setting)));
  }
}

struct Part {
  std::string name;
  Recording seen;
  Recording judged;
};

// Places from the even sequences and judges on the odd ones, so that a part has no advantage on itself.
Part halved(std::string name, const Recording& recording) {
  return {std::move(name), every(recording, 0, 2, recording.num_sequences()),
          every(recording, 1, 2, recording.num_sequences())};
}

void study_parts(const std::vector<Part>& parts) {
  const Topology topology = nodes_of(8, 1);
  const Setting setting{topology, TrafficModel::layer_to_layer, kCost};
  for (const bool balance : {true, false}) {
    fmt::print("{}\n\n| placed from \\ judged on |", balance ? "Max/mean" : "Crossing, %");
    for (const Part& part : parts) fmt::print(" {} |", part.name);
    fmt::print("\n|---|");
    for (std::size_t i = 0; i < parts.size(); ++i) fmt::print("---|");
    const auto row = [&](const std::string& name, const Placement& placement) {
      fmt::print("\n| {} |", name);
      for (const Part& part : parts) {
        const Verdict v = judge({part.judged}, placement, setting);
        fmt::print(" {:.{}f} |", balance ? v.max_over_mean : 100 * v.crossing, balance ? 3 : 1);
      }
    };
    row("contiguous",
        Placement::contiguous(parts[0].seen.num_layers, parts[0].seen.num_experts, topology.num_ranks()));
    for (const Part& part : parts) row(part.name, place_two_stage(part.seen, setting));
    fmt::print("\n\n");
  }
}

void study_domains(const Recording& recording, const std::vector<std::string>& names) {
  std::vector<Part> parts;
  const int each = recording.num_sequences() / static_cast<int>(names.size());
  for (int i = 0; i < static_cast<int>(names.size()); ++i)
    parts.push_back(
        halved(names[static_cast<std::size_t>(i)], every(recording, i * each, 1, (i + 1) * each)));
  parts.push_back(halved("all", recording));
  study_parts(parts);
}

// The name of "routing_step50.npz" is "step 50".
std::string name_of(const std::string& path) {
  const std::string stem = std::filesystem::path(path).stem();
  const std::string_view prefix = "routing_step";
  return stem.starts_with(prefix) ? "step " + stem.substr(prefix.size()) : stem;
}

void study_steps(const std::vector<std::string>& traces) {
  std::vector<Part> parts;
  for (const std::string& path : traces) parts.push_back(halved(name_of(path), read_recording(path, 0)));
  study_parts(parts);
}

int run(const std::vector<std::string>& words) {
  if (words.size() < 2) {
    fmt::print(stderr,
               "usage: placement_study halves|tokens TRACE [DROP] | domains TRACE NAME... | "
               "steps TRACE... | recordings TRACE PARTS [DROP]\n");
    return 2;
  }
  const std::vector<std::string> rest(words.begin() + 2, words.end());
  const std::int64_t dropped = rest.empty() ? 0 : std::atoll(rest[0].c_str());
  if (words[0] == "halves") study_halves(read_recording(words[1], dropped));
  if (words[0] == "tokens") study_tokens(read_recording(words[1], dropped));
  if (words[0] == "domains") study_domains(read_recording(words[1], 0), rest);
  if (words[0] == "recordings" && !rest.empty())
    study_recordings(read_recording(words[1], rest.size() > 1 ? std::atoll(rest[1].c_str()) : 0),
                     std::max(std::atoi(rest[0].c_str()), 2));
  if (words[0] == "steps") study_steps({words.begin() + 1, words.end()});
  return 0;
}

}  // namespace

}  // namespace evenkeel::study

int main(int argc, char** argv) {
  try {
    return evenkeel::study::run({argv + 1, argv + argc});
  } catch (const evenkeel::Error& error) {
    fmt::print(stderr, "placement_study: {}\n", error.what());
    return 3;
  }
}
