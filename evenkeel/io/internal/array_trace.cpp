#include "evenkeel/io/internal/array_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

// In descending order.
constexpr std::array<std::int64_t, 3> fillers = {std::numeric_limits<std::uint32_t>::max(),
                                                 std::numeric_limits<std::uint16_t>::max(),
                                                 std::numeric_limits<std::uint8_t>::max()};

// Ids in an array that mean no expert.
struct NoExperts {
  std::vector<std::int64_t> fills = {};        // these ids never mean an expert
  std::optional<std::int64_t> whole_row = {};  // a row with this id k times has no expert
};

class ArrayTrace final : public TraceReader {
 public:
  ArrayTrace(TraceInfo info, std::unique_ptr<ArrayReader> ids, std::unique_ptr<ArrayReader> weights,
             NoExperts none)
      : TraceReader(std::move(info)),
        ids_(std::move(ids)),
        weights_(std::move(weights)),
        none_(std::move(none)) {}

 private:
  void fetch_ids(TokenRange range, std::span<std::int64_t> ids) override {
    ids_->read(range.begin * info().assignments_per_token(), ids);
    for (const std::int64_t fill : none_.fills) std::ranges::replace(ids, fill, std::int64_t{no_expert});
    if (!none_.whole_row) return;
    const auto k = static_cast<std::size_t>(info().top_k);
    for (std::size_t at = 0; at < ids.size(); at += k) {
      const auto row = ids.subspan(at, k);
      if (std::ranges::count(row, *none_.whole_row) == std::ssize(row))
        std::ranges::fill(row, std::int64_t{no_expert});
    }
  }

  void fetch_weights(TokenRange range, std::span<float> weights) override {
    weights_->read(range.begin * info().assignments_per_token(), weights);
  }

  std::unique_ptr<ArrayReader> ids_;
  std::unique_ptr<ArrayReader> weights_;
  NoExperts none_;
};

// Some layers of a trace, with their layer numbers. If the trace has no layer numbers, its rows count as
// hidden layers.
class LayersOfTrace final : public TraceReader {
 public:
  LayersOfTrace(std::unique_ptr<TraceReader> all, std::vector<int> rows)
      : TraceReader(info_of(all->info(), rows)), all_(std::move(all)), rows_(std::move(rows)) {}

 private:
  static TraceInfo info_of(TraceInfo info, const std::vector<int>& rows) {
    std::vector<int> numbers;
    for (const int row : rows) numbers.push_back(info.layers.number_of(row));
    info.num_layers = static_cast<int>(rows.size());
    info.layers = LayerNumbers(std::move(numbers));
    return info;
  }

  // Reads all layers and copies the selected ones.
  template <class Number, class Out>
  void fetch(TokenRange range, std::vector<Number>& whole, std::span<Out> out,
             void (TraceReader::*read)(TokenRange, std::span<Number>)) {
    const auto of_token = static_cast<std::size_t>(all_->info().assignments_per_token());
    const auto k = static_cast<std::size_t>(info().top_k);
    whole.resize(static_cast<std::size_t>(range.size()) * of_token);
    (all_.get()->*read)(range, whole);
    auto to = out.begin();
    for (std::size_t token = 0; token < whole.size(); token += of_token)
      for (const int row : rows_)
        to = std::copy_n(
            whole.begin() + static_cast<std::ptrdiff_t>(token + static_cast<std::size_t>(row) * k), k, to);
  }
  void fetch_ids(TokenRange range, std::span<std::int64_t> ids) override {
    fetch(range, ids_, ids, &TraceReader::read_ids);
  }
  void fetch_weights(TokenRange range, std::span<float> weights) override {
    fetch(range, weights_, weights, &TraceReader::read_weights);
  }

  std::unique_ptr<TraceReader> all_;
  std::vector<int> rows_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
};

