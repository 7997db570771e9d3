// The meaning of the columns of a table of counts, by their names.
//
//   long   a line for each expert of a layer: `layer_id,expert_id,count`, in any order, with others between
//   wide   a line for each layer: `layer,expert_0,expert_1,...`; or the layers are the columns
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/internal/text_table.h"

namespace evenkeel::internal {

struct TableColumns {
  std::optional<std::size_t> layer;
  // `layer` is a column that nobody named: the numbers of the lines, if they count from 0.
  bool layer_is_index = false;
  // `layer` counts MoE layers alone, so that it is an order and no number of the model.
  bool layer_is_order = false;
  std::optional<std::size_t> expert;
  // Which step a line is of, all of these together.
  std::vector<std::size_t> steps;
  // Ranks, devices and times, which tell lines of a step apart: counts are added up over them.
  std::vector<std::size_t> parts;
  // The columns that hold counts. Long: one. Wide: the column of expert 0, 1, ...; or that of each of
  // `layers`.
  std::vector<std::size_t> counts;
  // Wide, where a line is an expert: the layers of `counts`, as they are named.
  std::vector<int> layers;

  bool is_long() const { return expert.has_value() && layers.empty(); }
};

// Whether the first line of a table is names rather than numbers. Expert ids from 0 on are names.
bool is_line_of_names(const std::vector<std::string_view>& cells);
// Whether at least one of the names is one that only a table of counts has.
bool names_a_layer_or_expert(const std::vector<std::string_view>& cells);

// Whether a column of that name says of which step, or of which rank, device or time, a line is.
bool names_a_step(std::string_view name);
bool names_a_part(std::string_view name);
// Any of these, or the layer.
bool names_a_layer_or_step(std::string_view name);

// Throws ParseError, with the names in question, if they do not say what the columns are; `where` is "line
// 1".
TableColumns columns_of_names(const std::vector<std::string_view>& names, const std::string& file,
                              const std::string& where);
// The same without names: a line a layer.
TableColumns columns_without_names(std::size_t columns);

}  // namespace evenkeel::internal
