// Reads recordings of SGLang's expert distribution recorder, in all of its modes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/find_routing.h"
#include "evenkeel/io/internal/layer_numbers.h"
#include "evenkeel/io/internal/nameless.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/readers.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/torch_file.h"

namespace evenkeel::internal {

namespace {

constexpr const char* map_key = "last_physical_to_logical_map";

// [layers, physical experts] -> expert. The detailed modes record physical experts.
struct PhysicalMap {
  std::int64_t layers = 0;
  std::int64_t physical = 0;
  int num_experts = 0;
  std::vector<std::int64_t> experts = {};
};

PhysicalMap read_map(TorchFile& file, std::optional<int> num_experts) {
  const auto found = file.pickle().find(file.pickle().root(), map_key);
  if (!found)
    throw ParseError(
        file.name(), map_key,
        "is missing; the records count physical experts, and only this map says which experts those are");
  IntArray map = file.integers(*found, map_key);
  if (map.shape.size() != 2 || map.values.empty())
    throw parse_error(file.name(), map_key, "shape {} is not [layers, physical experts]", to_text(map.shape));
  const std::int64_t most = num_experts.value_or(max_trace_experts) - 1;
  std::int64_t largest = 0;
  for (const std::int64_t expert : map.values) {
    if (expert < 0 || expert > most)
      throw parse_error(file.name(), map_key, "names expert {}, outside 0..{}", expert, most);
    largest = std::max(largest, expert);
  }
  return {.layers = map.shape[0],
          .physical = map.shape[1],
          .num_experts = num_experts.value_or(static_cast<int>(largest) + 1),
          .experts = std::move(map.values)};
}

// Mode per_pass: adds the counts [layers, physical experts] of a forward pass.
void add_counts(const IntArray& of_pass, const PhysicalMap& map, const std::string& file,
                const std::string& key, std::span<std::int64_t> sum) {
  if (of_pass.shape != std::vector<std::int64_t>{map.layers, map.physical})
    throw parse_error(file, key, "shape {} differs from the shape of {}, [{}, {}]", to_text(of_pass.shape),
                      map_key, map.layers, map.physical);
  for (std::size_t i = 0; i < of_pass.values.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i) / map.physical;
    std::int64_t& load = sum[static_cast<std::size_t>(layer * map.num_experts + map.experts[i])];
    if (of_pass.values[i] < 0 || __builtin_add_overflow(load, of_pass.values[i], &load))
      throw parse_error(file, key, "element {} is {}; counts are 0 or more, with a sum below 2^63", i,
                        of_pass.values[i]);
  }
}

// Mode per_token: appends the ids [layers, tokens, k] of a forward pass as [tokens, layers, k].
void add_tokens(const IntArray& of_pass, const PhysicalMap& map, const std::string& file,
                const std::string& key, TokenIds& tokens) {
  if (of_pass.shape.size() != 3 || of_pass.shape[0] != map.layers || of_pass.shape[2] < 1 ||
      (!tokens.ids.empty() && of_pass.shape[2] != tokens.top_k))
    throw parse_error(file, key, "shape {} is not [{} layers, tokens, k], with the same k in all records",
                      to_text(of_pass.shape), map.layers);
  const std::int64_t num_tokens = of_pass.shape[1];
  const std::int64_t width = of_pass.shape[2];
  if (map.layers * width > max_trace_assignments_per_token)
    throw parse_error(file, key, "has {} assignments a token; at most {} are read", map.layers * width,
                      max_trace_assignments_per_token);
  tokens.top_k = static_cast<int>(width);
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    for (std::int64_t layer = 0; layer < map.layers; ++layer) {
      const auto ids = of_pass.values.begin() + (layer * num_tokens + token) * width;
      const auto experts = map.experts.begin() + layer * map.physical;
      for (std::int64_t j = 0; j < width; ++j) {
        if (ids[j] < no_expert || ids[j] >= map.physical)
          throw parse_error(file, key, "physical expert {} of token {} in layer {} is outside 0..{}", ids[j],
                            token, layer, map.physical - 1);
        tokens.ids.push_back(ids[j] == no_expert ? no_expert : static_cast<std::int32_t>(experts[ids[j]]));
      }
    }
  }
}

