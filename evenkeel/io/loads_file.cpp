#include "evenkeel/io/loads_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

// The counts of one layer; by source rank if the file has them by rank.
Counts counts_of(const Recording& recording, LayerId row, const LoadsOptions& options) {
  const auto stated = recording.num_ranks;
  const auto ranks = options.num_ranks ? options.num_ranks : stated;
  if (!ranks)
    throw InvalidArgument(
        "ranks", fmt::format("is not given, and {} does not say the number of ranks", recording.name),
        "1 or more");
  if (*ranks < 1) throw InvalidArgument("ranks", fmt::format("{} ranks", *ranks), "1 or more");
  if (stated.value_or(*ranks) != *ranks)
    throw InvalidArgument(
        options.ranks_argument,
        fmt::format("{} ranks, but {} has counts of {} ranks", *ranks, recording.name, *stated),
        fmt::format("{}, or leave it out", *stated));
  if (recording.by_source.empty()) return Counts::of_loads(recording.profile.loads(row), *ranks);
  Counts made(*ranks, recording.profile.num_experts());
  std::ranges::copy(recording.by_source, made.rows().begin());
  made.sum_loads();
  return made;
}

// The rows of the layers asked for.
std::vector<int> rows_of(const Recording& recording, const LoadsOptions& options) {
  const auto [name, layers, num_rows] = recording.rows();
  // Loads of one step without a layer number have one layer, whatever number the caller asks for.
  const bool is_step = recording.kind == "loads" && !layers.known();
  std::vector<int> rows;
  if (options.layers.empty() || is_step)
    for (int row = 0; row < num_rows; ++row) rows.push_back(row);
  else
    for (int layer : options.layers) {
      const auto row = layers.row_of(layer, num_rows);
      if (!row)
        throw InvalidArgument(options.layers_argument, fmt::format("no layer {}", layer),
                              layers.known() ? to_text(layers) : fmt::format("0..{}", num_rows - 1));
      rows.push_back(*row);
    }
  return rows;
}

}  // namespace

StepLoads read_step_loads(const ByteSource& source, const LoadsOptions& options) {
  ReadOptions how = options.reading;
  how.count = ReadOptions::Count::loads;
  how.one_step = true;
  Recording recording = read_recording(source, how);
  std::vector<LayerLoads> loads;
  for (int row : rows_of(recording, options))
    loads.push_back({recording.layers().number_of(row), counts_of(recording, LayerId(row), options)});
  return {.of = std::move(loads),
          .layers = recording.profile.layers(),
          .num_layers = recording.profile.num_layers(),
          .notes = std::move(recording.notes),
          .axes = std::move(recording.axes)};
}

}  // namespace evenkeel
