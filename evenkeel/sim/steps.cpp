#include "evenkeel/sim/steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

constexpr std::size_t kBatches = 40;

// Cuts the tokens of a trace into steps of `tokens_per_step` tokens.
std::vector<TokenRange> windows(std::int64_t tokens, std::int64_t tokens_per_step) {
  std::vector<TokenRange> steps;
  for (std::int64_t begin = 0; begin + tokens_per_step <= tokens; begin += tokens_per_step)
    steps.push_back({begin, begin + tokens_per_step});
  return steps;
}

std::vector<TokenRange> token_ranges(const TraceInfo& info, const StepCut& cut) {
  if (cut.tokens && *cut.tokens > info.num_tokens)
    throw InvalidArgument("step_tokens",
                          fmt::format("{}, but {} has {} tokens", *cut.tokens, info.name, info.num_tokens),
                          fmt::format("1..{}", info.num_tokens));
  if (cut.tokens) return windows(info.num_tokens, *cut.tokens);
  const std::vector<TokenRange> sequences = sequences_of(info);
  if (sequences.size() < kBatches)
    return windows(info.num_tokens, std::max<std::int64_t>(info.num_tokens / std::int64_t{kBatches}, 1));
  std::vector<TokenRange> steps;
  for (std::size_t i = 0; i < kBatches; ++i)
    steps.push_back({sequences[i * sequences.size() / kBatches].begin,
                     sequences[(i + 1) * sequences.size() / kBatches - 1].end});
  return steps;
}

class TraceSteps final : public StepSource {
 public:
  TraceSteps(TraceReader& trace, GroupShape shape, const StepCut& cut)
      : trace_(trace), shape_(shape), steps_(token_ranges(trace.info(), cut)) {
    const TraceInfo& info = trace.info();
    num_layers_ = info.num_layers;
    num_experts_ = info.num_experts;
    num_steps_ = static_cast<int>(steps_.size());
    top_k_ = cut.top_k.value_or(info.top_k);
    if (*top_k_ > info.top_k)
      throw InvalidArgument("top_k",
                            fmt::format("{}, but {} has {} experts a token", *top_k_, info.name, info.top_k),
                            fmt::format("1..{}", info.top_k));
    const std::int64_t ranks = std::int64_t{shape.ranks} * shape.groups;
    std::int64_t tokens = 0;
    for (const TokenRange& step : steps_) {
      tokens += step.size();
      most_tokens_ = std::max(most_tokens_, (step.size() + ranks - 1) / ranks);
    }
    tokens_left_out_ = info.num_tokens - tokens;
    assignments_per_step_ = static_cast<double>(tokens * *top_k_) / num_steps_;
  }

  int independent_parts(int begin, int end) const override {
    if (trace_.info().sequence_offsets.empty()) return 1;
    const auto first = static_cast<std::size_t>(begin), last = static_cast<std::size_t>(end) - 1;
    return static_cast<int>(
        std::ranges::count_if(sequences_of(trace_.info()), [&](const TokenRange& sequence) {
          return sequence.begin >= steps_[first].begin && sequence.end <= steps_[last].end;
        }));
  }

  void open(int step) override {
    const TokenRange range = steps_[static_cast<std::size_t>(step)];
    tokens_ = range.size();
    read_.resize(static_cast<std::size_t>(tokens_ * trace_.info().assignments_per_token()));
    trace_.read_ids(range, read_);
  }

  void read(int layer, int group, LayerTokens& tokens) override {
    const auto k = static_cast<std::size_t>(*top_k_);
    const auto stride = static_cast<std::size_t>(trace_.info().assignments_per_token());
    const std::int64_t all = std::int64_t{shape_.ranks} * shape_.groups;
    const std::int64_t first_rank = std::int64_t{group} * shape_.ranks;
    const std::int64_t begin = tokens_ * first_rank / all;
    tokens.top_k = *top_k_;
    tokens.first_token.clear();
    for (std::int64_t r = 0; r <= shape_.ranks; ++r)
      tokens.first_token.push_back(tokens_ * (first_rank + r) / all - begin);
    tokens.experts.resize(static_cast<std::size_t>(tokens.first_token.back()) * k);
    tokens.counts.resize(shape_.ranks, num_experts_);
    const std::int32_t* from = read_.data() + static_cast<std::size_t>(begin) * stride +
                               static_cast<std::size_t>(layer * trace_.info().top_k);
    std::int32_t* to = tokens.experts.data();
    const auto experts = static_cast<std::size_t>(num_experts_);
    for (RankId rank : indices<RankId>(shape_.ranks)) {
      std::int64_t* const row = tokens.counts.rows().data() + rank.offset() * experts;
      for (std::int64_t t = tokens.tokens_of(rank); t > 0; --t, from += stride)
        for (std::size_t i = 0; i < k; ++i) {
          *to++ = from[i];
          if (from[i] >= 0) ++row[from[i]];
        }
    }
    tokens.counts.sum_loads();
  }

