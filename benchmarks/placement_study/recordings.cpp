#include "benchmarks/placement_study/recordings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "evenkeel/placement/evaluate/evaluate.h"
#include "evenkeel/placement/place.h"

namespace evenkeel::study {

namespace {

constexpr std::int64_t kStepTokens = 1024;
constexpr int kRanks = 8;

// A kind of text. Placements are made from half of its sequences and judged on the other half.
struct Kind {
  RoutingProfile seen;
  RoutingProfile judged;
  RoutingProfile all;
  std::vector<RoutingProfile> steps = {};
};

RoutingProfile profile_of(const Recording& recording) {
  MemoryTrace trace = recording.trace();
  return profile_trace(trace, {.transitions = false});
}

std::vector<Kind> kinds_of(const Recording& recording, int parts) {
  std::vector<Kind> kinds;
  const int each = recording.num_sequences() / parts;
  for (int i = 0; i < parts; ++i) {
    const Recording part = every(recording, i * each, 1, (i + 1) * each);
    Kind kind{.seen = profile_of(every(part, 0, 2, each)),
              .judged = profile_of(every(part, 1, 2, each)),
              .all = profile_of(part)};
    for (const Recording& window : windows(part, kStepTokens)) kind.steps.push_back(profile_of(window));
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

// One row of the table: means over all `add()` calls.
class Row {
 public:
  void add(const std::vector<const Kind*>& made_from, const Kind& left_out, const Placement& placement) {
    const Topology topology = Topology::uniform(1, kRanks);
    double seen = 0;
    double other = 0;
    for (const Kind* kind : made_from) {
      seen = std::max(seen, placement_quality(kind->seen, topology, placement).max_over_mean_mean);
      other = std::max(other, placement_quality(kind->judged, topology, placement).max_over_mean_mean);
    }
    const RecordingJudgement out = judge(left_out.all, left_out.steps, topology, placement);
    for (const double value :
         {seen, other, out.quality.max_over_mean_mean, out.steps->median, out.steps->p95})
      sums_[column_++ % 5] += value;
    ++count_;
  }
  void print(const std::string& name) const {
    fmt::print("| {} |", name);
    for (double sum : sums_) fmt::print(" {:.3f} |", sum / count_);
    fmt::print("\n");
  }

 private:
  double sums_[5] = {};
  std::size_t column_ = 0;
  int count_ = 0;
};

Placement placed(const std::vector<const Kind*>& kinds, int copies, PlaceOptions::Across across) {
  std::vector<RoutingProfile> recordings;
  for (const Kind* kind : kinds) recordings.push_back(kind->seen);
  PlaceOptions options;
  options.redundant_experts = copies;
  options.across = across;
  return place(recordings, Topology::uniform(1, kRanks), options).placement;
}

void print_table(const std::vector<Kind>& kinds, int copies) {
  Row contiguous;
  Row single;
  Row sum;
  Row robust;
  for (const Kind& left_out : kinds) {
    std::vector<const Kind*> others;
    for (const Kind& kind : kinds)
      if (&kind != &left_out) others.push_back(&kind);
    contiguous.add(others, left_out,
                   Placement::contiguous(left_out.all.num_layers(), left_out.all.num_experts(), kRanks));
    for (const Kind* one : others)
      single.add(others, left_out, placed({one}, copies, PlaceOptions::Across::sum));
    sum.add(others, left_out, placed(others, copies, PlaceOptions::Across::sum));
    robust.add(others, left_out, placed(others, copies, PlaceOptions::Across::worst));
  }
  fmt::print(
      "{} copies\n\n| placed from | those kinds, same sequences: worst | other sequences: worst | "
      "kind left out | its steps: median | 95 % |\n|---|---|---|---|---|---|\n",
      copies == 0 ? "No" : fmt::format("{}", copies));
  contiguous.print("contiguous");
  single.print("one kind");
  sum.print("the sum of all others");
  robust.print("all others at once");
  fmt::print("\n");
}

}  // namespace

void study_recordings(const Recording& recording, int parts) {
  const std::vector<Kind> kinds = kinds_of(recording, parts);
  for (const int copies : {0, kRanks, 2 * kRanks}) print_table(kinds, copies);
}

}  // namespace evenkeel::study
