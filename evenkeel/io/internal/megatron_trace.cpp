// Reads Megatron-LM's router traces.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/readers.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/limits.h"

namespace evenkeel::internal {

namespace {

struct Record {
  std::int64_t rank = 0;
  std::int64_t step = 0;
  int layer = 0;
  std::int64_t num_tokens = 0;
  int top_k = 0;
  std::vector<std::int32_t> ids;  // [tokens, k]
};

Record record_of(const JsonField& json) {
  Record record{.rank = json["rank"].integer(),
                .step = json["step"].integer(),
                .layer = json["layer"].integer(0, max_layers - 1),
                .num_tokens = json["num_tokens"].integer(),
                .top_k = json["topk"].integer(0, max_trace_assignments_per_token),
                .ids = {}};
  const JsonField rows = json["top_indices"];
  const IntArray ids = nested_integers(*rows, 2, json.file(), rows.key());
  if (ids.shape[0] != record.num_tokens || (record.num_tokens > 0 && ids.shape[1] != record.top_k))
    rows.fail("shape {} is not [num_tokens, topk] = [{}, {}]", to_text(ids.shape), record.num_tokens,
              record.top_k);
  for (const std::int64_t id : ids.values) {
    if (id < no_expert || id >= max_trace_experts)
      rows.fail("expert {} is outside -1..{}", id, max_trace_experts - 1);
    record.ids.push_back(static_cast<std::int32_t>(id));
  }
  return record;
}

bool is_decoder(const Json& json) {
  const auto block = json.find("block");
  return !json.contains("mtp_idx") && (block == json.end() || *block == "decoder");
}

// The tokens of one rank, step and micro-batch, in all recorded layers.
struct Batch {
  std::int64_t step = 0;
  int nth = 0;  // index of the micro-batch in the step
  std::int64_t num_tokens = 0;
  std::map<int, Record> layers = {};
};

class Batches {
 public:
  void take(Record record, const std::string& where) {
    // The n-th record of a layer in a step belongs to the n-th micro-batch.
    const int nth = seen_[{record.rank, record.step, record.layer}]++;
    const auto [place, fresh] = index_.try_emplace({record.rank, record.step, nth}, batches_.size());
    if (fresh) batches_.push_back({.step = record.step, .nth = nth, .num_tokens = record.num_tokens});
    Batch& batch = batches_[place->second];
    if (batch.num_tokens != record.num_tokens)
      throw parse_error(where, "num_tokens",
                        "layer {} has {} tokens, but another layer of the same step has {}", record.layer,
                        record.num_tokens, batch.num_tokens);
    layers_.insert(record.layer);
    top_k_ = std::max(top_k_, record.top_k);
    batch.layers.emplace(record.layer, std::move(record));
  }

  TokenIds tokens(const std::string& file) && {
    TokenIds all{
        .ids = {}, .layers = {layers_.begin(), layers_.end()}, .top_k = std::max(top_k_, 1), .steps = {}};
    const std::int64_t of_token = std::ssize(all.layers) * all.top_k;
    if (of_token > max_trace_assignments_per_token)
      throw parse_error(file, "", "has {} assignments a token; at most {} are read", of_token,
                        max_trace_assignments_per_token);
    std::map<std::pair<std::int64_t, int>, std::vector<TokenRange>> steps;
    std::int64_t tokens = 0;
    for (Batch& batch : batches_) {
      append(batch, of_token, all, file);
      // Each micro-batch counts as a step, since ranks wait for each other in it.
      steps[{batch.step, batch.nth}].push_back({tokens, tokens + batch.num_tokens});
      tokens += batch.num_tokens;
    }
    for (auto& [step, ranges] : steps) all.steps.push_back(std::move(ranges));
    return all;
  }

 private:
  static void append(Batch& batch, std::int64_t of_token, TokenIds& all, const std::string& file) {
    std::int64_t given = 0;
    for (const auto& [layer, record] : batch.layers) given += std::ssize(record.ids);
    const std::int64_t cells = batch.num_tokens * of_token;
    // If almost every layer was recorded separately, the trace would be mostly empty.
    if (cells > (std::int64_t{1} << 20) + 64 * given)
      throw parse_error(file, "",
                        "step {} has only {} of the {} layers; a trace needs almost all layers in every step",
                        batch.step, batch.layers.size(), all.layers.size());
    all.ids.resize(all.ids.size() + static_cast<std::size_t>(cells), no_expert);
    for (auto& [layer, record] : batch.layers) {
      const auto place = std::ranges::lower_bound(all.layers, layer) - all.layers.begin();
      const auto to = all.ids.end() - cells + place * all.top_k;
      for (std::int64_t token = 0; token < batch.num_tokens; ++token)
        std::copy_n(record.ids.begin() + token * record.top_k, record.top_k, to + token * of_token);
      record.ids = {};
    }
  }

  using Key = std::tuple<std::int64_t, std::int64_t, int>;
  std::map<Key, int> seen_;           // by rank, step and layer
  std::map<Key, std::size_t> index_;  // by rank, step and micro-batch, into batches_
  std::vector<Batch> batches_;
  std::set<int> layers_;
  int top_k_ = 0;
};

}  // namespace

FoundRouting find_megatron_trace(const std::vector<ByteSource>& ranks, std::optional<int> num_experts) {
  Batches batches;
  for (const auto& source : ranks) {
    for_each_json_line(source, [&](JsonDocument&& json, std::int64_t line) {
      const std::string where = fmt::format("{}: line {}", source.name(), line);
      if (is_decoder(json)) batches.take(record_of({json, where}), where);
    });
  }
  const std::string& file = ranks.front().name();
  FoundRouting found = found_tokens(std::move(batches).tokens(file), num_experts, file);
  found.format = "megatron";
  return found;
}

}  // namespace evenkeel::internal
