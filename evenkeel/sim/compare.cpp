#include "evenkeel/sim/compare.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/evaluate/blocks.h"
#include "evenkeel/sim/gathered_layer.h"
#include "evenkeel/sim/homes.h"
#include "evenkeel/sim/internal/break_even.h"

namespace evenkeel {

namespace {

constexpr int kMostRuns = 64;  // a heat map averages the steps into at most this many columns

// Bytes of the new copies when experts move from `before` to `after`: [P, P], sent by their owners.
std::vector<double> moved_bytes(const std::vector<LayerPlacement>& before,
                                const std::vector<LayerPlacement>& after, double expert_bytes) {
  const auto ranks = static_cast<std::size_t>(before.front().num_ranks());
  std::vector<double> bytes(ranks * ranks);
  for (std::size_t layer = 0; layer < before.size(); ++layer)
    for (ExpertId expert : indices<ExpertId>(before[layer].num_experts()))
      for (RankId to : after[layer].homes(expert))
        if (!before[layer].is_home(expert, to))
          bytes[before[layer].owner(expert).offset() * ranks + to.offset()] += expert_bytes;
  return bytes;
}

// Bytes of copies over all layers, on the rank that has the most.
double copy_bytes(const std::vector<LayerPlacement>& homes, double expert_bytes) {
  std::vector<int> copies(static_cast<std::size_t>(homes.front().num_ranks()));
  for (const LayerPlacement& layer : homes)
    for (RankId rank : indices<RankId>(copies.size())) copies[rank.offset()] += layer.num_copies(rank);
  return std::ranges::max(copies) * expert_bytes;
}

// Replays one method over all steps. Each group of ranks has its own replay, because it has its own slots.
class MethodRun {
 public:
  MethodRun(const SimSetup& setup, const GroupShape& shape, const Method& method,
            const std::vector<LayerPlacement>& homes, int num_steps)
      : setup_(setup), num_steps_(num_steps) {
    result_.method = method;
    const std::size_t layers = homes.size();
    const auto ranks = static_cast<std::size_t>(shape.ranks);
    result_.pair_bytes.assign(static_cast<std::size_t>(shape.groups), std::vector<double>(ranks * ranks));
    result_.heat.assign(layers,
                        std::vector<double>(static_cast<std::size_t>(std::min(num_steps, kMostRuns))));
    rank_loads_.resize(ranks * static_cast<std::size_t>(shape.groups));
    for (RankId from : indices<RankId>(ranks))
      for (RankId to : indices<RankId>(ranks)) within_.push_back(setup.topology.same_node(from, to) ? 1 : 0);
    if (setup.layer) result_.copy_bytes = copy_bytes(homes, setup.layer->sizes.sent_weight_bytes);
    if (method.fsdp) {
      if (!setup.layer || !setup.machine)
        throw InvalidArgument("methods", "fsdp needs sizes and rates",
                              "fsdp with a model and a machine, or other methods");
      gathered_.emplace(setup);
    } else {
      for (int group = 0; group < shape.groups; ++group) replays_.emplace_back(setup, method, homes);
    }
  }

  void begin_step() {
    step_ = {};
    step_.max_over_mean = 0;
    assignments_ = recomputed_ = 0;
    std::ranges::fill(rank_loads_, 0.0);
  }
  void begin_layer() {
    layer_seconds_ = 0;
    layer_parts_ = {};
    layer_most_ = layer_total_ = 0;
  }
  // `pictured` is the step's number if this layer is to be drawn, otherwise empty.
  void run(int layer, int group, const LayerTokens& tokens, std::optional<int> pictured);
  void end_layer(int layer, int step);
  void end_step();
  // Adds the cost of moving experts to new homes to the next step.
  void move_to(const std::vector<LayerPlacement>& homes, StepFigures& next) const;
  void place(const std::vector<LayerPlacement>& homes) {
    for (LayerReplay& replay : replays_) replay.place(homes);
  }

  MethodResult& result() { return result_; }
  StepFigures& step() { return step_; }

 private:
  void add_loads(const LayerTokens& tokens, const LayerOutcome& outcome, int group);
  void take_picture(int step, int layer, const LayerOutcome& outcome);

