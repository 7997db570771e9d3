#include "evenkeel/io/array_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/stop.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/text.h"

namespace evenkeel {

namespace {

// Elements converted at a time.
constexpr std::size_t block_elements = std::size_t{1} << 16;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A header length below 4 GiB before a brace; a JSON text has no zero bytes.
bool begins_like_safetensors(std::string_view head) {
  return head.size() >= 9 && head.substr(4, 4) == std::string_view("\0\0\0\0", 4) && head[8] == '{';
}

bool begins_like_json(std::string_view head) {
  head = internal::without_mark(head);
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (head[first] == '{' || head[first] == '[');
}

}  // namespace

std::string_view name_of(FileFormat format) {
  switch (format) {
    case FileFormat::safetensors:
      return "safetensors";
    case FileFormat::npy:
      return "npy";
    case FileFormat::npz:
      return "npz";
    case FileFormat::json:
      return "json";
  }
  return "unknown";
}

FileFormat detect_format(const ByteSource& source) {
  if (source.size() == 0) throw ParseError(source.name(), "", "is empty");
  std::array<std::byte, 64> bytes{};
  const auto count = static_cast<std::size_t>(std::min<std::int64_t>(source.size(), std::ssize(bytes)));
  source.read(0, std::span(bytes).first(count));
  const std::string_view head = as_text(std::span(bytes).first(count));
  if (head.starts_with("\x93NUMPY")) return FileFormat::npy;
  if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06")) return FileFormat::npz;
  if (begins_like_safetensors(head)) return FileFormat::safetensors;
  if (begins_like_json(head)) return FileFormat::json;
  throw ParseError(source.name(), "byte 0", "is neither safetensors, npz, npy nor JSON");
}

void ArrayReader::fetch_block(std::int64_t first, std::size_t count) {
  stop_if_asked();
  block_.resize(count * static_cast<std::size_t>(item_size(info_.dtype)));
  fetch(first * item_size(info_.dtype), block_);
}

void ArrayReader::require_inside(std::int64_t first, std::size_t count) const {
  if (first < 0 || first > info_.num_elements ||
      static_cast<std::int64_t>(count) > info_.num_elements - first)
    throw ParseError(file_, info_.name,
                     fmt::format("elements {}..{} asked for, but there are {}", first,
                                 first + static_cast<std::int64_t>(count), info_.num_elements));
}

void ArrayReader::read(std::int64_t first, std::span<std::int64_t> out) {
  require_inside(first, out.size());
  if (!is_integer(info_.dtype))
    throw ParseError(file_, info_.name, fmt::format("is {}, not integers", name_of(info_.dtype)));
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), block_elements);
    fetch_block(first, count);
    if (const auto broken = to_int64(info_.dtype, block_, out.first(count)))
      throw ParseError(file_, info_.name,
                       fmt::format("element {} is above 2^63-1", first + static_cast<std::int64_t>(*broken)));
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

void ArrayReader::read(std::int64_t first, std::span<float> out) {
  require_inside(first, out.size());
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), block_elements);
    fetch_block(first, count);
    to_float(info_.dtype, block_, out.first(count));
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

void ArrayReader::read(std::int64_t first, std::span<double> out) {
  require_inside(first, out.size());
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), block_elements);
    fetch_block(first, count);
    to_double(info_.dtype, block_, out.first(count));
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

void ArrayReader::read_whole(std::int64_t first, std::span<std::int64_t> out) {
  require_inside(first, out.size());
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), block_elements);
    fetch_block(first, count);
    if (const auto broken = to_whole(info_.dtype, block_, out.first(count)))
      throw ParseError(file_, info_.name,
                       fmt::format("element {} is not a whole number that is exact",
                                   first + static_cast<std::int64_t>(*broken)));
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

const ArrayInfo* ArrayFile::find(std::string_view array) const {
  const auto name = [&](std::uint32_t place) -> std::string_view { return arrays_[place].name; };
  std::call_once(indexed_, [&] {
    by_name_.resize(arrays_.size());
    std::iota(by_name_.begin(), by_name_.end(), std::uint32_t{0});
    std::stable_sort(by_name_.begin(), by_name_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return name(a) < name(b); });
  });
  EVENKEEL_CHECK(by_name_.size() == arrays_.size());
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), array,
                       [&](std::uint32_t place, std::string_view wanted) { return name(place) < wanted; });
  return found == by_name_.end() || name(*found) != array ? nullptr : &arrays_[*found];
}

const ArrayInfo& ArrayFile::at(std::string_view array) const {
  if (const ArrayInfo* info = find(array)) return *info;
  std::vector<std::string_view> names;
  for (const ArrayInfo& info : arrays_) names.push_back(info.name);
  constexpr std::size_t shown = 8;
  const bool more = names.size() > shown;
  if (more) names.resize(shown);
  throw ParseError(name_, std::string(array),
                   names.empty()
                       ? "no such array; the file has none"
                       : fmt::format("no such array; there are {}{}", fmt::join(names, ", "),
                                     more ? fmt::format(" and {} more", arrays_.size() - shown) : ""));
}

std::unique_ptr<ArrayReader> ArrayFile::reader(std::string_view array) const {
  return open(at(array));
}

std::unique_ptr<ArrayFile> open_array_file(const std::string& path) {
  return open_array_file(open_source(path));
}

std::unique_ptr<ArrayFile> open_array_file(std::shared_ptr<const ByteSource> source) {
  switch (detect_format(*source)) {
    case FileFormat::safetensors:
      return internal::open_safetensors(std::move(source));
    case FileFormat::npy:
      return internal::open_npy(std::move(source));
    case FileFormat::npz:
      return internal::open_npz(std::move(source));
    case FileFormat::json:
      break;
  }
  throw ParseError(source->name(), "", "is JSON where safetensors, npz or npy is needed");
}

namespace {

template <class Array, class Read>
Array read_all(const ArrayFile& file, std::string_view name, Read read) {
  const ArrayInfo& info = file.at(name);
  if (info.num_elements > file.max_whole_bytes() / item_size(info.dtype))
    throw ParseError(file.name(), info.name,
                     fmt::format("{} of {} take more memory than a file of this size may ask for",
                                 internal::to_text(info.shape), name_of(info.dtype)));
  Array array;
  array.shape = info.shape;
  array.values.resize(static_cast<std::size_t>(info.num_elements));
  read(*file.reader(name), std::span(array.values));
  return array;
}

}  // namespace

FloatArray read_floats(const ArrayFile& file, std::string_view array) {
  return read_all<FloatArray>(file, array,
                              [](ArrayReader& reader, std::span<float> out) { reader.read(0, out); });
}

DoubleArray read_doubles(const ArrayFile& file, std::string_view array) {
  return read_all<DoubleArray>(file, array,
                               [](ArrayReader& reader, std::span<double> out) { reader.read(0, out); });
}

IntArray read_integers(const ArrayFile& file, std::string_view array) {
  return read_all<IntArray>(file, array,
                            [](ArrayReader& reader, std::span<std::int64_t> out) { reader.read(0, out); });
}

IntArray read_whole_numbers(const ArrayFile& file, std::string_view array) {
  return read_all<IntArray>(
      file, array, [](ArrayReader& reader, std::span<std::int64_t> out) { reader.read_whole(0, out); });
}

std::string name_of_counts(const ArrayFile& file) {
  if (file.find("counts") != nullptr) return "counts";
  if (file.arrays().size() == 1) return file.arrays().front().name;
  throw ParseError(file.name(), "counts", "is missing, and there is more than one array");
}

}  // namespace evenkeel
