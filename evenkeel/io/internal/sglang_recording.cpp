// Recordings of SGLang's expert distribution recorder, in all of its modes.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/find_routing.h"
#include "evenkeel/io/internal/forward_passes.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/nameless.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/readers.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/torch_file.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

constexpr const char* map_key = "last_physical_to_logical_map";

// [layers, physical experts] -> expert. Physical experts are what the detailed modes record.
struct PhysicalMap {
  std::int64_t layers = 0;
  std::int64_t physical = 0;
  int num_experts = 0;
  std::vector<std::int64_t> experts = {};

  std::int64_t expert(std::int64_t layer, std::int64_t id) const {
    return experts[static_cast<std::size_t>(layer * physical + id)];
  }
};

PhysicalMap read_map(TorchFile& file, std::optional<int> num_experts) {
  const auto found = file.pickle().find(file.pickle().root(), map_key);
  if (!found)
    throw ParseError(file.name(), map_key,
                     "is missing; the records count physical experts, and without it nobody knows which "
                     "experts those are");
  IntArray map = file.integers(*found, map_key);
  if (map.shape.size() != 2 || map.values.empty())
    throw parse_error(file.name(), map_key, "shape {} is not [layers, physical experts]", to_text(map.shape));
  const std::int64_t largest = *std::max_element(map.values.begin(), map.values.end());
  const std::int64_t smallest = *std::min_element(map.values.begin(), map.values.end());
  const std::int64_t most = num_experts.value_or(max_trace_experts) - 1;
  if (smallest < 0 || largest > most)
    throw parse_error(file.name(), map_key, "names expert {}, outside 0..{}",
                      smallest < 0 ? smallest : largest, most);
  return {.layers = map.shape[0],
          .physical = map.shape[1],
          .num_experts = num_experts.value_or(static_cast<int>(largest) + 1),
          .experts = std::move(map.values)};
}

// Mode per_pass: [layers, physical experts] of each forward pass.
void add_counts(const IntArray& of_pass, const PhysicalMap& map, const std::string& file,
                const std::string& key, std::span<std::int64_t> sum) {
  if (of_pass.shape != std::vector<std::int64_t>{map.layers, map.physical})
    throw parse_error(file, key, "shape {} is not that of {}, [{}, {}]", to_text(of_pass.shape), map_key,
                      map.layers, map.physical);
  for (std::size_t i = 0; i < of_pass.values.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i) / map.physical;
    std::int64_t& load = sum[static_cast<std::size_t>(layer * map.num_experts + map.experts[i])];
    if (of_pass.values[i] < 0 || __builtin_add_overflow(load, of_pass.values[i], &load))
      throw parse_error(file, key, "element {} is {}; counts are 0 or more, with a sum below 2^63", i,
                        of_pass.values[i]);
  }
}

// Mode per_token: [layers, tokens, k] of each forward pass, appended as [tokens, layers, k].
void add_tokens(const IntArray& of_pass, const PhysicalMap& map, const std::string& file,
                const std::string& key, TokenIds& tokens) {
  if (of_pass.shape.size() != 3 || of_pass.shape[0] != map.layers || of_pass.shape[2] < 1 ||
      (!tokens.ids.empty() && of_pass.shape[2] != tokens.top_k))
    throw parse_error(file, key, "shape {} is not [{} layers, tokens, k], with one k in all records",
                      to_text(of_pass.shape), map.layers);
  const std::int64_t num_tokens = of_pass.shape[1];
  const std::int64_t width = of_pass.shape[2];
  if (map.layers * width > max_trace_assignments_per_token)
    throw ParseError(file, key, "has too many assignments a token");
  tokens.top_k = static_cast<int>(width);
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    for (std::int64_t layer = 0; layer < map.layers; ++layer) {
      for (std::int64_t j = 0; j < width; ++j) {
        const std::int64_t id =
            of_pass.values[static_cast<std::size_t>((layer * num_tokens + token) * width + j)];
        if (id < no_expert || id >= map.physical)
          throw parse_error(file, key, "physical expert {} of token {} in layer {} is outside 0..{}", id,
                            token, layer, map.physical - 1);
        tokens.ids.push_back(id == no_expert ? no_expert : static_cast<std::int32_t>(map.expert(layer, id)));
      }
    }
  }
}

// The records of one or several files, of ranks or dumps of one model.
class RecordSum {
 public:
  explicit RecordSum(const ReadOptions& options) : options_(options) {}

