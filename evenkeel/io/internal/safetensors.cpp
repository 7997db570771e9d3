// Reads safetensors: eight bytes of header length, a JSON header, and the arrays without gaps.
#include "evenkeel/io/internal/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <utility>

#include "evenkeel/io/internal/formats.h"
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
    throw parse_error(source.name(), "byte 0", "claims a header of {} bytes in a file of {} bytes", length,
                      source.size());
  std::string text(static_cast<std::size_t>(length), '\0');
  source.read(length_bytes, std::as_writable_bytes(std::span(text)));
  data_begin = length_bytes + static_cast<std::int64_t>(length);
  JsonDocument header = parse_json(text, source.name(), length_bytes);
  if (!header.is_object()) throw ParseError(source.name(), "header", "is not a JSON object");
  return header;
}

// Reads integers; unlike integers(), refuses 2.0, which the format does not allow.
std::vector<std::int64_t> whole_numbers(const JsonField& list) {
  std::vector<std::int64_t> numbers = list.integers();
  for (const Json& number : *list)
    if (number.is_number_float()) list.fail("has {}, which is not written as a whole number", number.dump());
  return numbers;
}

SafetensorsTensor tensor_of(const JsonField& described, std::int64_t data_bytes) {
  if (!described->is_object()) described.fail("is not described by a JSON object");
  const auto dtype = described.find("dtype");
  if (!dtype || !(*dtype)->is_string()) described.fail("has no dtype");
  const auto shape = described.find("shape");
  const auto offsets = described.find("data_offsets");
  if (!shape || !offsets) described.fail("has no shape or no data_offsets");
  SafetensorsTensor tensor{
      .name = described.key(), .dtype = (*dtype)->get<std::string>(), .shape = whole_numbers(*shape)};
  const auto ends = whole_numbers(*offsets);
  if (ends.size() != 2 || ends[0] < 0 || ends[0] > ends[1] || ends[1] > data_bytes)
    offsets->fail("{} is not a range of the {} bytes of data", to_text(ends), data_bytes);
  tensor.begin = ends[0];
  tensor.end = ends[1];
  return tensor;
}

std::map<std::string, std::string> metadata_of(const JsonField& metadata) {
  if (!metadata->is_object()) metadata.fail("is not a JSON object");
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : metadata->items()) {
    if (!value.is_string()) metadata[key].fail("is not a string");
    texts.emplace(key, value.get<std::string>());
  }
  return texts;
}

ArrayInfo array_of(const SafetensorsTensor& tensor, const std::string& file) {
  const DtypeNames* const type = find_dtype(&DtypeNames::safetensors, tensor.dtype);
  if (type == nullptr) throw parse_error(file, tensor.name, "dtype {} is not supported", tensor.dtype);
  const auto elements = count_elements(tensor.shape, type->item_size);
  if (!elements || *elements * type->item_size != tensor.bytes())
    throw parse_error(file, tensor.name, "shape {} of {} does not fit its {} bytes", to_text(tensor.shape),
                      type->name, tensor.bytes());
  return {.name = tensor.name, .dtype = type->type, .shape = tensor.shape, .num_elements = *elements};
}

}  // namespace

SafetensorsHeader read_safetensors_header(const ByteSource& source) {
  SafetensorsHeader header;
  const JsonDocument json = read_header_text(source, header.data_begin);
  const std::int64_t data_bytes = source.size() - header.data_begin;
  for (const auto& [key, value] : json.items()) {
    const JsonField described(value, source.name(), key);
    if (key == "__metadata__")
      header.metadata = metadata_of(described);
    else
      header.tensors.push_back(tensor_of(described, data_bytes));
  }
  return header;
}

// The format allows neither gaps nor overlaps: in order of offsets, each tensor begins where the one before
// ends.
void require_gapless(const SafetensorsHeader& header, const ByteSource& source) {
  std::vector<const SafetensorsTensor*> sorted;
  for (const SafetensorsTensor& tensor : header.tensors) sorted.push_back(&tensor);
  std::ranges::sort(sorted, {}, [](const auto* tensor) { return std::tie(tensor->begin, tensor->end); });
  std::int64_t at = 0;
  for (const SafetensorsTensor* tensor : sorted) {
    if (tensor->begin != at)
      throw parse_error(source.name(), tensor->name + ".data_offsets",
                        "begins at {}, but the array before it ends at {}", tensor->begin, at);
    at = tensor->end;
  }
  if (const std::int64_t data_bytes = source.size() - header.data_begin; at != data_bytes)
    throw parse_error(source.name(), "", "the arrays end at byte {}, but there are {} bytes of data", at,
                      data_bytes);
}

std::unique_ptr<ArrayFile> open_safetensors(const ByteSource& source) {
  SafetensorsHeader header = read_safetensors_header(source);
  std::vector<ArrayFile::Stored> arrays;
  for (const SafetensorsTensor& tensor : header.tensors)
    arrays.push_back({array_of(tensor, source.name()), bytes_at(source, header.data_begin + tensor.begin)});
  require_gapless(header, source);
  return std::make_unique<ArrayFile>(source.name(), FileFormat::safetensors, source.size(), std::move(arrays),
                                     std::move(header.metadata));
}

}  // namespace evenkeel::internal
