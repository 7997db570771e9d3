#include "cli/memory_history.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/options.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/array_file.h"
#include "evenkeel/report/table.h"

namespace evenkeel::cli {

namespace {

// Numbers of the model's layers that a history has columns for.
std::vector<std::int64_t> layers_of(const ModelDescription& model, std::int64_t columns) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    if (columns == model.num_layers || model.has_experts[static_cast<std::size_t>(layer)])
      numbers.push_back(layer);
  return numbers;
}

int stage_of(const MemoryModel& memory, std::int64_t layer) {
  for (int stage = 0; stage < memory.num_stages(); ++stage)
    if (std::ranges::binary_search(memory.layers(stage), layer)) return stage;
  return 0;
}

// The rank that has the most, of ranks with contiguous experts.
std::int64_t fullest(const std::int64_t* counts, std::int64_t experts, std::int64_t ranks) {
  std::int64_t most = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t sum = 0;
    for (std::int64_t e = rank * experts / ranks; e < (rank + 1) * experts / ranks; ++e) sum += counts[e];
    most = std::max(most, sum);
  }
  return most;
}

// Each step by itself where there are few, else blocks of steps, as many as a hundred columns hold.
std::vector<std::int64_t> block_begins(std::int64_t steps, std::int64_t first_step) {
  constexpr std::int64_t few = 18;  // of at most three characters, beside the layers' names
  const std::int64_t digits = std::ssize(fmt::format("{}", first_step + steps - 1));
  const std::int64_t blocks =
      steps <= few ? steps : std::min(few, 91 / (2 + std::max<std::int64_t>(digits, 3)));
  std::vector<std::int64_t> begins;
  for (std::int64_t block = 0; block <= blocks; ++block) begins.push_back(block * steps / blocks);
  return begins;
}

double mean_chunks(const ChunkHistory& history, std::int64_t begin, std::int64_t end,
                   std::int64_t begin_layer, std::int64_t end_layer) {
  std::int64_t sum = 0;
  for (std::int64_t step = begin; step < end; ++step)
    for (std::int64_t layer = begin_layer; layer < end_layer; ++layer) sum += history.at(step, layer).chunks;
  return static_cast<double>(sum) / static_cast<double>((end - begin) * (end_layer - begin_layer));
}

}  // namespace

ReceivedHistory read_history(const std::string& path, const MemoryModel& memory) {
  const auto file = open_array_file(path);
  const std::string name = name_of_counts(*file);
  const IntArray array = read_integers(*file, name);
  const auto fail = [&](const std::string& why) { throw ParseError(path, name, why); };
  if (array.shape.size() != 2 && array.shape.size() != 3)
    fail("is not [steps, layers] of rows, nor [steps, layers, experts] of assignments");
  if (array.shape[0] < 1) fail("has no steps");
  const ModelDescription& model = memory.model();
  const std::int64_t layers = array.shape[1];
  if (layers != model.num_layers && layers != model.num_moe_layers())
    fail(fmt::format("is of {} layers; the model has {}, {} of them with experts", layers, model.num_layers,
                     model.num_moe_layers()));
  if (array.shape.size() == 3 && array.shape[2] != model.experts.count)
    fail(fmt::format("is of {} experts; the model has {}", array.shape[2], model.experts.count));
  constexpr std::int64_t most_rows_read = std::int64_t{1} << 32;
  for (const std::int64_t count : array.values)
    if (count < 0 || count > most_rows_read) fail(fmt::format("has {}, which is no number of rows", count));

  ReceivedHistory history{.layers = layers, .rows = {}};
  const std::int64_t width = array.shape.size() == 3 ? array.shape[2] : 1;
  const std::int64_t ranks = array.shape.size() == 3 ? memory.setup().parallel.expert : 1;
  for (std::int64_t at = 0; at < array.shape[0] * layers; ++at)
    history.rows.push_back(fullest(array.values.data() + at * width, width, ranks));
  return history;
}

ReceivedHistory cut(ReceivedHistory history, const std::string& steps) {
  const std::vector<std::string> ends = split(steps, ':');
  if (ends.size() != 2)
    throw InvalidArgument("--steps", fmt::format("'{}'", steps), "A:B, the first and the end");
  const std::int64_t begin = parse_whole("--steps", ends[0], 0, history.steps() - 1);
  const std::int64_t end = parse_whole("--steps", ends[1], begin + 1, history.steps());
  const auto at = history.rows.begin();
  history.rows = std::vector<std::int64_t>(at + begin * history.layers, at + end * history.layers);
  return history;
}

ChunkHistory choose_chunks(const ReceivedHistory& history, const MemoryModel& memory, const Fit& fit,
                           const DeviceMemory& device) {
  const Parallelism& parallel = memory.setup().parallel;
  std::vector<int> stages;
  for (const std::int64_t layer : layers_of(memory.model(), history.layers))
    stages.push_back(stage_of(memory, layer));
  ChunkHistory chosen{.layers = history.layers, .choices = {}};
  for (std::size_t at = 0; at < history.rows.size(); ++at) {
    // In the paper's unit: for each sequence of the micro-batch, before t and c divide.
    const std::int64_t shares = parallel.tensor * parallel.context;
    const std::int64_t shared = history.rows[at] > most_rows / shares ? most_rows : history.rows[at] * shares;
    const std::int64_t received = (shared + memory.setup().micro_batch - 1) / memory.setup().micro_batch;
    const StageFit& stage =
        fit.stages[static_cast<std::size_t>(stages[at % static_cast<std::size_t>(history.layers)])];
    chosen.choices.push_back(choose_chunks(memory, stage, received, device));
  }
  return chosen;
}

std::string picture(const ChunkHistory& history, std::int64_t first_step) {
  const std::vector<std::int64_t> begins = block_begins(history.steps(), first_step);
  const bool single = std::ssize(begins) - 1 == history.steps();
  std::vector<std::string> head = {"layer"};
  for (std::size_t block = 0; block + 1 < begins.size(); ++block)
    head.push_back(fmt::format("{}", first_step + begins[block]));
  Table table(std::move(head));
  const auto add = [&](const std::string& name, std::int64_t begin_layer, std::int64_t end_layer,
                       bool whole) {
    std::vector<std::string> row = {name};
    for (std::size_t block = 0; block + 1 < begins.size(); ++block)
      row.push_back(fmt::format(
          "{:.{}f}", mean_chunks(history, begins[block], begins[block + 1], begin_layer, end_layer),
          whole ? 0 : 1));
    table.add(std::move(row));
  };
  for (std::int64_t layer = 0; layer < history.layers; ++layer)
    add(fmt::format("{}", layer), layer, layer + 1, single);
  add("mean", 0, history.layers, false);
  return table.text();
}

}  // namespace evenkeel::cli