  void add(TorchFile& file) {
    const Pickle& pickle = file.pickle();
    const auto records = pickle.find(pickle.root(), "records");
    if (!records) return add_stat(file);
    if (pickle.kind(*records) != Pickle::Kind::list || pickle.items(*records).empty())
      throw ParseError(file.name(), "records", "is not a list of forward passes");
    const auto items = pickle.items(*records);
    const bool by_token = pickle.find(items.front(), ids_key).has_value();
    const PhysicalMap map = read_map(file, options_.num_experts);
    if (map.layers > max_layers)
      throw parse_error(file.name(), map_key, "has more than {} layers", max_layers);
    require_same_model(file.name(), map.layers, map.num_experts, by_token);
    for (std::size_t i = 0; i < items.size(); ++i)
      add_record(file, items[i], map, by_token, fmt::format("records[{}]", i));
  }

  FoundRouting found(const std::string& file) && {
    if (by_token_) {
      for (int layer = 0; layer < layers_; ++layer) tokens_.layers.push_back(layer);
      return found_tokens(std::move(tokens_), experts_, file);
    }
    IntArray counts{.shape = {layers_, experts_}, .values = std::move(counts_)};
    if (options_.keeps_steps())
      counts.shape.insert(counts.shape.begin(), std::ssize(counts.values) / (layers_ * experts_));
    return found_counts(std::move(counts), file, "records", CountRows::hidden_layers);
  }

 private:
  static constexpr const char* ids_key = "topk_ids_of_layer";
  static constexpr const char* counts_key = "global_physical_count";

  void require_same_model(const std::string& file, std::int64_t layers, int experts, bool by_token) {
    if (first_.empty()) {
      first_ = file;
      layers_ = layers;
      experts_ = experts;
      by_token_ = by_token;
    }
    if (layers != layers_ || experts != experts_)
      throw parse_error(file, "", "has {} layers of {} experts, but {} has {} of {}", layers, experts, first_,
                        layers_, experts_);
    if (by_token != by_token_)
      throw parse_error(file, "", "has {}, but {} has not: they are of two modes",
                        by_token ? ids_key : "counts", first_);
  }

  void add_record(TorchFile& file, Pickle::Id record, const PhysicalMap& map, bool by_token,
                  const std::string& where) {
    const char* const name = by_token ? ids_key : counts_key;
    const std::string key = fmt::format("{}.{}", where, name);
    const auto found = file.pickle().find(record, name);
    if (!found) throw ParseError(file.name(), key, "is missing");
    const IntArray of_pass = file.integers(*found, key);
    const std::int64_t none = by_token ? no_expert : 0;
    const bool has_load =
        std::ranges::any_of(of_pass.values, [&](std::int64_t each) { return each != none; });
    const std::size_t step = options_.keeps_steps() ? passes_.step_of(file, record, where, has_load) : 0;
    if (!by_token) return add_counts(of_pass, map, file.name(), key, sum_of(step, map, file.name()));
    const std::int64_t begin = num_tokens_;
    add_tokens(of_pass, map, file.name(), key, tokens_);
    num_tokens_ += of_pass.shape[1];
    if (tokens_.steps.size() <= step) tokens_.steps.resize(step + 1);
    tokens_.steps[step].push_back({begin, num_tokens_});
  }

  // Mode stat: counts of all ranks, by step, [steps, layers, experts]. Those of one file may be averages.
  void add_stat(TorchFile& file) {
    const auto found = file.pickle().find(file.pickle().root(), "logical_count");
    if (!found || file.is_floating(*found))
      throw ParseError(file.name(), "logical_count",
                       "is missing, or of averages, which are not added up over files");
    const IntArray counts = file.integers(*found, "logical_count");
    const auto& shape = counts.shape;
    if (shape.size() < 2 || shape.size() > 3 || counts.values.empty())
      throw parse_error(file.name(), "logical_count", "shape {} is not [steps, layers, experts]",
                        to_text(shape));
    require_loads(counts.values, file.name(), "logical_count");
    const PhysicalMap size{.layers = shape[shape.size() - 2], .num_experts = static_cast<int>(shape.back())};
    require_same_model(file.name(), size.layers, size.num_experts, false);
    for (std::size_t at = 0; at < counts.values.size();) {
      records_ += size.num_experts;
      for (std::int64_t& sum : sum_of(options_.keeps_steps() ? passes_.new_step() : 0, size, file.name()))
        if (__builtin_add_overflow(sum, counts.values[at++], &sum))
          throw ParseError(file.name(), "logical_count", "the total of loads is above 2^63-1");
    }
  }

