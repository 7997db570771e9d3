#include "evenkeel/io/internal/array_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/id_rows.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

// Of tokens [layers, k] each, the rows of some layers.
template <class Number, class Out>
void copy_layers(std::span<const Number> whole, std::int64_t num_layers, int k,
                 const std::vector<int>& layers, std::span<Out> kept) {
  const auto row = static_cast<std::size_t>(k);
  const std::size_t of_token = static_cast<std::size_t>(num_layers) * row;
  auto out = kept.begin();
  for (std::size_t token = 0; token < whole.size(); token += of_token)
    for (int layer : layers)
      out = std::ranges::copy(whole.subspan(token + static_cast<std::size_t>(layer) * row, row), out).out;
}

class ArrayTrace final : public TraceReader {
 public:
  ArrayTrace(TraceInfo info, std::int64_t layers_in_array, RowRules rules, std::unique_ptr<ArrayReader> ids,
             std::unique_ptr<ArrayReader> weights)
      : TraceReader(std::move(info)),
        layers_in_array_(layers_in_array),
        of_token_(layers_in_array * this->info().top_k),
        rules_(std::move(rules)),
        ids_(std::move(ids)),
        weights_(std::move(weights)) {}

 private:
  bool is_whole() const { return of_token_ == info().assignments_per_token(); }

  void fetch_ids(TokenRange range, std::span<std::int64_t> ids) override {
    if (is_whole()) {
      ids_->read(range.begin * of_token_, ids);
    } else {
      whole_ids_.resize(static_cast<std::size_t>(range.size() * of_token_));
      ids_->read(range.begin * of_token_, whole_ids_);
      copy_layers<std::int64_t>(whole_ids_, layers_in_array_, info().top_k, rules_.layers, ids);
    }
    if (rules_.blank_tokens_are_absent || !rules_.fills.empty()) blank_what_fills(ids);
  }

  void fetch_weights(TokenRange range, std::span<float> weights) override {
    if (is_whole()) return weights_->read(range.begin * of_token_, weights);
    whole_weights_.resize(static_cast<std::size_t>(range.size() * of_token_));
    weights_->read(range.begin * of_token_, whole_weights_);
    copy_layers<float>(whole_weights_, layers_in_array_, info().top_k, rules_.layers, weights);
  }

  // [tokens, kept layers, k]
  void blank_what_fills(std::span<std::int64_t> ids) const {
    const auto of_token = static_cast<std::size_t>(info().assignments_per_token());
    const bool may_be_blank = rules_.blank_tokens_are_absent && info().top_k > 1 && of_token_ > info().top_k;
    for (std::size_t at = 0; may_be_blank && at < ids.size(); at += of_token) {
      const auto token = ids.subspan(at, of_token);
      if (std::ranges::all_of(token, [&](std::int64_t id) { return id == token.front(); }))
        std::ranges::fill(token, std::int64_t{no_expert});
    }
    const auto k = static_cast<std::size_t>(info().top_k);
    for (std::size_t at = 0; rules_.no_choice && at < ids.size(); at += k) {
      const auto row = ids.subspan(at, k);
      if (std::ranges::all_of(row, [&](std::int64_t id) { return id == *rules_.no_choice; }))
        std::ranges::fill(row, std::int64_t{no_expert});
    }
    for (const std::int64_t fill : rules_.fills) std::ranges::replace(ids, fill, std::int64_t{no_expert});
  }

  std::int64_t layers_in_array_;
  std::int64_t of_token_;  // numbers of a token in the arrays
  RowRules rules_;
  std::unique_ptr<ArrayReader> ids_;
  std::unique_ptr<ArrayReader> weights_;
  std::vector<std::int64_t> whole_ids_;
  std::vector<float> whole_weights_;
};

// Of the layers that are kept the model's numbers: known where others were left out, or where the file says
// them.
LayerNumbers kept_numbers(const TraceInfo& info, const RowRules& rules) {
  if (std::ssize(rules.layers) == info.num_layers) return info.layers;
  std::vector<int> numbers;
  for (int layer : rules.layers) numbers.push_back(info.layers.number_of(layer));
  return LayerNumbers(std::move(numbers));
}

RowRules all_rows(int num_layers) {
  RowRules rules;
  rules.layers.resize(static_cast<std::size_t>(num_layers));
  std::iota(rules.layers.begin(), rules.layers.end(), 0);
  return rules;
}

class LayersOfTrace final : public TraceReader {
 public:
  LayersOfTrace(std::unique_ptr<TraceReader> all, const LayerNumbers& layers)
      : TraceReader(info_of(all->info(), layers)), all_(std::move(all)) {}

