// The layer of the model that each row of a trace, profile or placement belongs to. For example, row 0 of a
// DeepSeek model's profile is layer 3, since layers 0-2 are dense. Layer numbers count all hidden layers,
// from 0. They are known only if the source gives them. Rows of two objects, such as a profile and a
// placement, are paired by these numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace evenkeel {

// Above the layer numbers of all known models. Keeps a damaged file from requesting unbounded memory.
inline constexpr int max_layer_number = 65535;

class LayerNumbers {
 public:
  // The numbers are unknown.
  LayerNumbers() = default;
  // Throws InvalidArgument about `argument` unless `numbers` are ascending and in 0..max_layer_number.
  explicit LayerNumbers(std::vector<int> numbers, const std::string& argument = "layers");

  bool known() const { return !numbers_.empty(); }
  // By row; empty if unknown.
  const std::vector<int>& numbers() const { return numbers_; }
  // The number that messages give to a row: its layer number, or the row itself if numbers are unknown.
  int number_of(int row) const { return known() ? numbers_[static_cast<std::size_t>(row)] : row; }
  // The row, of `num_rows` rows, that number_of() maps to `number`; nullopt if there is none.
  std::optional<int> row_of(int number, int num_rows) const;

  friend bool operator==(const LayerNumbers&, const LayerNumbers&) = default;

 private:
  std::vector<int> numbers_;
};

// "3-60" or "0,2,4-6".
std::string to_text(const LayerNumbers& layers);
// The layers of `num_rows` rows, for messages: "layers 3-60", or "58 layers without numbers".
std::string described(const LayerNumbers& layers, int num_rows);

// One of two objects whose rows are to be paired. `name` is its name in messages.
struct NumberedRows {
  std::string name;
  LayerNumbers layers;
  int num_rows = 0;
};

// For each row of `wanted`, the row of `from` for the same layer. If both have numbers, rows are paired by
// number, and `from` may have more rows. Otherwise rows are paired in order, and both must have equally many.
// Throws InvalidArgument about `argument`, naming both sides, if rows cannot be paired.
std::vector<int> paired_rows(const NumberedRows& wanted, const NumberedRows& from,
                             const std::string& argument);

}  // namespace evenkeel