  const SimSetup& setup_;
  int num_steps_;
  MethodResult result_;
  std::deque<LayerReplay> replays_;  // one for each group
  std::optional<GatheredLayer> gathered_;
  std::vector<double> within_;  // [P, P] 1 if the two ranks are on one node, otherwise 0
  StepFigures step_;
  std::vector<double> rank_loads_;  // of the ranks of all groups, summed over the layers of the step
  std::int64_t assignments_ = 0, recomputed_ = 0;
  double layer_seconds_ = 0;
  PhaseSeconds layer_parts_{};
  std::int64_t layer_most_ = 0, layer_total_ = 0;
};

void MethodRun::run(int layer, int group, const LayerTokens& tokens, std::optional<int> pictured) {
  const LayerOutcome& outcome =
      gathered_ ? gathered_->run(tokens)
                : replays_[static_cast<std::size_t>(group)].run(layer, tokens, pictured.has_value());
  if (pictured && !gathered_) take_picture(*pictured, layer, outcome);
  add_loads(tokens, outcome, group);
  if (outcome.seconds >= layer_seconds_) {
    layer_seconds_ = outcome.seconds;
    layer_parts_ = outcome.parts;
  }
  step_.transfers += std::ssize(outcome.sent);
  step_.rows += outcome.rows;
  step_.chunks = std::max(step_.chunks, static_cast<int>(outcome.chunks.size()));
  step_.layers_as_planned += outcome.reason == StepReason::as_planned;
  step_.layers_given_up +=
      outcome.reason != StepReason::as_planned && outcome.reason != StepReason::nothing_moves;
  step_.weight_bytes += outcome.moved.weights;
  assignments_ += tokens.counts.total();
  recomputed_ += outcome.recomputed;
  for (const Peaks& peak : outcome.peaks) step_.peak_bytes = std::max(step_.peak_bytes, peak.both());
  if (outcome.pair_bytes.empty()) return;
  const std::vector<double>& bytes = outcome.pair_bytes;
  auto& pairs = result_.pair_bytes[static_cast<std::size_t>(group)];
  for (std::size_t i = 0; i < bytes.size(); ++i) pairs[i] += bytes[i];
  const double within = std::transform_reduce(bytes.begin(), bytes.end(), within_.begin(), 0.0);
  step_.bytes_within += within;
  step_.bytes_across += std::reduce(bytes.begin(), bytes.end()) - within;
}

void MethodRun::add_loads(const LayerTokens& tokens, const LayerOutcome& outcome, int group) {
  const auto first = static_cast<std::size_t>(group) * static_cast<std::size_t>(tokens.num_ranks());
  for (RankId rank : indices<RankId>(tokens.num_ranks())) {
    std::int64_t load = 0;
    if (gathered_)
      for (const std::int64_t count : tokens.counts.row(rank)) load += count;
    else
      load = outcome.plan.rank_loads()[rank.offset()];
    rank_loads_[first + rank.offset()] += static_cast<double>(load);
    layer_most_ = std::max(layer_most_, load);
    layer_total_ += load;
  }
}

void MethodRun::end_layer(int layer, int step) {
  const double level = layer_total_ == 0
                           ? 1
                           : static_cast<double>(layer_most_) * static_cast<double>(rank_loads_.size()) /
                                 static_cast<double>(layer_total_);
  const auto layers = static_cast<double>(result_.heat.size());
  step_.max_over_mean += level / layers;
  step_.seconds += layer_seconds_;
  for (std::size_t phase = 0; phase < kSimPhases; ++phase) step_.parts[phase] += layer_parts_[phase];
  auto& runs = result_.heat[static_cast<std::size_t>(layer)];
  const auto count = static_cast<std::int64_t>(runs.size());
  const std::int64_t run = step * count / num_steps_;
  const std::int64_t steps_of_run =
      ((run + 1) * num_steps_ + count - 1) / count - (run * num_steps_ + count - 1) / count;
  runs[static_cast<std::size_t>(run)] += level / static_cast<double>(steps_of_run);
}

void MethodRun::end_step() {
  const double mean = mean_of(rank_loads_);
  for (double& load : rank_loads_) load = mean > 0 ? load / mean : 1;
  std::ranges::sort(rank_loads_);
  step_.load_least = rank_loads_.front();
  step_.load_median = quantile(rank_loads_, 0.5);
  step_.load_p95 = quantile(rank_loads_, 0.95);
  step_.load_most = rank_loads_.back();
  step_.recomputed =
      assignments_ > 0 ? static_cast<double>(recomputed_) / static_cast<double>(assignments_) : 0;
  result_.steps.push_back(step_);
}

void MethodRun::move_to(const std::vector<LayerPlacement>& homes, StepFigures& next) const {
  if (!setup_.layer) return;
  std::vector<LayerPlacement> before;
  for (std::size_t layer = 0; layer < homes.size(); ++layer)
    before.push_back(replays_.front().homes(static_cast<int>(layer)));
  const std::vector<double> bytes = moved_bytes(before, homes, setup_.layer->sizes.sent_weight_bytes);
  next.moved_bytes = std::accumulate(bytes.begin(), bytes.end(), 0.0) * static_cast<double>(replays_.size());
  if (!setup_.machine) return;
  const double seconds = exchange_seconds(*setup_.machine, setup_.topology, bytes);
  next.seconds += seconds;
  next.moving_seconds = seconds;
  next.parts[static_cast<std::size_t>(SimPhase::wait)] += seconds;
}

// The picture shows the first group.
void MethodRun::take_picture(int step, int layer, const LayerOutcome& outcome) {
  const LayerPlacement& homes = replays_.front().homes(layer);
  const auto ranks = static_cast<std::size_t>(outcome.plan.num_ranks());
  PlanPicture& picture = result_.picture;
  picture.step = step;
  picture.layer = layer;
  picture.at.assign(ranks * ranks, 0);
  for (ExpertId expert : indices<ExpertId>(outcome.plan.num_experts()))
    for (const Segment& segment : outcome.plan.segments(expert))
      picture.at[segment.rank.offset() * ranks + homes.owner(expert).offset()] += segment.size();
  picture.transfers = outcome.sent;
  picture.spans = setup_.machine ? outcome.spans : std::vector<PhaseSpan>{};
  picture.fullest = outcome.fullest;
}

// Finds the layer and step that are least even under plain EP.
class LeastEven {
 public:
  LeastEven(int num_experts, int num_ranks)
      : homes_(LayerPlacement::contiguous(num_experts, num_ranks)),
        loads_(static_cast<std::size_t>(num_ranks)) {}

