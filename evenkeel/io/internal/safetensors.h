// The header of a safetensors file with tensors of any type, for readers of numbers and for code that only
// copies bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "evenkeel/io/byte_source.h"

namespace evenkeel::internal {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;  // the name in the file: "BF16", "F8_E4M3", ...
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // from the start of the data
  std::int64_t end = 0;

  std::int64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::int64_t data_begin = 0;  // in the file
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Throws ParseError if the header is damaged or a range is outside the data. It does not check that a shape
// fits its number of bytes, since that depends on the type.
SafetensorsHeader read_safetensors_header(const ByteSource& source);
// Throws ParseError if ranges leave gaps, overlap, or do not reach the end of the file.
void require_gapless(const SafetensorsHeader& header, const ByteSource& source);

}  // namespace evenkeel::internal