// Finds the records that belong to the same forward pass, and so to the same step.
//
// Every rank records every pass with the same number, in its own file. A rank may record a pass twice, once
// for a draft model without load. If both have load, they come from two runs or two recordings, and it is
// unknown which records belong together.
class ForwardPasses {
 public:
  // The step of a record, counted from 0 in order of first appearance; `where` is the record's key. Throws
  // ParseError if a rank has a pass twice, or several files have records without numbers.
  std::size_t step_of(const TorchFile& file, Pickle::Id record, const std::string& where, bool has_load) {
    const auto pass = integer_in(file.pickle(), record, "forward_pass_id");
    if (count_ == 0) {
      numbered_ = pass.has_value();
      first_file_ = file.name();
    }
    if (pass.has_value() != numbered_ || (!numbered_ && file.name() != first_file_))
      throw parse_error(
          file.name(), where + ".forward_pass_id",
          "is {} here and {} in {}: the records cannot be matched to steps; read the files one by one",
          pass ? "present" : "missing", numbered_ ? "present" : "missing", first_file_);
    if (!pass) return count_++;
    const std::int64_t rank = integer_in(file.pickle(), record, "rank").value_or(0);
    if (has_load) {
      const auto [first, fresh] = loads_.try_emplace({*pass, rank, gatherer_of(file.pickle(), record)},
                                                     fmt::format("{}: {}", file.name(), where));
      if (!fresh)
        throw parse_error(file.name(), where,
                          "is forward pass {} of rank {}, but so is {}: the two are from different runs; "
                          "read each run separately",
                          *pass, rank, first->second);
    }
    const auto [step, fresh] = steps_.try_emplace(*pass, count_);
    if (fresh) ++count_;
    return step->second;
  }

 private:
  static std::optional<std::int64_t> integer_in(const Pickle& pickle, Pickle::Id record,
                                                std::string_view key) {
    const auto found = pickle.find(record, key);
    if (!found || pickle.kind(*found) != Pickle::Kind::integer) return std::nullopt;
    return pickle.integer(*found);
  }

  // The name of the record's batch, if the server runs two batches at a time; else empty.
  static std::string gatherer_of(const Pickle& pickle, Pickle::Id record) {
    const auto found = pickle.find(record, "gatherer_key");
    return found && pickle.kind(*found) == Pickle::Kind::text ? pickle.text(*found) : "";
  }

  std::map<std::int64_t, std::size_t> steps_;
  // The place of each record with load, by pass, rank and gatherer.
  std::map<std::tuple<std::int64_t, std::int64_t, std::string>, std::string> loads_;
  bool numbered_ = false;
  std::string first_file_;
  std::size_t count_ = 0;
};