  bool is_exceeded_by(const LayerTokens& tokens) {
    if (tokens.counts.total() == 0) return false;
    std::ranges::fill(loads_, 0);
    for (ExpertId expert : indices<ExpertId>(homes_.num_experts()))
      loads_[homes_.owner(expert).offset()] += tokens.counts.load(expert);
    const double level =
        static_cast<double>(std::ranges::max(loads_)) / static_cast<double>(tokens.counts.total());
    if (level <= level_) return false;
    level_ = level;
    return true;
  }

 private:
  LayerPlacement homes_;
  std::vector<std::int64_t> loads_;
  double level_ = 0;
};

}  // namespace

Comparison compare(StepSource& steps, const GroupShape& shape, const SimSetup& setup,
                   const CompareOptions& options, StepSource* place_from, const SimProgress& progress) {
  Comparison all;
  all.first_judged = options.first_judged;
  all.num_steps = steps.num_steps() - options.first_judged;
  all.has_bytes = setup.layer.has_value();
  all.has_seconds = setup.layer && setup.machine;
  all.shape = shape;
  all.place_every = options.place_every;
  all.independent_parts = steps.independent_parts(options.first_judged, steps.num_steps());
  all.same_data = place_from == nullptr && options.first_judged == 0;
  all.backward = setup.backward;
  StepSource& source = place_from == nullptr ? steps : *place_from;
  const int placed_end = place_from != nullptr || all.same_data ? source.num_steps() : options.first_judged;

  std::vector<std::vector<LayerPlacement>> homes;
  std::vector<std::unique_ptr<MethodRun>> runs;
  for (const Method& method : options.methods) {
    homes.push_back(homes_for(method, source, 0, placed_end, setup.topology));
    runs.push_back(std::make_unique<MethodRun>(setup, shape, method, homes.back(), all.num_steps));
  }
  LeastEven least_even(steps.num_experts(), shape.ranks);
  LayerTokens tokens;
  std::int64_t assignments = 0, all_tokens = 0;
  for (int i = 0; i < all.num_steps; ++i) {
    const int step = options.first_judged + i;
    const bool renews = options.place_every && i > 0 && i % *options.place_every == 0;
    for (std::size_t m = 0; m < runs.size(); ++m) {
      runs[m]->begin_step();
      if (!renews || !options.methods[m].renews) continue;
      homes[m] = homes_for(options.methods[m], steps, step - *options.place_every, step, setup.topology);
      runs[m]->move_to(homes[m], runs[m]->step());
      runs[m]->place(homes[m]);
    }
    steps.open(step);
    for (int layer = 0; layer < steps.num_layers(); ++layer) {
      for (auto& run : runs) run->begin_layer();
      for (int group = 0; group < shape.groups; ++group) {
        steps.read(layer, group, tokens);
        assignments += tokens.counts.total();
        if (tokens.has_tokens()) all_tokens += tokens.first_token.back();
        const bool is_pictured = group == 0 && least_even.is_exceeded_by(tokens);
        for (auto& run : runs)
          run->run(layer, group, tokens, is_pictured ? std::optional(step) : std::nullopt);
      }
      for (auto& run : runs) run->end_layer(layer, i);
    }
    for (auto& run : runs) run->end_step();
    if (progress) progress(i + 1, all.num_steps);
  }
  if (assignments == 0)
    throw InvalidArgument("recordings", "have no assignments in the steps that are judged",
                          "a recording with tokens in these steps");
  const double layer_steps = static_cast<double>(all.num_steps) * steps.num_layers();
  all.assignments_per_step = static_cast<double>(assignments) / layer_steps;
  all.tokens_per_step = all_tokens > 0 ? static_cast<double>(all_tokens) / layer_steps
                                       : all.assignments_per_step / steps.top_k().value_or(1);
  for (auto& run : runs) all.methods.push_back(std::move(run->result()));
  if (!all.has_seconds) return all;
  const auto tokens_needed = internal::break_even_tokens(steps, shape, setup, options, homes);
  for (std::size_t m = 0; m < runs.size(); ++m) all.methods[m].break_even_tokens = tokens_needed[m];
  return all;
}

}  // namespace evenkeel
