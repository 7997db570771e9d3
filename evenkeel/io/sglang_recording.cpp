// Recordings of SGLang's expert distribution recorder, in all of its modes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/forward_passes.h"
#include "evenkeel/io/internal/moe_layers.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/torch_file.h"
#include "evenkeel/io/limits.h"
#include "evenkeel/io/sglang.h"

namespace evenkeel {

using namespace internal;

namespace {

constexpr const char* map_key = "last_physical_to_logical_map";

// [layers, physical experts] -> expert. Physical experts are what the detailed modes record.
struct PhysicalMap {
  std::int64_t layers = 0;
  std::int64_t physical = 0;
  int num_experts = 0;
  std::vector<std::int64_t> experts;

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

// The steps of a file, and which of the whole recording each is.
struct FileSteps {
  std::size_t place_of(std::size_t step) {
    const auto [place, fresh] = places.try_emplace(step, steps.size());
    if (fresh) steps.push_back(step);
    return place->second;
  }

  std::map<std::size_t, std::size_t> places = {};
  std::vector<std::size_t> steps = {};
};

struct Recording {
  RoutingFile routing;
  FileSteps steps = {};
};

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

// As large as there are experts, which may be far more than the map and the records have numbers.
void require_space(const PhysicalMap& map, std::int64_t steps, std::int64_t elements_in_file,
                   const std::string& file) {
  if (steps * map.layers * map.num_experts > (std::int64_t{1} << 20) + 16 * elements_in_file)
    throw parse_error(file, map_key, "has space for few of {} experts", map.num_experts);
}

// Of one file, whose records are read in order.
class RecordReader {
 public:
  RecordReader(TorchFile& file, bool by_token, const RoutingOptions& options, ForwardPasses& passes)
      : file_(file),
        by_token_(by_token),
        passes_(passes),
        keep_steps_(options.keep_steps),
        map_(read_map(file, options.num_experts)) {
    if (map_.layers > max_layers)
      throw parse_error(file.name(), map_key, "has more than {} layers", max_layers);
    require_space(map_, 1, map_.layers * map_.physical, file.name());
  }

  void add(Pickle::Id record, const std::string& where) {
    const std::string key =
        fmt::format("{}.{}", where, by_token_ ? "topk_ids_of_layer" : "global_physical_count");
    const auto found = file_.pickle().find(record, by_token_ ? "topk_ids_of_layer" : "global_physical_count");
    if (!found) throw ParseError(file_.name(), key, "is missing");
    const IntArray of_pass = file_.integers(*found, key);
    const std::int64_t none = by_token_ ? no_expert : 0;
    const bool has_load =
        std::ranges::any_of(of_pass.values, [&](std::int64_t each) { return each != none; });
    const std::size_t step =
        keep_steps_ ? steps_.place_of(passes_.step_of(file_, record, where, has_load)) : 0;
    by_token_ ? take_tokens(of_pass, step, key) : take_counts(of_pass, step, key);
  }

  Recording recording() && {
    if (by_token_) {
      for (int layer = 0; layer < map_.layers; ++layer) tokens_.layers.push_back(layer);
      return {routing_of_tokens(std::move(tokens_), map_.num_experts, file_.name()), std::move(steps_)};
    }
    IntArray counts{.shape = {map_.layers, map_.num_experts}, .values = std::move(counts_)};
    if (keep_steps_) counts.shape.insert(counts.shape.begin(), std::ssize(steps_.steps));
    return {routing_of_counts(std::move(counts), file_.name(), "records", CountRows::hidden_layers),
            std::move(steps_)};
  }

 private:
  void take_counts(const IntArray& of_pass, std::size_t step, const std::string& key) {
    const auto size = static_cast<std::size_t>(map_.layers * map_.num_experts);
    if (counts_.size() < (step + 1) * size) {
      require_space(map_, static_cast<std::int64_t>(step) + 1, (records_ + 1) * map_.layers * map_.physical,
                    file_.name());
      counts_.resize((step + 1) * size, 0);
    }
    ++records_;
    add_counts(of_pass, map_, file_.name(), key, std::span(counts_).subspan(step * size, size));
  }

  void take_tokens(const IntArray& of_pass, std::size_t step, const std::string& key) {
    const std::int64_t begin = num_tokens_;
    add_tokens(of_pass, map_, file_.name(), key, tokens_);
    num_tokens_ += of_pass.shape[1];
    if (tokens_.steps.size() <= step) tokens_.steps.resize(step + 1);
    tokens_.steps[step].push_back({begin, num_tokens_});
  }