  // [layers, experts] of a step.
  std::span<std::int64_t> sum_of(std::size_t step, const PhysicalMap& map, const std::string& file) {
    const auto size = static_cast<std::size_t>(layers_ * experts_);
    records_ += map.physical;
    if (counts_.size() < (step + 1) * size) {
      require_dense_enough(records_ * map.layers, static_cast<std::int64_t>(step) + 1, layers_, experts_,
                           file);
      counts_.resize((step + 1) * size, 0);
    }
    return std::span(counts_).subspan(step * size, size);
  }

  const ReadOptions& options_;
  ForwardPasses passes_;
  std::string first_;
  std::int64_t layers_ = 0;
  int experts_ = 0;
  bool by_token_ = false;
  std::int64_t records_ = 0;          // physical experts of a layer that were met
  std::vector<std::int64_t> counts_;  // [steps, layers, experts]
  TokenIds tokens_;
  std::int64_t num_tokens_ = 0;
};

// Averages of counts are loads as well.
FoundRouting found_loads(TorchFile& file, Pickle::Id tensor, const std::string& key,
                         const ReadOptions& options) {
  const CountRows rows = key == "logical_count" ? CountRows::hidden_layers : CountRows::unsaid;
  const ArrayFile array = file.is_floating(tensor) ? file_of(file.doubles(tensor, key), file.name(), key)
                                                   : file_of(file.integers(tensor, key), file.name(), key);
  return named_counts(array, array.arrays().front(), rows, options);
}

// What stands beside counts in a dict: [layers], a tensor or a list, and a number of experts.
void take_said(TorchFile& file, FoundCounts& rows) {
  const Pickle& pickle = file.pickle();
  if (const auto layers = pickle.find(pickle.root(), "layers")) {
    std::vector<std::int64_t> numbers;
    if (pickle.kind(*layers) == Pickle::Kind::list)
      for (const Pickle::Id each : pickle.items(*layers))
        numbers.push_back(pickle.kind(each) == Pickle::Kind::integer ? pickle.integer(each) : -1);
    else
      numbers = file.integers(*layers, "layers").values;
    rows.layers = layers_of(numbers, rows.num_rows, file.name());
  }
  const auto experts = pickle.find(pickle.root(), "num_experts");
  if (experts && pickle.kind(*experts) == Pickle::Kind::integer)
    require_experts_said(pickle.integer(*experts), rows.num_experts, file.name());
}

FoundRouting find_in_root(TorchFile& file, const ReadOptions& options) {
  const Pickle& pickle = file.pickle();
  const Pickle::Id root = pickle.root();
  if (file.is_tensor(root))
    return file.is_floating(root) ? nameless(file.doubles(root, "tensor"), file.name(), options)
                                  : nameless(file.integers(root, "tensor"), file.name(), options);
  const auto is_counts = [&](std::string_view name) {
    const auto found = pickle.find(root, name);
    return found && (name == "logical_count" || file.is_tensor(*found));
  };
  const std::string key = only_of(count_names, is_counts, file.name());
  if (key.empty())
    throw parse_error(file.name(), "data.pkl",
                      "is {} without 'logical_count' or 'records', and no tensor of counts: no "
                      "recording of SGLang",
                      pickle.kind_name(root));
  FoundRouting found = found_loads(file, *pickle.find(root, key), key, options);
  take_said(file, std::get<FoundCounts>(found.content));
  return found;
}

}  // namespace

FoundRouting find_sglang_recording(const std::vector<ByteSource>& files, const ReadOptions& options) {
  if (files.empty()) throw InvalidArgument("files", "no file", "one or more");
  TorchFile first(files.front());
  const Pickle& pickle = first.pickle();
  FoundRouting found;
  if (files.size() == 1 && !pickle.find(pickle.root(), "records")) {
    found = find_in_root(first, options);
  } else {
    RecordSum sum(options);
    sum.add(first);
    for (const ByteSource& source : std::span(files).subspan(1)) {
      TorchFile file(source);
      sum.add(file);
    }
    found = std::move(sum).found(first.name());
  }
  found.format = "sglang";
  if (!first.is_tensor(pickle.root())) found.kind = "recording";
  return found;
}

}  // namespace evenkeel::internal
