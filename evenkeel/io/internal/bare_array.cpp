#include "evenkeel/io/internal/bare_array.h"

#include <fmt/format.h>

#include <span>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/id_rows.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel::internal {

namespace {

// Far above every model known, on which evidence rests; more is read where somebody says what it is.
constexpr std::int64_t most_top_k = 64;
constexpr std::int64_t most_layers = 256;
constexpr std::int64_t most_experts = 4096;
// Maps of several moments, one behind the other.
constexpr std::int64_t most_stacked_maps = 16;
constexpr std::int64_t many_experts = 512;
// From so many numbers on, a row is more likely all of a small model's experts than a top-k.
constexpr std::int64_t many_for_top_k = 16;

[[noreturn]] void ask(const std::vector<std::int64_t>& shape, const std::string& file) {
  throw InvalidArgument(
      "as",
      fmt::format("{}: {} numbers may be counts of {} layers, or the expert ids of {} tokens in one layer",
                  file, to_text(shape), shape[0], shape[0]),
      "say which (counts or trace), or name the array 'counts' or 'topk_ids' in an npz");
}

[[noreturn]] void ask_of_steps(const std::vector<std::int64_t>& shape, const std::string& file) {
  throw InvalidArgument(
      "as",
      fmt::format(
          "{}: {} numbers may be counts of {} steps, [steps, layers, experts], or the expert ids of {} "
          "tokens, [tokens, layers, k]",
          file, to_text(shape), shape[0], shape[0]),
      "say which (counts or trace), or name the array 'counts' or 'topk_ids' in an npz");
}

// More rows than layers, and larger numbers than expert ids.
[[noreturn]] void ask_about_order(const std::vector<std::int64_t>& shape, std::int64_t most,
                                  const std::string& file) {
  throw InvalidArgument(
      "as",
      fmt::format("{}: {} numbers are more rows than any model has layers, and the number {} is above any "
                  "model's expert ids",
                  file, to_text(shape), most),
      "counts [layers, experts] or [steps, layers, experts], so a row of steps of one layer as [steps, 1, "
      "experts] and a transposed array turned back; or counts or trace, to have it read as it stands");
}

// A map of physical experts would pass for counts of experts that hardly anybody chose.
void require_no_expert_map(ArrayReader& array, const std::string& file) {
  std::vector<std::int64_t> shape = array.info().shape;
  if (shape.size() == 3 && shape[0] <= most_stacked_maps && shape[0] * shape[1] > 1)
    shape = {shape[0] * shape[1], shape[2]};
  if (shape.size() != 2 || shape[0] > most_layers || shape[1] > 2 * most_experts) return;
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(array.info().num_elements));
  array.read(0, std::span(numbers));
  if (looks_like_expert_map(shape, numbers)) ask_about_expert_map(shape, file);
}

class Evidence {
 public:
  Evidence(const IdRows& rows, const std::vector<std::int64_t>& shape, const RoutingOptions& options)
      : rows_(rows), shape_(shape), num_experts_(options.num_experts) {}

  bool cannot_be_counts() const {
    return rows_.least < 0 || has_too_many_layers() || (num_experts_ && *num_experts_ != shape_.back());
  }
  bool cannot_be_ids() const {
    return has_too_large_ids() || (shape_.size() == 3 && shape_[1] > most_layers);
  }
  // Too many layers for counts and too large for ids, in no order that is met.
  bool contradicts_itself() const {
    return rows_.least >= 0 && has_too_many_layers() && has_too_large_ids() &&
           (!num_experts_ || *num_experts_ == shape_.back());
  }
  // More experts than any model that is known today.
  bool has_rare_ids() const { return !num_experts_ && largest_id() >= many_experts; }
  bool looks_like_counts() const {
    return rows_.equal_sums || (shape_.back() >= many_for_top_k && 4 * rows_.repeated > rows_.chosen_rows());
  }