  RoutingProfile profile(int begin, int end, bool transitions) override {
    RoutingProfile sum(num_layers_, num_experts_, transitions);
    for (int step = begin; step < end; ++step)
      for (TraceBatches batches(trace_, steps_[static_cast<std::size_t>(step)]); batches.next();)
        sum.add_tokens(first_of_each(batches.ids()), *top_k_);
    return sum;
  }

 private:
  // Keeps only the first *top_k_ experts of each token.
  std::span<const std::int32_t> first_of_each(std::span<const std::int32_t> ids) {
    const auto all = static_cast<std::size_t>(trace_.info().top_k), k = static_cast<std::size_t>(*top_k_);
    if (k == all) return ids;
    counted_.clear();
    for (std::size_t at = 0; at < ids.size(); at += all)
      counted_.insert(counted_.end(), ids.begin() + static_cast<std::ptrdiff_t>(at),
                      ids.begin() + static_cast<std::ptrdiff_t>(at + k));
    return counted_;
  }

  TraceReader& trace_;
  GroupShape shape_;
  std::vector<TokenRange> steps_;
  std::vector<std::int32_t> counted_;
  std::vector<std::int32_t> read_;  // [tokens, layers, k] of the open step
  std::int64_t tokens_ = 0;
};

// Steps whose loads are assumed to come evenly from all ranks. If an expert's load is not divisible by the
// number of ranks, the remainder is given out one by one to consecutive ranks. The next expert's remainder
// continues with the ranks after these.
class LoadSteps final : public StepSource {
 public:
  LoadSteps(std::span<const RoutingProfile> steps, GroupShape shape, std::optional<int> top_k)
      : steps_(steps), shape_(shape), k_(top_k.value_or(1)) {
    num_layers_ = steps.front().num_layers();
    num_experts_ = steps.front().num_experts();
    num_steps_ = static_cast<int>(steps.size());
    top_k_ = top_k;
    const std::int64_t ranks = std::int64_t{shape.ranks} * shape.groups;
    for (const RoutingProfile& step : steps)
      for (LayerId layer : indices<LayerId>(num_layers_)) {
        const std::int64_t load = step.total_load(layer);
        assignments_per_step_ += static_cast<double>(load) / num_layers_ / num_steps_;
        most_tokens_ = std::max(most_tokens_, ((load + ranks - 1) / ranks + k_ - 1) / k_);
      }
  }

  int independent_parts(int begin, int end) const override { return end - begin; }

  void open(int step) override { open_ = &steps_[static_cast<std::size_t>(step)]; }

  void read(int layer, int group, LayerTokens& tokens) override {
    const auto all = static_cast<std::int64_t>(shape_.ranks) * shape_.groups;
    const std::int64_t first = std::int64_t{group} * shape_.ranks;
    const auto experts = static_cast<std::size_t>(num_experts_);
    const auto loads = open_->loads(LayerId(layer));
    tokens.top_k = k_;
    tokens.experts.clear();
    tokens.counts.resize(shape_.ranks, num_experts_);
    const auto rows = tokens.counts.rows();
    const auto of_rank = [&](std::size_t e, std::int64_t rank) {
      const std::int64_t behind = rank - remainder_begin_[e];
      return even_share_[e] + ((behind < 0 ? behind + all : behind) < remainder_[e] ? 1 : 0);
    };
    split_over_ranks(loads, all);
    for (std::int64_t r = 0; r < shape_.ranks; ++r) {
      std::int64_t* const row = rows.data() + static_cast<std::size_t>(r) * experts;
      for (std::size_t e = 0; e < experts; ++e) row[e] = of_rank(e, first + r);
    }
    tokens.counts.sum_loads();
    tokens.first_token.assign(1, 0);
    for (RankId rank : indices<RankId>(shape_.ranks)) {
      std::int64_t sum = 0;
      for (const std::int64_t count : tokens.counts.row(rank)) sum += count;
      tokens.first_token.push_back(tokens.first_token.back() + (sum + k_ - 1) / k_);
    }
  }

  RoutingProfile profile(int begin, int end, bool) override {
    RoutingProfile sum(num_layers_, num_experts_, false);
    for (int step = begin; step < end; ++step)
      sum.add(steps_[static_cast<std::size_t>(step)].without_transitions());
    return sum;
  }

 private:
  // For each expert, sets the load from every rank, the remainder, and the first rank that gets one of the
  // remainder.
  void split_over_ranks(std::span<const std::int64_t> loads, std::int64_t all) {
    even_share_.clear();
    remainder_.clear();
    remainder_begin_.clear();
    std::int64_t next = 0;
    for (const std::int64_t load : loads) {
      even_share_.push_back(load / all);
      remainder_.push_back(load % all);
      remainder_begin_.push_back(next);
      next = (next + remainder_.back()) % all;
    }
  }

  std::span<const RoutingProfile> steps_;
  GroupShape shape_;
  int k_;
  const RoutingProfile* open_ = nullptr;
  std::vector<std::int64_t> even_share_, remainder_, remainder_begin_;
};

}  // namespace

