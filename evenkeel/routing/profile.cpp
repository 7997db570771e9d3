#include "evenkeel/routing/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

constexpr std::int64_t most_counted = std::numeric_limits<std::int64_t>::max();

std::size_t transitions_size(int num_layers, int num_experts) {
  const std::size_t experts = static_cast<std::size_t>(num_experts);
  return static_cast<std::size_t>(num_layers - 1) * experts * experts;
}

void require_shape(int num_layers, int num_experts) {
  if (num_layers < 1) throw InvalidArgument("layers", fmt::format("{} layers", num_layers), "1 or more");
  if (num_experts < 1) throw InvalidArgument("experts", fmt::format("{} experts", num_experts), "1 or more");
}

[[noreturn]] void refuse_total(const char* what) {
  throw InvalidArgument(what, fmt::format("the total of {} is above 2^63-1", what), "at most 2^63-1");
}

std::int64_t total_of(std::span<const std::int64_t> numbers, const char* what) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < 0)
      throw InvalidArgument(what, fmt::format("element {} is {}", i, numbers[i]), "0 or more");
    if (__builtin_add_overflow(total, numbers[i], &total)) refuse_total(what);
  }
  return total;
}

// Throws if the sum of two profiles' totals would overflow.
void require_sum(const char* what, std::int64_t one, std::int64_t other) {
  if (other > most_counted - one)
    throw InvalidArgument(
        what, fmt::format("the totals of the added profiles, {} and {}, have a sum above 2^63-1", one, other),
        "at most 2^63-1 in all");
}

}  // namespace

RoutingProfile::RoutingProfile(int num_layers, int num_experts, bool with_transitions)
    : num_layers_(num_layers), num_experts_(num_experts), has_transitions_(with_transitions) {
  require_shape(num_layers, num_experts);
  loads_.assign(static_cast<std::size_t>(num_layers) * static_cast<std::size_t>(num_experts), 0);
  if (with_transitions) transitions_.assign(transitions_size(num_layers, num_experts), 0);
}

RoutingProfile::RoutingProfile(int num_layers, int num_experts, std::vector<std::int64_t> loads,
                               std::vector<std::int64_t> transitions)
    : num_layers_(num_layers),
      num_experts_(num_experts),
      loads_(std::move(loads)),
      transitions_(std::move(transitions)) {
  require_shape(num_layers, num_experts);
  const std::size_t cells = static_cast<std::size_t>(num_layers) * static_cast<std::size_t>(num_experts);
  const std::size_t pairs = transitions_size(num_layers, num_experts);
  if (loads_.size() != cells)
    throw InvalidArgument("loads", fmt::format("{} numbers", loads_.size()),
                          fmt::format("{} layers x {} experts", num_layers, num_experts));
  if (!transitions_.empty() && transitions_.size() != pairs)
    throw InvalidArgument("transitions", fmt::format("{} numbers", transitions_.size()),
                          fmt::format("{}, (layers - 1) x experts x experts, or none", pairs));
  has_transitions_ = transitions_.size() == pairs;
  total_load_ = total_of(loads_, "loads");
  total_transitions_ = total_of(transitions_, "transitions");
}

void RoutingProfile::set_layers(LayerNumbers layers) {
  if (layers.known() && std::ssize(layers.numbers()) != num_layers_)
    throw InvalidArgument("layers",
                          fmt::format("{} layer numbers for {} layers", layers.numbers().size(), num_layers_),
                          fmt::format("{} layers", num_layers_));
  layers_ = std::move(layers);
}

std::span<const std::int64_t> RoutingProfile::loads(LayerId layer) const {
  if (layer.value() < 0 || layer.value() >= num_layers_)
    throw InvalidArgument("layer", fmt::format("no layer {}", layer.value()),
                          fmt::format("0..{}", num_layers_ - 1));
  const std::size_t experts = static_cast<std::size_t>(num_experts_);
  return std::span(loads_).subspan(layer.offset() * experts, experts);
}

std::span<const std::int64_t> RoutingProfile::transitions(LayerId layer) const {
  if (!has_transitions_) throw InvalidArgument("transitions", "this profile has none");
  if (layer.value() < 0 || layer.value() >= num_layers_ - 1)
    throw InvalidArgument("layer", fmt::format("no transitions from layer {}", layer.value()),
                          fmt::format("0..{}", num_layers_ - 2));
  const std::size_t pairs = static_cast<std::size_t>(num_experts_) * static_cast<std::size_t>(num_experts_);
  return std::span(transitions_).subspan(layer.offset() * pairs, pairs);
}

std::int64_t RoutingProfile::total_load(LayerId layer) const {
  const auto of_layer = loads(layer);
  std::int64_t total = 0;
  for (std::int64_t load : of_layer) total += load;
  return total;
}

RoutingProfile RoutingProfile::without_transitions() const {
  RoutingProfile loads_alone(num_layers_, num_experts_, loads_, {});
  loads_alone.set_layers(layers_);
  return loads_alone;
}

