// Writes named arrays in any of the formats, piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/io/array_file.h"
#include "evenkeel/io/internal/zip_archive.h"

namespace evenkeel::internal {

struct ArrayToWrite {
  std::string name;
  Dtype dtype = Dtype::i64;
  std::vector<std::int64_t> shape;
  // Returns a function that yields the array's bytes piece by piece, from the start.
  std::function<NextPiece()> pieces;

  std::int64_t num_bytes() const;
};

// An array in memory. `values` must stay valid until the array is written, or be kept alive by `owner`.
ArrayToWrite integers_to_write(std::string name, std::vector<std::int64_t> shape,
                               std::span<const std::int64_t> values,
                               std::shared_ptr<const void> owner = nullptr);

// `format` is safetensors, npz (which cannot hold metadata), or npy for exactly one array.
void write_arrays(std::vector<ArrayToWrite> arrays, const std::map<std::string, std::string>& metadata,
                  const std::string& path, FileFormat format);

}  // namespace evenkeel::internal
