#include "evenkeel/training_memory/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

int stage_of(const MemoryModel& memory, std::int64_t layer) {
  for (int stage = 0; stage < memory.num_stages(); ++stage)
    if (std::ranges::binary_search(memory.layers(stage), layer)) return stage;
  return 0;
}

// The stage of each column of the history. The columns are either all layers of the model, or only those with
// experts.
std::vector<int> stages_of(const MemoryModel& memory, std::int64_t columns) {
  const ModelDescription& model = memory.model();
  std::vector<int> stages;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    if (columns == model.num_layers || model.has_experts[static_cast<std::size_t>(layer)])
      stages.push_back(stage_of(memory, layer));
  return stages;
}

void validate(const RecordedCounts& counts, const ModelDescription& model) {
  const auto fail = [&](const std::string& why) { throw ParseError(counts.file, counts.array, why); };
  const std::vector<std::int64_t>& shape = counts.shape;
  if (shape.size() != 2 && shape.size() != 3)
    fail(
        fmt::format("has {} dimensions; allowed: [steps, layers] of rows, or [steps, layers, experts] of "
                    "assignments",
                    shape.size()));
  if (shape[0] < 1) fail("has no steps");
  if (shape[1] != model.num_layers && shape[1] != model.num_moe_layers())
    fail(fmt::format("has {} layers; the model has {}, {} of them with experts", shape[1], model.num_layers,
                     model.num_moe_layers()));
  if (shape.size() == 3 && shape[2] != model.experts.count)
    fail(fmt::format("has {} experts; the model has {}", shape[2], model.experts.count));
  constexpr std::int64_t most_rows_read = std::int64_t{1} << 32;
  for (const std::int64_t count : counts.values)
    if (count < 0 || count > most_rows_read)
      fail(fmt::format("has the number {}; allowed: 0..{} rows or assignments", count, most_rows_read));
}

// The number of assignments of the fullest rank, with contiguous experts.
std::int64_t fullest(std::span<const std::int64_t> experts, std::int64_t ranks) {
  const std::int64_t count = std::ssize(experts);
  std::int64_t most = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    most = std::max(most, std::reduce(experts.begin() + rank * count / ranks,
                                      experts.begin() + (rank + 1) * count / ranks, std::int64_t{0}));
  return most;
}

}  // namespace

ReceivedHistory received_history(const RecordedCounts& counts, const MemoryModel& memory) {
  validate(counts, memory.model());
  const bool by_expert = counts.shape.size() == 3;
  ReceivedHistory history{.layers = counts.shape[1]};
  const auto width = static_cast<std::size_t>(by_expert ? counts.shape[2] : 1);
  const std::int64_t ranks = by_expert ? memory.setup().parallel.expert : 1;
  const auto rows = static_cast<std::size_t>(counts.shape[0] * counts.shape[1]);
  for (std::size_t row = 0; row < rows; ++row)
    history.rows.push_back(fullest(std::span(counts.values).subspan(row * width, width), ranks));
  return history;
}

ReceivedHistory cut(const ReceivedHistory& history, std::int64_t begin, std::int64_t end) {
  const auto at = history.rows.begin();
  return {.layers = history.layers,
          .first_step = history.first_step + begin,
          .rows = {at + begin * history.layers, at + end * history.layers}};
}

ChunkHistory choose_chunks(const ReceivedHistory& history, const MemoryModel& memory, const Fit& fit,
                           const DeviceMemory& device) {
  const Parallelism& parallel = memory.setup().parallel;
  const std::vector<int> stages = stages_of(memory, history.layers);
  ChunkHistory chosen{.layers = history.layers, .first_step = history.first_step};
  for (std::size_t at = 0; at < history.rows.size(); ++at) {
    // Converts to the paper's unit: rows per sequence of the micro-batch, before they are divided by t and c.
    const std::int64_t shares = parallel.tensor * parallel.context;
    const std::int64_t shared = history.rows[at] > most_rows / shares ? most_rows : history.rows[at] * shares;
    const std::int64_t received = (shared + memory.setup().micro_batch - 1) / memory.setup().micro_batch;
    const int stage = stages[at % stages.size()];
    chosen.choices.push_back(
        choose_chunks(memory, fit.stages[static_cast<std::size_t>(stage)], received, device));
  }
  return chosen;
}

}  // namespace evenkeel
