// Megatron-LM's router traces.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/readers.h"
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

// The ids of one token.
void append_ids(const JsonField& row, Record& record) {
  const auto ids = row.integers();
  if (std::ssize(ids) != record.top_k) row.fail("has {} experts, but topk is {}", ids.size(), record.top_k);
  for (std::int64_t id : ids) {
    if (id < no_expert || id >= max_trace_experts)
      row.fail("expert {} is outside -1..{}", id, max_trace_experts - 1);
    record.ids.push_back(static_cast<std::int32_t>(id));
  }
}

Record record_of(const JsonField& json) {
  const auto number = [&](const char* key, std::int64_t most) {
    const JsonField field = json[key];
    const std::int64_t value = field.integer();
    if (value < 0 || value > most) field.fail("is {}; allowed: 0..{}", value, most);
    return value;
  };
  constexpr std::int64_t any = std::int64_t{1} << 62;
  Record record{.rank = number("rank", any),
                .step = number("step", any),
                .layer = static_cast<int>(number("layer", max_layers - 1)),
                .num_tokens = number("num_tokens", any),
                .top_k = static_cast<int>(number("topk", max_trace_assignments_per_token)),
                .ids = {}};
  const JsonField rows = json["top_indices"];
  if (!rows->is_array() || std::ssize(*rows) != record.num_tokens)
    rows.fail("is not a list of num_tokens = {} rows", record.num_tokens);
  for (std::size_t i = 0; i < rows->size(); ++i) append_ids(rows[i], record);
  return record;
}

bool is_decoder(const Json& json) {
  const auto block = json.find("block");
  return !json.contains("mtp_idx") && (block == json.end() || *block == "decoder");
}

// The tokens of one rank, step and micro-batch, in all the layers that were recorded.
struct Batch {
  std::int64_t step = 0;
  int nth = 0;  // micro-batch of the step
  std::int64_t num_tokens = 0;
  std::map<int, Record> layers = {};
};

class Batches {
 public:
  void take(Record record, const std::string& where) {
    // The n-th record of a layer in a step is of its n-th micro-batch.
    const int nth = seen_[{record.rank, record.step, record.layer}]++;
    const auto [place, fresh] = index_.try_emplace({record.rank, record.step, nth}, batches_.size());
    if (fresh) batches_.push_back({.step = record.step, .nth = nth, .num_tokens = record.num_tokens});
    Batch& batch = batches_[place->second];
    if (batch.num_tokens != record.num_tokens)
      throw parse_error(where, "num_tokens",
                        "layer {} has {} tokens where another layer of the same step has {}", record.layer,
                        record.num_tokens, batch.num_tokens);
    numbers_.try_emplace(record.layer);
    top_k_ = std::max(top_k_, record.top_k);
    batch.layers.emplace(record.layer, std::move(record));
  }

  TokenIds tokens(const std::string& file) && {
    TokenIds all{.ids = {}, .layers = {}, .top_k = std::max(top_k_, 1)};
    for (auto& [number, place] : numbers_) {
      place = all.layers.size();
      all.layers.push_back(number);
    }
    const std::size_t width = static_cast<std::size_t>(all.top_k);
    const std::size_t of_token = all.layers.size() * width;
    if (static_cast<std::int64_t>(of_token) > max_trace_assignments_per_token)
      throw parse_error(file, "", "has {} assignments a token", of_token);
    std::map<std::pair<std::int64_t, int>, std::vector<TokenRange>> steps;
    std::int64_t tokens = 0;
    for (Batch& batch : batches_) {
      append(batch, of_token, width, all.ids, file);
      // Ranks wait for each other in every micro-batch.
      steps[{batch.step, batch.nth}].push_back({tokens, tokens + batch.num_tokens});
      tokens += batch.num_tokens;
    }
    for (auto& [step, ranges] : steps) all.steps.push_back(std::move(ranges));
    return all;
  }

 private:
  void append(Batch& batch, std::size_t of_token, std::size_t width, std::vector<std::int32_t>& ids,
              const std::string& file) {
    const std::size_t begin = ids.size();
    std::size_t given = 0;
    for (const auto& [layer, record] : batch.layers) given += record.ids.size();
    const std::size_t cells = static_cast<std::size_t>(batch.num_tokens) * of_token;
    // Where almost no layer was recorded together with another, the trace would be mostly holes.
    if (cells > (std::size_t{1} << 20) + 64 * given)
      throw ParseError(file, "", "has steps with so few of the layers that no trace can be made of them");
    ids.resize(begin + cells, no_expert);
    for (auto& [layer, record] : batch.layers) {
      const std::size_t place = numbers_.at(layer) * width;
      const std::size_t top_k = static_cast<std::size_t>(record.top_k);
      for (std::size_t token = 0; token < static_cast<std::size_t>(batch.num_tokens); ++token)
        std::copy_n(record.ids.begin() + static_cast<std::ptrdiff_t>(token * top_k), top_k,
                    ids.begin() + static_cast<std::ptrdiff_t>(begin + token * of_token + place));
      record.ids = {};
    }
  }

  using Key = std::tuple<std::int64_t, std::int64_t, int>;
  std::map<Key, int> seen_;           // by rank, step and layer
  std::map<Key, std::size_t> index_;  // by rank, step and micro-batch, into batches_
  std::vector<Batch> batches_;
  std::map<int, std::size_t> numbers_;  // of the layers, and their places
  int top_k_ = 0;
};

}  // namespace

FoundRouting find_megatron_trace(const std::vector<ByteSource>& ranks, std::optional<int> num_experts) {
  if (ranks.empty()) throw InvalidArgument("ranks", "no file", "one or more");
  Batches batches;
  for (const auto& source : ranks) {
    for_each_json_line(source, [&](JsonDocument&& json, std::int64_t line) {
      const std::string where = fmt::format("{}: line {}", source.name(), line);
      if (!json.is_object()) throw ParseError(where, "", "is not a JSON object");
      if (is_decoder(json)) batches.take(record_of({json, where}), where);
    });
  }
  const std::string& file = ranks.front().name();
  FoundRouting found = found_tokens(std::move(batches).tokens(file), num_experts, file);
  found.format = "megatron";
  return found;
}

}  // namespace evenkeel::internal