// Finds entries of an array of ids that are not a router's choice. A row is a token's k experts in a layer.
//
// Cost  one pass over the array; O(elements x k) time, memory for a block and O(layers).
class IdRows {
 public:
  IdRows(ArrayReader& ids, const TraceInfo& info, bool literal, std::optional<int> num_experts)
      : info_(info),
        literal_(literal || num_experts == 1),
        stated_experts_(num_experts),
        layers_(static_cast<std::size_t>(info.num_layers)) {
    constexpr std::int64_t block_elements = std::int64_t{1} << 18;
    const std::int64_t of_token = info.assignments_per_token();
    const std::int64_t block = std::max<std::int64_t>(1, block_elements / of_token);
    const auto k = static_cast<std::size_t>(info.top_k);
    std::vector<std::int64_t> numbers;
    for (std::int64_t begin = 0; begin < info.num_tokens; begin += block) {
      numbers.resize(static_cast<std::size_t>(std::min(block, info.num_tokens - begin) * of_token));
      ids.read(begin * of_token, numbers);
      for (std::size_t row = 0; row * k < numbers.size(); ++row)
        take(std::span(numbers).subspan(row * k, k), layers_[row % layers_.size()]);
    }
    if (choices_ == 0 && !literal_ && info.num_tokens > 0)
      throw parse_error(
          info.name, "",
          "no token has two different ids, but a router chooses {} different experts for each token", k);
    if (doubled_ == 0) return;
    // Within one row a router never names an expert twice. If many rows do, the array has another order.
    const std::string what =
        fmt::format("{} of {} rows have an id twice, which no router does", doubled_, choices_);
    if (2 * doubled_ > choices_) refuse(what);
    notes_.push_back(what + ": the ids are kept as they are");
  }

  // Returns the layers that are not dense, or all layers if dense ones cannot be distinguished.
  std::vector<int> layers_with_experts() {
    const bool any = std::ranges::any_of(layers_, &Layer::has_choice);
    std::vector<int> kept, dense;
    for (std::size_t l = 0; l < layers_.size(); ++l)
      (any && is_dense(layers_[l]) ? dense : kept).push_back(static_cast<int>(l));
    if (!dense.empty())
      notes_.push_back(fmt::format(
          "layers {} hold one id throughout and are left out as dense ones; the others are the model's "
          "layers {}",
          to_text(LayerNumbers(std::move(dense))), to_text(LayerNumbers(kept))));
    return kept;
  }

  NoExperts without_expert(const std::vector<int>& layers) {
    NoExperts none{.fills = fills()};
    for (const std::int64_t fill : none.fills)
      notes_.push_back(fmt::format("id {} is read as padding, not as an expert", fill));
    UniformRows uniform;
    std::int64_t num_uniform = 0;
    for (const int l : layers) {
      const Layer& layer = layers_[static_cast<std::size_t>(l)];
      for (const auto& [id, rows] : layer.uniform_rows)
        if (std::ranges::find(none.fills, id) == none.fills.end()) uniform[id] += rows;
      num_uniform += layer.num_uniform;
      if (literal_) largest_ = std::max(largest_, layer.largest_uniform);
    }
    if (uniform.empty() || info_.top_k == 1) return none;
    if (literal_) {
      notes_.push_back(
          fmt::format("{} rows repeat one id {} times, which no router does: the ids are kept as they are",
                      num_uniform, info_.top_k));
      return none;
    }
    const auto& [id, rows] = *uniform.begin();
    if (uniform.size() > 1)
      refuse(fmt::format("some rows repeat one id {} times (id {} or {}), which no router does", info_.top_k,
                         id, uniform.rbegin()->first));
    none.whole_row = id;
    notes_.push_back(fmt::format(
        "{} rows repeat id {} {} times, which no router does: read as tokens without an expert in that layer",
        rows, id, info_.top_k));
    return none;
  }