 private:
  static TraceInfo info_of(TraceInfo info, const LayerNumbers& layers) {
    info.num_layers = static_cast<int>(layers.numbers().size());
    info.layers = layers;
    return info;
  }

  template <class Number, class Out>
  void take_layers(std::span<const Number> whole, std::span<Out> kept) const {
    copy_layers<Number, Out>(whole, all_->info().num_layers, info().top_k, info().layers.numbers(), kept);
  }

  std::size_t size_of(TokenRange range) const {
    return static_cast<std::size_t>(range.size() * all_->info().assignments_per_token());
  }

  void fetch_ids(TokenRange range, std::span<std::int64_t> ids) override {
    ids_.resize(size_of(range));
    all_->read_ids(range, ids_);
    take_layers<std::int32_t, std::int64_t>(ids_, ids);
  }
  void fetch_weights(TokenRange range, std::span<float> weights) override {
    weights_.resize(size_of(range));
    all_->read_weights(range, weights_);
    take_layers<float, float>(weights_, weights);
  }

  std::unique_ptr<TraceReader> all_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
};

}  // namespace

std::unique_ptr<TraceReader> layers_of_trace(std::unique_ptr<TraceReader> all, const LayerNumbers& layers) {
  return std::make_unique<LayersOfTrace>(std::move(all), layers);
}

void take_ids_shape(const std::vector<std::int64_t>& shape, const std::string& file, const std::string& key,
                    TraceInfo& info) {
  if (shape.size() != 2 && shape.size() != 3)
    throw parse_error(file, key, "shape {} is neither [tokens, layers, k] nor, of one layer, [tokens, k]",
                      to_text(shape));
  for (std::size_t i = 1; i < shape.size(); ++i)
    if (shape[i] > max_trace_assignments_per_token)
      throw parse_error(file, key, "shape {}: more than {} assignments a token", to_text(shape),
                        max_trace_assignments_per_token);
  if (shape.size() == 3 && shape[1] > max_layers)
    throw parse_error(file, key, "shape {}: more than {} layers", to_text(shape), max_layers);
  info.num_tokens = shape.front();
  info.num_layers = shape.size() == 3 ? static_cast<int>(shape[1]) : 1;
  info.top_k = static_cast<int>(shape.back());
}

namespace {

// A router never names an expert twice in a row; where many rows do, the order is another.
void require_choices(const IdRows& rows, bool is_said, TraceInfo& info) {
  if (rows.repeated == 0) return;
  const std::string what = fmt::format("{} of {} rows name an expert twice, which no router does",
                                       rows.repeated, rows.chosen_rows());
  if (is_said && 2 * rows.repeated > rows.chosen_rows())
    throw InvalidArgument("axes", fmt::format("{}: {}", info.name, what),
                          "the order that the ids are in; ids that repeat by intent go by the name topk_ids");
  info.notes.push_back(what + ": read as they stand");
}

}  // namespace

std::unique_ptr<TraceReader> open_array_trace(TraceInfo info, std::unique_ptr<ArrayReader> ids,
                                              std::unique_ptr<ArrayReader> weights, IdsAre ids_are,
                                              std::optional<int> num_experts) {
  const int layers_in_array = info.num_layers;
  const std::optional<int> said = num_experts            ? num_experts
                                  : info.num_experts > 0 ? std::optional(info.num_experts)
                                                         : std::nullopt;
  RowRules rules = all_rows(layers_in_array);
  const std::int64_t of_token = std::int64_t{layers_in_array} * info.top_k;
  const bool possible =
      of_token > 0 && of_token <= max_trace_assignments_per_token;  // else the constructor refuses
  bool impossible_id = false;
  if (possible && (ids_are != IdsAre::as_written || !said)) {
    const IdRows rows = look_at_rows(*ids, info.num_tokens, info.num_layers, info.top_k);
    if (ids_are != IdsAre::as_written) {
      rules = rules_of(rows, ids_are == IdsAre::literal, said, info.name);
      info.layers = kept_numbers(info, rules);
      info.num_layers = static_cast<int>(rules.layers.size());
      info.notes = rules.notes;
      if (ids_are != IdsAre::literal) require_choices(rows, ids_are == IdsAre::said, info);
    } else {
      rules.largest_id = rows.most;
    }
    impossible_id = rows.least < no_expert || rules.largest_id >= max_trace_experts;
    if (!said && !impossible_id) info.num_experts = std::max(static_cast<int>(rules.largest_id) + 1, 1);
  }
  auto trace = std::make_unique<ArrayTrace>(std::move(info), layers_in_array, std::move(rules),
                                            std::move(ids), std::move(weights));
  if (num_experts) trace->set_num_experts(*num_experts);
  if (!said && impossible_id) trace->largest_id_plus_one();  // which names the first such id
  return trace;
}

}  // namespace evenkeel::internal
