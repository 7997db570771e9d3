#include "evenkeel/io/internal/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/json.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel::internal {

namespace {

constexpr std::int64_t length_bytes = 8;
// The format's own limit.
constexpr std::int64_t max_header_bytes = 100'000'000;

JsonDocument read_header_text(const ByteSource& source, std::int64_t& data_begin) {
  std::array<std::byte, length_bytes> bytes{};
  source.read(0, bytes);
  const std::uint64_t length = std::bit_cast<std::uint64_t>(bytes);
  if (length > max_header_bytes || static_cast<std::int64_t>(length) > source.size() - length_bytes)
    throw ParseError(source.name(), "byte 0",
                     fmt::format("a header of {} bytes is claimed in a file of {}", length, source.size()));
  std::string text(static_cast<std::size_t>(length), '\0');
  source.read(length_bytes, std::as_writable_bytes(std::span(text)));
  data_begin = length_bytes + static_cast<std::int64_t>(length);
  JsonDocument header = parse_json(text, source.name(), length_bytes);
  if (!header.is_object()) throw ParseError(source.name(), "header", "is not a JSON object");
  return header;
}

SafetensorsTensor tensor_of(const std::string& key, const Json& described, std::int64_t data_bytes,
                            const std::string& file) {
  if (!described.is_object()) throw ParseError(file, key, "is not described by a JSON object");
  const auto dtype = described.find("dtype");
  if (dtype == described.end() || !dtype->is_string()) throw ParseError(file, key, "has no dtype");
  const auto shape = described.find("shape");
  const auto offsets = described.find("data_offsets");
  if (shape == described.end() || offsets == described.end())
    throw ParseError(file, key, "has no shape or no data_offsets");
  SafetensorsTensor tensor{
      .name = key, .dtype = dtype->get<std::string>(), .shape = integers(*shape, file, key + ".shape")};
  const auto ends = integers(*offsets, file, key + ".data_offsets");
  if (ends.size() != 2 || ends[0] < 0 || ends[0] > ends[1] || ends[1] > data_bytes)
    throw ParseError(file, key + ".data_offsets",
                     fmt::format("{} is not a range of the {} bytes of data", to_text(ends), data_bytes));
  tensor.begin = ends[0];
  tensor.end = ends[1];
  return tensor;
}

std::map<std::string, std::string> metadata_of(const Json& metadata, const std::string& file) {
  if (!metadata.is_object()) throw ParseError(file, "__metadata__", "is not a JSON object");
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) throw ParseError(file, "__metadata__." + key, "is not a string");
    texts.emplace(key, value.get<std::string>());
  }
  return texts;
}

}  // namespace

SafetensorsHeader read_safetensors_header(const ByteSource& source) {
  SafetensorsHeader header;
  const JsonDocument json = read_header_text(source, header.data_begin);
  const std::int64_t data_bytes = source.size() - header.data_begin;
  for (const auto& [key, value] : json.items()) {
    if (key == "__metadata__") {
      header.metadata = metadata_of(value, source.name());
    } else {
      header.tensors.push_back(tensor_of(key, value, data_bytes, source.name()));
    }
  }
  return header;
}

// The format allows neither gaps nor overlaps: sorted by place, each tensor begins where the one before it
// ends.
void require_gapless(const SafetensorsHeader& header, const ByteSource& source) {
  std::vector<const SafetensorsTensor*> sorted;
  for (const SafetensorsTensor& tensor : header.tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::int64_t at = 0;
  for (const SafetensorsTensor* tensor : sorted) {
    if (tensor->begin != at)
      throw ParseError(source.name(), tensor->name + ".data_offsets",
                       fmt::format("begins at {}, but the array before it ends at {}", tensor->begin, at));
    at = tensor->end;
  }
  const std::int64_t data_bytes = source.size() - header.data_begin;
  if (at != data_bytes)
    throw ParseError(source.name(), "",
                     fmt::format("the arrays end at {} of {} bytes of data", at, data_bytes));
}

}  // namespace evenkeel::internal