void RoutingProfile::add(const RoutingProfile& other) {
  if (other.num_layers_ != num_layers_ || other.num_experts_ != num_experts_ ||
      (num_layers_ > 1 && other.has_transitions_ != has_transitions_))
    throw InvalidArgument(
        "profiles",
        fmt::format("{} layers of {} experts{} and {} layers of {} experts{} cannot be added", num_layers_,
                    num_experts_, has_transitions_ ? "" : " without transitions", other.num_layers_,
                    other.num_experts_, other.has_transitions_ ? "" : " without transitions"),
        other.num_layers_ == num_layers_ && other.num_experts_ == num_experts_
            ? "profiles of which all have transitions, or none"
            : "profiles of one model");
  if (layers_.known() && other.layers_.known() && layers_ != other.layers_)
    throw InvalidArgument(
        "profiles",
        fmt::format("layers {} and layers {} cannot be added", to_text(layers_), to_text(other.layers_)),
        "profiles of the same layers");
  require_sum("loads", total_load_, other.total_load_);
  require_sum("transitions", total_transitions_, other.total_transitions_);
  if (!layers_.known()) layers_ = other.layers_;
  for (std::size_t i = 0; i < loads_.size(); ++i) loads_[i] += other.loads_[i];
  for (std::size_t i = 0; i < transitions_.size(); ++i) transitions_[i] += other.transitions_[i];
  total_load_ += other.total_load_;
  total_transitions_ += other.total_transitions_;
}

void RoutingProfile::add_loads(std::span<const std::int32_t> of_token, std::size_t top_k) {
  const std::size_t experts = static_cast<std::size_t>(num_experts_);
  std::int64_t* of_layer = loads_.data();
  for (std::size_t at = 0; at < of_token.size(); at += top_k, of_layer += experts) {
    for (std::int32_t id : of_token.subspan(at, top_k)) {
      if (id == no_expert) continue;
      ++of_layer[id];
      ++total_load_;
    }
  }
}

void RoutingProfile::add_transitions(std::span<const std::int32_t> of_token, std::size_t top_k) {
  const std::size_t experts = static_cast<std::size_t>(num_experts_);
  std::int64_t* from_layer = transitions_.data();
  for (std::size_t at = 0; at + top_k < of_token.size(); at += top_k, from_layer += experts * experts) {
    for (std::int32_t from : of_token.subspan(at, top_k)) {
      if (from == no_expert) continue;
      std::int64_t* to_expert = from_layer + static_cast<std::size_t>(from) * experts;
      for (std::int32_t to : of_token.subspan(at + top_k, top_k)) {
        if (to == no_expert) continue;
        ++to_expert[to];
        ++total_transitions_;
      }
    }
  }
}

void RoutingProfile::add_tokens(std::span<const std::int32_t> ids, int top_k) {
  if (num_layers_ < 1)
    throw InvalidArgument("profile", "has no layers", "one that was made with layers and experts");
  const std::size_t k = static_cast<std::size_t>(std::max(top_k, 1));
  const std::size_t per_token = static_cast<std::size_t>(num_layers_) * k;
  if (top_k < 1 || ids.size() % per_token != 0)
    throw InvalidArgument("ids", fmt::format("{} ids of top-{}", ids.size(), top_k),
                          fmt::format("a multiple of {} layers x k, k >= 1", num_layers_));
  for (std::int32_t id : ids) {
    if (id < no_expert || id >= num_experts_)
      throw InvalidArgument("ids", fmt::format("expert id {}", id), fmt::format("-1..{}", num_experts_ - 1));
  }
  const std::int64_t assignments = static_cast<std::int64_t>(ids.size());
  if (assignments > most_counted - total_load_) refuse_total("loads");
  std::int64_t pairs = 0;
  if (__builtin_mul_overflow(assignments, std::int64_t{top_k}, &pairs) ||
      pairs > most_counted - total_transitions_)
    refuse_total("transitions");
  for (std::size_t at = 0; at < ids.size(); at += per_token) {
    add_loads(ids.subspan(at, per_token), k);
    if (has_transitions_) add_transitions(ids.subspan(at, per_token), k);
  }
}

RoutingProfile profile_trace(TraceReader& trace, const ProfileOptions& options) {
  const TraceInfo& info = trace.info();
  if (info.num_experts < 1)
    throw InvalidArgument("num_experts", fmt::format("{} does not say the number of experts", info.name),
                          "set_num_experts(), or a trace from open_trace()");
  const double bytes = 8.0 * (info.num_layers - 1) * info.num_experts * info.num_experts;
  if (options.transitions && bytes > static_cast<double>(options.max_transition_bytes))
    throw Unsupported(
        fmt::format("{}: transitions of {} layers of {} experts take {:.3g} GiB, more than the {} "
                    "allowed; profile without transitions, or allow more",
                    info.name, info.num_layers, info.num_experts, bytes / (1 << 30),
                    format_bytes(options.max_transition_bytes)));
  RoutingProfile profile(info.num_layers, info.num_experts, options.transitions);
  profile.set_layers(info.layers);
  for (TraceBatches batches(trace); batches.next();) profile.add_tokens(batches.ids(), info.top_k);
  return profile;
}

}  // namespace evenkeel
