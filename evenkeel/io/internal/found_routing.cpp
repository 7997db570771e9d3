#include "evenkeel/io/internal/found_routing.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

// Bits of the total of scaled loads. Far below 63, so that profiles can be added up and multiplied.
constexpr int scaled_total_bits = 52;

// The exponent of the least power of two that makes `value` whole; 0 or less for whole numbers.
int fraction_bits(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // value = mantissa * 2^exponent, of 53 bits
  return 53 - std::countr_zero(static_cast<std::uint64_t>(std::ldexp(mantissa, 53))) - exponent;
}

}  // namespace

std::vector<std::int64_t> scaled_loads(std::span<const double> values, const std::string& file,
                                       const std::string& key, std::vector<std::string>& notes) {
  double total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || values[i] < 0)
      throw parse_error(file, key, "element {} is {}; a load is a number of at least 0", i, values[i]);
    total += values[i];
  }
  if (total >= 0x1p63) throw parse_error(file, key, "loads add up to {}, above 2^63-1", total);
  int bits = 0;
  for (double value : values) bits = std::max(bits, fraction_bits(value));
  int exponent = 0;
  if (bits > 0) {
    std::frexp(total, &exponent);  // total < 2^exponent
    exponent = std::min(bits, scaled_total_bits - exponent);
  }
  if (exponent != 0)
    notes.push_back(fmt::format("loads that are not whole numbers are scaled by 2^{}", exponent));
  std::vector<std::int64_t> loads;
  loads.reserve(values.size());
  for (double value : values) {
    const auto load = static_cast<std::int64_t>(std::nearbyint(std::ldexp(value, exponent)));
    loads.push_back(value > 0 ? std::max<std::int64_t>(load, 1) : load);
  }
  return loads;
}

FoundRouting found_counts(IntArray counts, const std::string& file, const std::string& key, CountRows rows) {
  std::vector<std::int64_t>& shape = counts.shape;
  if (shape.size() != 2 && shape.size() != 3)
    throw parse_error(file, key, "shape {} is neither [layers, experts] nor [steps, layers, experts]",
                      to_text(shape));
  const bool by_step = shape.size() == 3;
  if (!by_step) shape.insert(shape.begin(), 1);
  if (shape[0] < 1 || shape[1] < 1 || shape[2] < 1 || shape[1] > max_layers || shape[2] > max_trace_experts)
    throw parse_error(file, key, "shape {} ([{}layers, experts]); allowed: {}1..{} layers, 1..{} experts",
                      to_text(std::span(shape).subspan(by_step ? 0 : 1)), by_step ? "steps, " : "",
                      by_step ? "1 or more steps, " : "", max_layers, max_trace_experts);
  require_loads(counts.values, file, key);
  return {.kind = "counts",
          .format = {},
          .content = FoundCounts{.values = std::move(counts.values),
                                 .num_rows = static_cast<int>(shape[1]),
                                 .num_experts = static_cast<int>(shape[2]),
                                 .by_step = by_step,
                                 .rows = rows,
                                 .layers = {},
                                 .key = key}};
}

FoundRouting found_counts(const DoubleArray& counts, const std::string& file, const std::string& key,
                          CountRows rows) {
  std::vector<std::string> notes;
  IntArray loads{counts.shape, scaled_loads(counts.values, file, key, notes)};
  FoundRouting found = found_counts(std::move(loads), file, key, rows);
  found.notes = std::move(notes);
  return found;
}

FoundRouting found_tokens(TokenIds tokens, std::optional<int> num_experts, const std::string& file) {
  const std::size_t layers = tokens.layers.size();
  const std::size_t width = static_cast<std::size_t>(tokens.top_k);
  std::vector<bool> used_layer(layers, false);
  std::size_t used_width = 0;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.ids[i] == no_expert) continue;
    used_layer[i / width % layers] = true;
    used_width = std::max(used_width, i % width + 1);
  }
  if (used_width == 0) throw ParseError(file, "", "has no token with an expert");
  std::vector<std::int32_t> kept;
  for (std::size_t i = 0; i < tokens.ids.size(); ++i)
    if (used_layer[i / width % layers] && i % width < used_width) kept.push_back(tokens.ids[i]);
  std::vector<int> numbers;
  for (std::size_t l = 0; l < layers; ++l)
    if (used_layer[l]) numbers.push_back(tokens.layers[l]);
  const MemoryTrace::Shape shape{.num_layers = static_cast<int>(numbers.size()),
                                 .top_k = static_cast<int>(used_width),
                                 .num_experts = num_experts.value_or(0)};
  auto trace = std::make_unique<MemoryTrace>(shape, std::move(kept), std::vector<float>{},
                                             std::vector<std::int64_t>{}, file);
  trace->set_layers(LayerNumbers(std::move(numbers)));
  return {.kind = "trace", .format = {}, .content = FoundTrace{std::move(trace), std::move(tokens.steps)}};
}

void FoundRouting::set_axes(const std::string& new_axes, std::string_view what) {
  axes = new_axes;
  notes.insert(notes.begin(), fmt::format("read as {}{}: {}", what, new_axes, meaning_of(*this)));
}

std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

void require_dense_enough(std::int64_t numbers, std::int64_t steps, std::int64_t layers, std::int64_t experts,
                          const std::string& file) {
  if (steps * layers * experts > (std::int64_t{1} << 20) + 64 * numbers)
    throw parse_error(
        file, "", "has only {} numbers for {}{} of {}{}", numbers,
        steps > 1 ? counted(steps, "step") + " of " : "", counted(layers, "layer"),
        counted(experts, "expert"),
        steps > 1 ? "; add up several steps to one" : "; are the ids of layers and experts right?");
}

std::string meaning_of(const FoundRouting& found) {
  if (const auto* counts = std::get_if<FoundCounts>(&found.content)) {
    const std::int64_t of_step = std::int64_t{counts->num_rows} * counts->num_experts;
    return fmt::format("{}{} of {}",
                       counts->by_step ? counted(std::ssize(counts->values) / of_step, "step") + " of " : "",
                       counted(counts->num_rows, "layer"), counted(counts->num_experts, "expert"));
  }
  if (const auto* trace = std::get_if<FoundTrace>(&found.content)) {
    const TraceInfo& info = trace->reader->info();
    return fmt::format("{} of {}, {}, top-{}", counted(info.num_layers, "layer"),
                       counted(info.num_experts, "expert"), counted(info.num_tokens, "token"), info.top_k);
  }
  if (const auto* step = std::get_if<FoundStep>(&found.content))
    return fmt::format("{} of one step", counted(step->loads.shape.back(), "expert"));
  return "a profile";
}

}  // namespace evenkeel::internal