  // The largest expert id, -1 if there is none. Valid after without_expert().
  std::int64_t largest() const { return largest_; }
  bool has_impossible_id() const { return has_impossible_id_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // The number of rows with one id k times, by id. Only the first few ids are kept (enough_ids).
  using UniformRows = std::map<std::int64_t, std::int64_t>;
  static constexpr std::size_t enough_ids = fillers.size() + 2;

  struct Layer {
    bool has_choice = false;  // a row has different ids
    UniformRows uniform_rows = {};
    std::int64_t num_uniform = 0;
    std::int64_t largest_uniform = -1;  // largest id of uniform rows that is not a filler
  };

  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidArgument("axes", fmt::format("{}: {}", info_.name, why),
                          "the true order of the dimensions, such as layers,tokens,k; if ids repeat on "
                          "purpose, name the array topk_ids");
  }

  static bool names_twice(std::span<const std::int64_t> row) {
    for (auto id = row.begin(); id != row.end(); ++id)
      if (std::find(row.begin(), id, *id) != id && *id != no_expert && !is_filler(*id)) return true;
    return false;
  }

  void take(std::span<const std::int64_t> row, Layer& layer) {
    const auto [least, most] = std::ranges::minmax(row);
    has_impossible_id_ =
        has_impossible_id_ || least < no_expert || (most >= max_trace_experts && !is_filler(most));
    if (least == most && least == no_expert) return;
    // With k = 1 a row is a choice even if it has one id. A zero may also come from a dense layer.
    if (least == most && (row.size() > 1 || least == 0)) {
      if (layer.uniform_rows.size() < enough_ids || layer.uniform_rows.contains(least) || is_filler(least))
        ++layer.uniform_rows[least];
      ++layer.num_uniform;
      if (!is_filler(least)) layer.largest_uniform = std::max(layer.largest_uniform, least);
      if (row.size() > 1) return;
    } else {
      layer.has_choice = true;
      if (!literal_ && names_twice(row)) ++doubled_;
    }
    ++choices_;
    for (const std::int64_t id : row)
      if ((id >= 0 && id < max_trace_experts) || is_filler(id)) chosen_[place_of(id)] = true;
  }

  bool is_dense(const Layer& layer) const {
    if (layer.has_choice) return false;
    if (layer.uniform_rows.empty()) return info_.num_tokens > 0;
    if (!literal_ && info_.top_k > 1) return true;
    return literal_ == (info_.top_k > 1) && layer.uniform_rows.size() == 1 && info_.num_tokens > 1;
  }

  // The index of an id in chosen_. The last index is that of the largest filler.
  static std::size_t place_of(std::int64_t id) {
    return static_cast<std::size_t>(std::min(id, max_trace_experts));
  }

  // The largest chosen id below `end`; -1 if there is none.
  std::int64_t largest_chosen_below(std::int64_t end) const {
    std::int64_t id = std::min(end, max_trace_experts) - 1;
    while (id >= 0 && !chosen_[place_of(id)]) --id;
    return id;
  }

  // The fillers that are padding, in descending order. A filler is padding if it is >= the given number of
  // experts, if all other ids are far below it, or if no row with different ids contains it. Without a given
  // number of experts, a filler close to the other ids is an expert.
  std::vector<std::int64_t> fills() {
    constexpr std::int64_t far_above = 16;
    std::vector<std::int64_t> found;
    largest_ = largest_chosen_below(max_trace_experts);
    for (const std::int64_t id : fillers) {
      const bool chosen = chosen_[place_of(id)];
      const bool met = chosen || std::ranges::any_of(layers_, [&](const Layer& layer) {
                         return layer.uniform_rows.contains(id);
                       });
      if (!met || id < largest_ || (stated_experts_ && id < *stated_experts_)) continue;
      const std::int64_t others = largest_chosen_below(id);
      if (!stated_experts_ && chosen && others >= id - far_above) break;
      if (!stated_experts_ && (!found.empty() || ((chosen || literal_) && others >= (id + 1) / 2)))
        throw InvalidArgument(
            "num_experts",
            fmt::format("{}: id {} may be an expert or padding: the other ids are at most {}{}", info_.name,
                        id, others,
                        found.empty() ? "" : fmt::format(", except the padding {}", found.back())),
            fmt::format("{} or more if id {} is an expert, {}..{} if it is padding", id + 1, id, others + 1,
                        id));
      found.push_back(id);
      largest_ = others;
    }
    return found;
  }

