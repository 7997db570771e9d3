// The array formats behind ArrayFile, one function each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "evenkeel/io/array_file.h"

namespace evenkeel::internal {

std::unique_ptr<ArrayFile> open_safetensors(const ByteSource& source);
std::unique_ptr<ArrayFile> open_npy(const ByteSource& source);
std::unique_ptr<ArrayFile> open_npz(const ByteSource& source);

// Access to an array whose bytes are contiguous in the file, from `begin` on.
inline std::function<ArrayReader::Fetch()> bytes_at(const ByteSource& source, std::int64_t begin) {
  return
      [=] { return [=](std::int64_t first, std::span<std::byte> out) { source.read(begin + first, out); }; };
}

// Throws ParseError if the file's metadata names another evenkeel format.
void require_format(const ArrayFile& file, std::string_view format);

// The header of an npy file, which is written before the elements.
std::string npy_header_text(Dtype type, std::span<const std::int64_t> shape);

}  // namespace evenkeel::internal