  TorchFile& file_;
  bool by_token_;
  ForwardPasses& passes_;
  bool keep_steps_;
  PhysicalMap map_;
  FileSteps steps_;
  std::int64_t records_ = 0;
  std::vector<std::int64_t> counts_;  // [steps, layers, experts]
  TokenIds tokens_;
  std::int64_t num_tokens_ = 0;
};

Recording read_records(TorchFile& file, Pickle::Id records, const RoutingOptions& options,
                       ForwardPasses& passes) {
  const Pickle& pickle = file.pickle();
  if (pickle.kind(records) != Pickle::Kind::list || pickle.items(records).empty())
    throw ParseError(file.name(), "records", "is not a list of forward passes");
  const auto items = pickle.items(records);
  const bool by_token = pickle.find(items.front(), "topk_ids_of_layer").has_value();
  RecordReader reader(file, by_token, options, passes);
  for (std::size_t i = 0; i < items.size(); ++i) reader.add(items[i], fmt::format("records[{}]", i));
  return std::move(reader).recording();
}

// Averages of counts are loads as well.
RoutingFile routing_of_loads(TorchFile& file, Pickle::Id tensor, const char* key, CountRows rows) {
  return file.is_floating(tensor) ? routing_of_counts(file.doubles(tensor, key), file.name(), key, rows)
                                  : routing_of_counts(file.integers(tensor, key), file.name(), key, rows);
}

// A tensor that somebody saved alone, of whatever it holds.
RoutingFile routing_of_tensor(TorchFile& file, Pickle::Id tensor, const RoutingOptions& options) {
  const char* const key = "tensor";
  if (file.is_floating(tensor) && options.bare != RoutingOptions::Bare::trace)
    return routing_of_loads(file, tensor, key, CountRows::unsaid);
  IntArray numbers = file.integers(tensor, key);
  if (auto trace = routing_of_bare_ids(numbers, file.name(), key, options, options.num_experts))
    return *std::move(trace);
  return routing_of_counts(std::move(numbers), file.name(), key, CountRows::unsaid);
}

RoutingFile routing_of_root(TorchFile& file, const RoutingOptions& options) {
  const Pickle& pickle = file.pickle();
  const Pickle::Id root = pickle.root();
  if (file.is_tensor(root)) return routing_of_tensor(file, root, options);
  if (const auto counts = pickle.find(root, "logical_count"))
    return routing_of_loads(file, *counts, "logical_count", CountRows::hidden_layers);
  for (const char* key : {"counts", "expert_counts", "expert_load", "tokens_per_expert", "weight"})
    if (const auto counts = pickle.find(root, key); counts && file.is_tensor(*counts))
      return routing_of_loads(file, *counts, key, CountRows::unsaid);
  throw parse_error(file.name(), "data.pkl",
                    "is {} without 'logical_count' or 'records', and no tensor of counts: no "
                    "recording of SGLang",
                    pickle.kind_name(root));
}

Recording open_one(const ByteSource& source, const RoutingOptions& options, ForwardPasses& passes) {
  TorchFile file(source);
  const auto records = file.pickle().find(file.pickle().root(), "records");
  Recording recording = records ? read_records(file, *records, options, passes)
                                : Recording{.routing = routing_of_root(file, options)};
  recording.routing.format = "sglang";
  if (!file.is_tensor(file.pickle().root())) recording.routing.what = "recording";
  return recording;
}

// The sum of several files.
class RecordingSum {
 public:
  void add(Recording recording, const RoutingOptions& options, const std::string& name,
           ForwardPasses& passes) {
    RoutingProfile profile = profile_of(recording.routing, options);
    if (sum_ && profile.layers() != sum_->layers())
      throw parse_error(name, "", "has {}, but {} has {}", described(profile.layers(), profile.num_layers()),
                        first_name_, described(sum_->layers(), sum_->num_layers()));
    if (sum_) {
      sum_->add(profile);
    } else {
      sum_ = std::move(profile);
      first_name_ = name;
    }
    if (options.keep_steps) add_steps(std::move(recording), passes);
  }

  RoutingFile routing() && {
    RoutingFile made{.what = "recording", .format = "sglang", .trace = nullptr, .profile = std::move(sum_)};
    made.rows_of_step = made.profile->num_layers();
    for (const auto& [step, counts] : steps_)
      made.step_counts.insert(made.step_counts.end(), counts.begin(), counts.end());
    return made;
  }

 private:
  void add_steps(Recording recording, ForwardPasses& passes) {
    const std::vector<RoutingProfile> steps = steps_of(recording.routing, std::nullopt);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      // Counts of mode stat are of all ranks already.
      const std::size_t step = recording.steps.steps.empty() ? passes.new_step() : recording.steps.steps[i];
      auto& counts = steps_[step];
      counts.resize(steps[i].loads().size(), 0);
      for (std::size_t at = 0; at < counts.size(); ++at) counts[at] += steps[i].loads()[at];
    }
  }

  std::optional<RoutingProfile> sum_;
  std::string first_name_;
  std::map<std::size_t, std::vector<std::int64_t>> steps_;  // [layers, experts]
};

}  // namespace

RoutingFile open_sglang_recording(const std::vector<ByteSource>& files, const RoutingOptions& options) {
  if (files.empty()) throw InvalidArgument("files", "no file", "one or more");
  ForwardPasses passes;
  if (files.size() == 1) return open_one(files.front(), options, passes).routing;
  RecordingSum sum;
  for (const auto& source : files) sum.add(open_one(source, options, passes), options, source.name(), passes);
  return std::move(sum).routing();
}

}  // namespace evenkeel