  const TraceInfo& info_;
  bool literal_;
  std::optional<int> stated_experts_;
  std::vector<Layer> layers_;
  std::vector<bool> chosen_ = std::vector<bool>(static_cast<std::size_t>(max_trace_experts) + 1, false);
  bool has_impossible_id_ = false;
  std::int64_t choices_ = 0;
  std::int64_t doubled_ = 0;  // choices that name an id twice, fillers not counted
  std::int64_t largest_ = -1;
  std::vector<std::string> notes_;
};

}  // namespace

bool is_filler(std::int64_t id) {
  return std::ranges::find(fillers, id) != fillers.end();
}

std::unique_ptr<TraceReader> layers_of_trace(std::unique_ptr<TraceReader> all, const LayerNumbers& layers) {
  return std::make_unique<LayersOfTrace>(std::move(all), layers.numbers());
}

void take_ids_shape(const std::vector<std::int64_t>& shape, const std::string& file, const std::string& key,
                    TraceInfo& info) {
  if (shape.size() != 2 && shape.size() != 3)
    throw parse_error(file, key, "shape {} is neither [tokens, layers, k] nor, for one layer, [tokens, k]",
                      to_text(shape));
  for (std::size_t i = 1; i < shape.size(); ++i)
    if (shape[i] > max_trace_assignments_per_token)
      throw parse_error(file, key, "shape {}: at most {} assignments a token are read", to_text(shape),
                        max_trace_assignments_per_token);
  if (shape.size() == 3 && shape[1] > max_layers)
    throw parse_error(file, key, "shape {}: at most {} layers are read", to_text(shape), max_layers);
  info.num_tokens = shape.front();
  info.num_layers = shape.size() == 3 ? static_cast<int>(shape[1]) : 1;
  info.top_k = static_cast<int>(shape.back());
}

std::unique_ptr<TraceReader> open_array_trace(TraceInfo info, std::unique_ptr<ArrayReader> ids,
                                              std::unique_ptr<ArrayReader> weights, IdsAre ids_are,
                                              std::optional<int> num_experts) {
  // Ids are checked only in the layers that are kept.
  const int stated = std::exchange(info.num_experts, 0);
  if (!num_experts && stated > 0) num_experts = stated;
  const std::int64_t of_token = info.assignments_per_token();
  const bool possible =
      of_token > 0 && of_token <= max_trace_assignments_per_token;  // else the constructor throws
  if (!possible || ids_are == IdsAre::as_written) {
    auto trace =
        std::make_unique<ArrayTrace>(std::move(info), std::move(ids), std::move(weights), NoExperts{});
    trace->set_num_experts(num_experts ? *num_experts : trace->largest_id_plus_one());
    return trace;
  }
  IdRows rows(*ids, info, ids_are == IdsAre::literal, num_experts);
  std::vector<int> kept = rows.layers_with_experts();
  NoExperts none = rows.without_expert(kept);
  info.notes = rows.notes();
  std::unique_ptr<TraceReader> trace =
      std::make_unique<ArrayTrace>(std::move(info), std::move(ids), std::move(weights), std::move(none));
  if (std::ssize(kept) < trace->info().num_layers)
    trace = std::make_unique<LayersOfTrace>(std::move(trace), std::move(kept));
  if (!num_experts && rows.has_impossible_id()) trace->largest_id_plus_one();  // throws at the first such id
  trace->set_num_experts(num_experts.value_or(std::max(static_cast<int>(rows.largest()) + 1, 1)));
  return trace;
}

}  // namespace evenkeel::internal