 private:
  // If they are counts.
  bool has_too_many_layers() const { return shape_[shape_.size() - 2] > most_layers; }
  // If they are ids.
  bool has_too_large_ids() const {
    return largest_id() >= num_experts_.value_or(static_cast<int>(most_experts));
  }
  std::int64_t largest_id() const {
    std::int64_t largest = rows_.most_chosen;
    for (std::size_t i = fillers.size(); i-- > 0;) {
      const std::int64_t others = rows_.of_filler[i].chosen_below;
      const bool fills = others < (num_experts_ ? *num_experts_ : (fillers[i] + 1) / 2);
      // Which of several fills places, is for the trace to ask.
      const bool may_fill = fills || is_filler(others);
      if (largest == fillers[i] && may_fill) largest = others;
    }
    return largest;
  }

  const IdRows& rows_;
  const std::vector<std::int64_t>& shape_;
  std::optional<int> num_experts_;
};

}  // namespace

bool looks_like_expert_map(std::span<const std::int64_t> shape, std::span<const std::int64_t> values) {
  if (shape.size() != 2 || shape[1] < 2 || values.empty()) return false;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (*least != 0 || *most < 1 || *most >= shape[1]) return false;
  const std::int64_t experts = *most + 1;
  std::vector<std::int64_t> seen_in(static_cast<std::size_t>(experts), -1);
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < shape[1]; ++i) {
      const std::int64_t id = values[static_cast<std::size_t>(row * shape[1] + i)];
      std::int64_t& seen = seen_in[static_cast<std::size_t>(id)];
      found += seen == row ? 0 : 1;
      seen = row;
    }
    if (found != experts) return false;
  }
  return true;
}

void ask_about_expert_map(std::span<const std::int64_t> shape, const std::string& file) {
  throw InvalidArgument(
      "as",
      fmt::format(
          "{}: every row of the {} numbers has every id from 0 on, as a placement has, a map of physical "
          "experts; they may also be counts of {} layers",
          file, to_text(shape), shape[0]),
      "counts; for a placement save it as {'physical_to_logical_map': tensor} instead");
}

BareArray bare_array_kind(ArrayReader& array, const RoutingOptions& options, const std::string& file,
                          std::optional<BareArray> where_open) {
  const std::vector<std::int64_t>& shape = array.info().shape;
  if (options.bare == RoutingOptions::Bare::counts) return BareArray::counts;
  if (options.bare == RoutingOptions::Bare::trace) return BareArray::ids;
  if (shape.size() != 2 && shape.size() != 3)
    throw parse_error(file, array.info().name,
                      "shape {} is neither counts, [layers, experts] or [steps, layers, experts], nor ids, "
                      "[tokens, layers, k] or [tokens, k]",
                      to_text(shape));
  if (is_floating(array.info().dtype)) return BareArray::counts;
  require_no_expert_map(array, file);
  if (shape.back() > most_top_k) return BareArray::counts;
  if (array.info().num_elements == 0) return where_open.value_or(BareArray::ids);
  const std::int64_t layers = shape.size() == 3 ? shape[1] : 1;
  if (layers * shape.back() > max_trace_assignments_per_token)
    return BareArray::ids;  // which is refused as a trace
  const IdRows rows = look_at_rows(array, shape[0], layers, shape.back());
  const Evidence evidence(rows, shape, options);
  if (evidence.contradicts_itself()) ask_about_order(shape, rows.most, file);
  if (evidence.cannot_be_counts()) return BareArray::ids;
  if (evidence.cannot_be_ids() || evidence.looks_like_counts()) return BareArray::counts;
  if (shape.size() == 3 && (where_open || evidence.has_rare_ids())) ask_of_steps(shape, file);
  if (shape.size() == 3) return BareArray::ids;
  if (where_open) return *where_open;
  ask(shape, file);
}

void require_layer_order(const std::vector<std::int64_t>& shape, const std::string& file,
                         const std::string& key) {
  if (shape.size() != 3 || shape[1] <= most_layers || shape[0] > most_layers) return;
  throw parse_error(file, key,
                    "shape {} has {} layers in the middle, more than any model; is it [layers, tokens or "
                    "steps, ...]? Save it with its first two dimensions exchanged (numpy: swapaxes(0, 1))",
                    to_text(shape), shape[1]);
}

}  // namespace evenkeel::internal