// Adds up the records of one or several files, from ranks or dumps of one model.
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
    const PhysicalMap map = read_map(file, options_.num_experts);
    require_same_model(file.name(), map.layers, map.num_experts,
                       pickle.find(items.front(), ids_key) ? ids_key : counts_key);
    for (std::size_t i = 0; i < items.size(); ++i)
      add_record(file, items[i], map, fmt::format("records[{}]", i));
  }

  FoundRouting found(const std::string& file) && {
    if (mode_ == ids_key) {
      for (int layer = 0; layer < layers_; ++layer) tokens_.layers.push_back(layer);
      return found_tokens(std::move(tokens_), experts_, file);
    }
    const std::int64_t steps = std::ssize(counts_) / (layers_ * experts_);
    return found_counts(IntArray{{steps, layers_, experts_}, std::move(counts_)}, file, "records",
                        CountRows::hidden_layers);
  }

 private:
  // The key of the records in each mode.
  static constexpr const char* ids_key = "topk_ids_of_layer";
  static constexpr const char* counts_key = "global_physical_count";
  static constexpr const char* stat_key = "logical_count";

  void require_same_model(const std::string& file, std::int64_t layers, std::int64_t experts,
                          std::string_view mode) {
    if (first_.empty()) {
      first_ = file;
      layers_ = layers;
      experts_ = static_cast<int>(experts);
      mode_ = mode;
    }
    if (layers != layers_ || experts != experts_)
      throw parse_error(file, "", "has {} layers of {} experts, but {} has {} layers of {}", layers, experts,
                        first_, layers_, experts_);
    if (mode != mode_)
      throw parse_error(file, "",
                        "has {}, but {} has {}: the files were recorded in two modes; read them separately",
                        mode, first_, mode_);
  }

  void add_record(TorchFile& file, Pickle::Id record, const PhysicalMap& map, const std::string& where) {
    const bool by_token = mode_ == ids_key;
    const std::string key = fmt::format("{}.{}", where, mode_);
    const auto found = file.pickle().find(record, mode_);
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

  // Mode stat: counts of all ranks by step, [steps, layers, experts]. Averages are allowed only in a single
  // file, which find_in_root() reads.
  void add_stat(TorchFile& file) {
    const auto found = file.pickle().find(file.pickle().root(), stat_key);
    if (!found || file.is_floating(*found))
      throw ParseError(file.name(), stat_key,
                       "is missing, or has averages, which cannot be added up over files");
    const IntArray counts = file.integers(*found, stat_key);
    const auto& shape = counts.shape;
    if (shape.size() < 2 || shape.size() > 3 || counts.values.empty())
      throw parse_error(file.name(), stat_key, "shape {} is not [steps, layers, experts]", to_text(shape));
    require_loads(counts.values, file.name(), stat_key);
    require_same_model(file.name(), shape[shape.size() - 2], shape.back(), stat_key);
    counts_.insert(counts_.end(), counts.values.begin(), counts.values.end());
  }

  // The sum [layers, experts] of a step. Checked for size, since the map may name far more experts than the
  // file has numbers.
  std::span<std::int64_t> sum_of(std::size_t step, const PhysicalMap& map, const std::string& file) {
    const auto size = static_cast<std::size_t>(layers_ * experts_);
    numbers_met_ += map.layers * map.physical;
    if (counts_.size() < (step + 1) * size) {
      require_dense_enough(numbers_met_, static_cast<std::int64_t>(step) + 1, layers_, experts_, file);
      counts_.resize((step + 1) * size, 0);
    }
    return std::span(counts_).subspan(step * size, size);
  }

  const ReadOptions& options_;
  ForwardPasses passes_;
  std::string first_;
  std::string_view mode_;
  std::int64_t layers_ = 0;
  int experts_ = 0;
  std::int64_t numbers_met_ = 0;
  std::vector<std::int64_t> counts_;  // [steps, layers, experts]
  TokenIds tokens_;
  std::int64_t num_tokens_ = 0;
};

// Reads the keys beside counts in a dict: `layers`, a tensor or a list, and `num_experts`.
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
    throw parse_error(
        file.name(), "data.pkl",
        "is {} without 'logical_count', 'records' or a tensor of counts: not a recording of SGLang",
        pickle.kind_name(root));
  // Averages of counts are also accepted as loads.
  const Pickle::Id tensor = *pickle.find(root, key);
  const ArrayFile array = file.is_floating(tensor) ? file_of(file.doubles(tensor, key), file.name(), key)
                                                   : file_of(file.integers(tensor, key), file.name(), key);
  const CountRows rows = key == "logical_count" ? CountRows::hidden_layers : CountRows::unsaid;
  FoundRouting found = named_counts(array, array.arrays().front(), rows, options);
  take_said(file, std::get<FoundCounts>(found.content));
  return found;
}

}  // namespace

FoundRouting find_sglang_recording(const std::vector<ByteSource>& files, const ReadOptions& options) {
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
