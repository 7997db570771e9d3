// Arrays that are in memory already, read as those in files are.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/io/array_file.h"

namespace evenkeel::internal {

// I64 or F64, by the type of its numbers.
template <class Number>
class MemoryArray final : public ArrayReader {
 public:
  MemoryArray(std::string file, std::string name, std::vector<std::int64_t> shape, std::vector<Number> values)
      : ArrayReader(std::move(file), {.name = std::move(name),
                                      .dtype = std::is_floating_point_v<Number> ? Dtype::f64 : Dtype::i64,
                                      .shape = std::move(shape),
                                      .num_elements = std::ssize(values)}),
        values_(std::move(values)) {
    static_assert(sizeof(Number) == 8);
  }

  std::vector<Number> values() && { return std::move(values_); }

 private:
  void fetch(std::int64_t first_byte, std::span<std::byte> out) override {
    const auto bytes =
        std::as_bytes(std::span(values_)).subspan(static_cast<std::size_t>(first_byte), out.size());
    std::ranges::copy(bytes, out.begin());
  }

  std::vector<Number> values_;
};

}  // namespace evenkeel::internal
