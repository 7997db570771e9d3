#include "evenkeel/io/internal/array_writer.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/shape.h"
#include "evenkeel/io/internal/zip_sink.h"

namespace evenkeel::internal {

namespace {

std::int64_t size_of(const ArrayToWrite& array) {
  const auto elements = count_elements(array.shape, item_size(array.dtype));
  EVENKEEL_CHECK(elements.has_value());
  return *elements * item_size(array.dtype);
}

std::string_view safetensors_name(Dtype type) {
  switch (type) {
    case Dtype::i8:
      return "I8";
    case Dtype::i16:
      return "I16";
    case Dtype::i32:
      return "I32";
    case Dtype::i64:
      return "I64";
    case Dtype::f32:
      return "F32";
    default:
      break;
  }
  throw Unsupported(fmt::format("writing {} arrays", name_of(type)));
}

std::string safetensors_header(const std::vector<ArrayToWrite>& arrays,
                               const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t at = 0;
  for (const ArrayToWrite& array : arrays) {
    const std::int64_t end = at + size_of(array);
    header[array.name] = {
        {"dtype", safetensors_name(array.dtype)}, {"shape", array.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the arrays begin aligned
  const auto length = std::bit_cast<std::array<char, 8>>(static_cast<std::uint64_t>(text.size()));
  return std::string(length.data(), length.size()) + text;
}

void write_pieces(const ArrayToWrite& array, AtomicFile& file) {
  std::int64_t written = 0;
  std::vector<std::byte> piece;
  for (const NextPiece next = array.pieces(); next(piece);) {
    file.write(piece);
    written += std::ssize(piece);
  }
  EVENKEEL_CHECK(written == size_of(array));
}

void write_flat(std::vector<ArrayToWrite> arrays, const std::map<std::string, std::string>& metadata,
                const std::string& path, FileFormat format) {
  AtomicFile file(path);
  if (format == FileFormat::npy) {
    EVENKEEL_CHECK(arrays.size() == 1);
    file.write(npy_header_text(arrays.front().dtype, arrays.front().shape));
  } else {
    // Wide elements first: then every array begins at a multiple of its element size.
    std::stable_sort(arrays.begin(), arrays.end(), [](const ArrayToWrite& a, const ArrayToWrite& b) {
      return item_size(a.dtype) > item_size(b.dtype);
    });
    file.write(safetensors_header(arrays, metadata));
  }
  for (const ArrayToWrite& array : arrays) write_pieces(array, file);
  file.commit();
}

// One member of an npz while libzip pulls its bytes.
struct Pull {
  const ArrayToWrite* array = nullptr;
  NextPiece next;
  std::vector<std::byte> piece;
  std::size_t taken = 0;
  std::exception_ptr thrown;  // exceptions must not pass through C
  zip_error_t error{};
};

void begin_pull(Pull& pull) {
  const std::string header = npy_header_text(pull.array->dtype, pull.array->shape);
  const auto bytes = std::as_bytes(std::span(header));
  pull.piece.assign(bytes.begin(), bytes.end());
  pull.taken = 0;
  pull.next = pull.array->pieces();
}

zip_int64_t pull_some(Pull& pull, void* data, zip_uint64_t length) {
  try {
    while (pull.taken == pull.piece.size()) {
      pull.taken = 0;
      pull.piece.clear();
      if (!pull.next(pull.piece)) return 0;
    }
  } catch (...) {
    pull.thrown = std::current_exception();
    zip_error_set(&pull.error, ZIP_ER_READ, 0);
    return -1;
  }
  const std::size_t count = std::min(static_cast<std::size_t>(length), pull.piece.size() - pull.taken);
  std::memcpy(data, pull.piece.data() + pull.taken, count);
  pull.taken += count;
  return static_cast<zip_int64_t>(count);
}

zip_int64_t serve_pull(void* state, void* data, zip_uint64_t length, zip_source_cmd_t command) {
  Pull& pull = *static_cast<Pull*>(state);
  switch (command) {
    case ZIP_SOURCE_OPEN:
      begin_pull(pull);
      return 0;
    case ZIP_SOURCE_READ:
      return pull_some(pull, data, length);
    case ZIP_SOURCE_CLOSE:
      return 0;
    case ZIP_SOURCE_STAT: {
      zip_stat_t stat;
      zip_stat_init(&stat);
      const std::string header = npy_header_text(pull.array->dtype, pull.array->shape);
      stat.size = header.size() + static_cast<zip_uint64_t>(size_of(*pull.array));
      stat.mtime = 315532800;  // 1980, zip's first day: the same content gives the same file
      stat.valid = ZIP_STAT_SIZE | ZIP_STAT_MTIME;
      std::memcpy(data, &stat, sizeof(stat));
      return sizeof(stat);
    }
    case ZIP_SOURCE_ERROR:
      return zip_error_to_data(&pull.error, data, length);
    case ZIP_SOURCE_FREE:
      return 0;
    case ZIP_SOURCE_SUPPORTS:
      return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                            ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                            ZIP_SOURCE_SUPPORTS, -1);
    default:
      zip_error_set(&pull.error, ZIP_ER_OPNOTSUPP, 0);
      return -1;
  }
}

void add_member(zip_t* archive, Pull& pull, const std::string& path) {
  zip_source_t* source = zip_source_function(archive, serve_pull, &pull);
  const std::string name = pull.array->name + ".npy";
  const zip_int64_t index =
      source == nullptr ? -1 : zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    const std::string why = zip_strerror(archive);
    zip_source_free(source);
    zip_discard(archive);
    throw InvalidArgument(path, "cannot be written: " + why);
  }
  // Counts are mostly zeros and would shrink more than a reader may allow (ArrayFile::max_whole_bytes).
  const zip_int32_t method = pull.array->dtype == Dtype::i64 ? ZIP_CM_STORE : ZIP_CM_DEFLATE;
  zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), method, 6);
}

void write_npz(const std::vector<ArrayToWrite>& arrays, const std::string& path) {
  AtomicFile file(path);
  ZipSink sink(file);
  zip_error_t error{};
  zip_error_init(&error);
  zip_t* archive = sink.open(&error);
  if (archive == nullptr)
    throw InvalidArgument(path, fmt::format("cannot be written: {}", zip_error_strerror(&error)));
  std::vector<Pull> pulls(arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    pulls[i].array = &arrays[i];
    zip_error_init(&pulls[i].error);
    add_member(archive, pulls[i], path);
  }
  if (zip_close(archive) != 0) {
    const std::string why = zip_strerror(archive);
    zip_discard(archive);
    for (const Pull& pull : pulls)
      if (pull.thrown) std::rethrow_exception(pull.thrown);
    sink.rethrow();
    throw InvalidArgument(path, "cannot be written: " + why);
  }
  file.commit();
}

}  // namespace

ArrayToWrite integers_to_write(std::string name, std::vector<std::int64_t> shape,
                               std::span<const std::int64_t> values) {
  const auto pieces = [values] {
    // Plainly in pieces of 1 MiB: libzip copies what it is given.
    return [rest = std::as_bytes(values)](std::vector<std::byte>& piece) mutable {
      if (rest.empty()) return false;
      const auto now = rest.first(std::min(rest.size(), std::size_t{1} << 20));
      piece.assign(now.begin(), now.end());
      rest = rest.subspan(now.size());
      return true;
    };
  };
  return {std::move(name), Dtype::i64, std::move(shape), pieces};
}

void write_arrays(const std::vector<ArrayToWrite>& arrays, const std::map<std::string, std::string>& metadata,
                  const std::string& path, FileFormat format) {
  if (format == FileFormat::npz) return write_npz(arrays, path);
  write_flat(arrays, metadata, path, format);
}

}  // namespace evenkeel::internal
