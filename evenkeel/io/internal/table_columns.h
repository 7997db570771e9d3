// The meaning of the columns of a table, by their names alone.
//
//   long    a line for each expert of a layer: `layer_id,expert_id,count`, in any order, with others between
//   wide    a line for each layer: `layer,expert_0,expert_1,...`; or the layers are the columns
//   tokens  a line for each token in a layer: `token,layer,k_0,k_1,...`
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::internal {

using Cells = std::vector<std::string_view>;

struct TableColumns {
  bool operator==(const TableColumns&) const = default;

  std::optional<std::size_t> layer;
  // `layer` counts MoE layers alone, so that it is an order and no number of the model.
  bool layer_is_order = false;
  std::optional<std::size_t> expert;
  std::optional<std::size_t> token;
  // A column without a name, as pandas writes an index.
  std::optional<std::size_t> index;
  // Which step a line is of, all of these together.
  std::vector<std::size_t> steps;
  // Ranks, devices and times, which tell lines of a step apart: counts are added up over them.
  std::vector<std::size_t> parts;
  // The columns that hold counts. Long: one. Wide: the column of expert 0, 1, ...; or that of each of
  // `layers`.
  std::vector<std::size_t> counts;
  // Wide, where a line is an expert: the layers of `counts`, as they are named.
  std::vector<int> layers;
  // The ids of a token, instead of counts.
  std::vector<std::size_t> choices;

  bool lines_are_experts() const { return expert.has_value() || !layers.empty(); }
};

// Whether the first line of a table has names: a cell that is no number, and numbers only beside names of
// layers, experts and steps, as ids of experts.
bool is_line_of_names(const Cells& cells);
// Whether the first line only counts the columns from 0 on, as pandas names them; behind a blank, which is
// above an index of the lines, or at least three of them.
bool is_line_of_ids(const Cells& cells);
// Whether at least one of the names is one that only a table of routing has.
bool names_a_layer_or_expert(const Cells& cells);

// Whether a column of that name says of which step, or of which rank, device or time, a line is.
bool names_a_step(std::string_view name);
bool names_a_part(std::string_view name);
// Any of these, or the layer.
bool names_a_layer_or_step(std::string_view name);

// Throws ParseError, with the names in question, if they do not say what the columns are; `where` is "line
// 1".
TableColumns columns_of_names(const Cells& names, const std::string& file, const std::string& where);

// The names that --columns gives to so many columns: "layer,k..." is layer, k_0, k_1. Throws InvalidArgument.
std::vector<std::string> names_of_columns(std::string_view columns, std::size_t count);

}  // namespace evenkeel::internal
