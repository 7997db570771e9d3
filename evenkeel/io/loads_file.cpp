#include "evenkeel/io/loads_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

// Of a layer, by source rank where the file has them so.
Counts counts_of(const Recording& recording, LayerId row, const LoadsOptions& options) {
  const auto stated = recording.num_ranks;
  const auto ranks = options.num_ranks ? options.num_ranks : stated;
  if (!ranks)
    throw InvalidArgument("ranks", fmt::format("{} does not say how many there are", recording.name),
                          "1 or more");
  if (*ranks < 1) throw InvalidArgument("ranks", fmt::format("{} ranks", *ranks), "1 or more");
  if (stated.value_or(*ranks) != *ranks)
    throw InvalidArgument(options.ranks_argument,
                          fmt::format("{} ranks, but {} has counts of {}", *ranks, recording.name, *stated),
                          fmt::format("{}, or leave it out", *stated));
  if (recording.by_source.empty()) return Counts::of_loads(recording.profile.loads(row), *ranks);
  Counts made(*ranks, recording.profile.num_experts());
  std::ranges::copy(recording.by_source, made.rows().begin());
  made.sum_loads();
  return made;
}

// The row of the layer asked for, or the only one.
LayerId row_of(const Recording& recording, const LoadsOptions& options) {
  const auto [name, layers, num_rows] = recording.rows();
  const std::string all = layers.known() ? to_text(layers) : fmt::format("0..{}", num_rows - 1);
  // Of one step without a number the caller says whether there is a layer to choose.
  const bool is_step = recording.kind == "loads" && !layers.known();
  if (!options.layer || is_step) {
    if (num_rows == 1) return LayerId(0);
    throw InvalidArgument("layer",
                          fmt::format("{} has {} layers, and loads of one are needed", name, num_rows), all);
  }
  const auto row = layers.row_of(*options.layer, num_rows);
  if (!row) throw InvalidArgument("layer", fmt::format("no layer {}", *options.layer), all);
  return LayerId(*row);
}

}  // namespace

StepLoads read_step_loads(const ByteSource& source, const LoadsOptions& options) {
  ReadOptions how = options.reading;
  how.count = ReadOptions::Count::loads;
  how.one_step = true;
  Recording recording = read_recording(source, how);
  const LayerId row = row_of(recording, options);
  return {.counts = counts_of(recording, row, options),
          .layers = recording.profile.layers(),
          .num_layers = recording.profile.num_layers(),
          .notes = std::move(recording.notes),
          .axes = std::move(recording.axes)};
}

}  // namespace evenkeel
