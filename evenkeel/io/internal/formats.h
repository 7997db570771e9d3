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

// Of an array whose bytes lie at one place of the file.
inline std::function<ArrayReader::Fetch()> bytes_at(const ByteSource& source, std::int64_t begin) {
  return
      [=] { return [=](std::int64_t first, std::span<std::byte> out) { source.read(begin + first, out); }; };
}

// Throws ParseError if a file says of itself that it is another format of ours.
void require_format(const ArrayFile& file, std::string_view format);

// The header of an npy file, which is written before the elements.
std::string npy_header_text(Dtype type, std::span<const std::int64_t> shape);

}  // namespace evenkeel::internal
