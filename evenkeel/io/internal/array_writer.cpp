#include "evenkeel/io/internal/array_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <utility>

#include "evenkeel/base/check.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel::internal {

namespace {

std::string safetensors_header(const std::vector<ArrayToWrite>& arrays,
                               const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t at = 0;
  for (const ArrayToWrite& array : arrays) {
    const std::int64_t end = at + array.num_bytes();
    header[array.name] = {{"dtype", dtypes()[static_cast<std::size_t>(array.dtype)].safetensors},
                          {"shape", array.shape},
                          {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the arrays begin aligned
  const auto length = std::bit_cast<std::array<char, 8>>(static_cast<std::uint64_t>(text.size()));
  return std::string(length.data(), length.size()) + text;
}

MemberToWrite npz_member(const ArrayToWrite& array) {
  const std::string header = npy_header_text(array.dtype, array.shape);
  const auto pieces = [header, pieces = array.pieces] {
    return [header, next = pieces(), begun = false]() mutable {
      return std::exchange(begun, true) ? next() : std::as_bytes(std::span(header));
    };
  };
  // Counts are not compressed: they are mostly zeros and would shrink by more than a reader allows
  // (ArrayFile::max_whole_bytes).
  return {.name = array.name + ".npy",
          .size = std::ssize(header) + array.num_bytes(),
          .deflated = array.dtype != Dtype::i64,
          .pieces = pieces};
}

void write_pieces(const ArrayToWrite& array, AtomicFile& file) {
  std::int64_t written = 0;
  const NextPiece next = array.pieces();
  for (auto piece = next(); !piece.empty(); piece = next()) {
    file.write(piece);
    written += std::ssize(piece);
  }
  EVENKEEL_CHECK(written == array.num_bytes());
}

}  // namespace

std::int64_t ArrayToWrite::num_bytes() const {
  const auto elements = count_elements(shape, item_size(dtype));
  EVENKEEL_CHECK(elements.has_value());
  return *elements * item_size(dtype);
}

ArrayToWrite integers_to_write(std::string name, std::vector<std::int64_t> shape,
                               std::span<const std::int64_t> values, std::shared_ptr<const void> owner) {
  const auto pieces = [values, owner = std::move(owner)] {
    return [rest = std::as_bytes(values)]() mutable { return std::exchange(rest, {}); };
  };
  return {std::move(name), Dtype::i64, std::move(shape), pieces};
}

void write_arrays(std::vector<ArrayToWrite> arrays, const std::map<std::string, std::string>& metadata,
                  const std::string& path, FileFormat format) {
  if (format == FileFormat::npz) {
    std::vector<MemberToWrite> members;
    for (const ArrayToWrite& array : arrays) members.push_back(npz_member(array));
    return write_zip(members, path);
  }
  AtomicFile file(path);
  if (format == FileFormat::npy) {
    EVENKEEL_CHECK(arrays.size() == 1);
    file.write(npy_header_text(arrays.front().dtype, arrays.front().shape));
  } else {
    // Arrays with wide elements come first, so that every array begins at a multiple of its element size.
    std::ranges::stable_sort(arrays, std::greater<>(),
                             [](const ArrayToWrite& array) { return item_size(array.dtype); });
    file.write(safetensors_header(arrays, metadata));
  }
  for (const ArrayToWrite& array : arrays) write_pieces(array, file);
  file.commit();
}

}  // namespace evenkeel::internal