std::int64_t LayerTokens::most_tokens() const {
  std::int64_t most = 0;
  for (RankId rank : indices<RankId>(num_ranks())) most = std::max(most, tokens_of(rank));
  return most;
}

GroupShape group_shape(int num_ranks, int num_experts) {
  int ranks = std::min(num_ranks, num_experts);
  while (num_ranks % ranks != 0) --ranks;
  return {ranks, num_ranks / ranks};
}

namespace {

std::unique_ptr<StepSource> steps_of_one(const Recording& recording, GroupShape shape, const StepCut& cut) {
  std::unique_ptr<StepSource> steps;
  if (recording.trace) {
    steps = std::make_unique<TraceSteps>(*recording.trace, shape, cut);
  } else {
    const int experts = recording.num_experts();
    if (cut.top_k && *cut.top_k > experts)
      throw InvalidArgument("top_k",
                            fmt::format("{}, but {} has {} experts", *cut.top_k, recording.name, experts),
                            fmt::format("1..{}", experts));
    if (cut.tokens)
      throw InvalidArgument("step_tokens",
                            fmt::format("{} has loads, already divided into steps", recording.name),
                            "a trace, or to leave it out");
    const std::span<const RoutingProfile> own = recording.steps;
    steps =
        std::make_unique<LoadSteps>(own.empty() ? std::span(&recording.profile, 1) : own, shape, cut.top_k);
  }
  if (steps->num_steps() == 0 || steps->assignments_per_step() <= 0)
    throw ParseError(recording.name, "", "has no assignments");
  return steps;
}

// Several recordings, one after the other.
class JoinedSteps final : public StepSource {
 public:
  explicit JoinedSteps(std::vector<std::unique_ptr<StepSource>> parts) : parts_(std::move(parts)) {
    const StepSource& first = *parts_.front();
    num_layers_ = first.num_layers();
    num_experts_ = first.num_experts();
    top_k_ = first.top_k();
    for (const auto& part : parts_) {
      begins_.push_back(num_steps_);
      num_steps_ += part->num_steps();
      most_tokens_ = std::max(most_tokens_, part->most_tokens());
      tokens_left_out_ += part->tokens_left_out();
      assignments_per_step_ += part->assignments_per_step() * part->num_steps();
    }
    assignments_per_step_ /= num_steps_;
  }

  int independent_parts(int begin, int end) const override {
    int sum = 0;
    for_parts(begin, end,
              [&](const StepSource& part, int from, int to) { sum += part.independent_parts(from, to); });
    return sum;
  }
  void open(int step) override {
    open_ = static_cast<std::size_t>(std::ranges::upper_bound(begins_, step) - begins_.begin()) - 1;
    parts_[open_]->open(step - begins_[open_]);
  }
  void read(int layer, int group, LayerTokens& tokens) override { parts_[open_]->read(layer, group, tokens); }
  RoutingProfile profile(int begin, int end, bool transitions) override {
    std::optional<RoutingProfile> sum;
    for_parts(begin, end, [&](StepSource& part, int from, int to) {
      RoutingProfile more = part.profile(from, to, transitions);
      if (sum)
        sum->add(more);
      else
        sum = std::move(more);
    });
    return *std::move(sum);
  }

 private:
  template <class Use>
  void for_parts(int begin, int end, const Use& use) const {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const int from = std::max(begin - begins_[i], 0),
                to = std::min(end - begins_[i], parts_[i]->num_steps());
      if (from < to) use(*parts_[i], from, to);
    }
  }

  std::vector<std::unique_ptr<StepSource>> parts_;
  std::vector<int> begins_;
  std::size_t open_ = 0;
};

void require_one_model(const std::string& first, const StepSource& a, const std::string& other,
                       const StepSource& b) {
  if (a.num_layers() == b.num_layers() && a.num_experts() == b.num_experts() && a.top_k() == b.top_k())
    return;
  const auto what_it_has = [](const std::string& name, const StepSource& steps) {
    return fmt::format("{} has {} layers of {} experts{}", name, steps.num_layers(), steps.num_experts(),
                       steps.top_k() ? fmt::format(", {} a token", *steps.top_k()) : "");
  };
  throw InvalidArgument("recordings", fmt::format("{}, but {}", what_it_has(other, b), what_it_has(first, a)),
                        "recordings with equal numbers of layers, experts and experts a token");
}

}  // namespace

std::unique_ptr<StepSource> steps_of(std::span<const Recording> recordings, GroupShape shape,
                                     const StepCut& cut) {
  std::vector<std::unique_ptr<StepSource>> parts;
  for (const Recording& each : recordings) {
    parts.push_back(steps_of_one(each, shape, cut));
    require_one_model(recordings.front().name, *parts.front(), each.name, *parts.back());
  }
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<JoinedSteps>(std::move(parts));
}

}  // namespace evenkeel
