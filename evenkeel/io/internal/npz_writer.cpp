// npz files: libzip takes the bytes of each member from here, and writes the archive into an AtomicFile. Left
// to itself it would write a file of its own beside, which nobody removes when the program ends by a signal.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>

#include "evenkeel/base/error.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/array_writer.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/zip_end.h"

namespace evenkeel::internal {

namespace {

// A member: its header, and then its pieces.
class Member final : public ZipEnd {
 public:
  explicit Member(const ArrayToWrite& array)
      : array_(array), header_(npy_header_text(array.dtype, array.shape)) {}

 private:
  zip_int64_t answer(zip_source_cmd_t command, void* data, zip_uint64_t length) override {
    constexpr std::time_t first_day =
        315532800;  // 1980, zip's first day: the same content gives the same file
    switch (command) {
      case ZIP_SOURCE_OPEN:
        begin();
        return 0;
      case ZIP_SOURCE_READ:
        return read(data, length);
      case ZIP_SOURCE_CLOSE:
        return 0;
      case ZIP_SOURCE_STAT:
        return answer_size(data, length, std::ssize(header_) + array_.num_bytes(), first_day);
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              ZIP_SOURCE_SUPPORTS, -1);
      default:
        return refuse(ZIP_ER_OPNOTSUPP);
    }
  }

  void begin() {
    const auto bytes = std::as_bytes(std::span(header_));
    piece_.assign(bytes.begin(), bytes.end());
    taken_ = 0;
    next_ = array_.pieces();
  }

  zip_int64_t read(void* data, zip_uint64_t length) {
    while (taken_ == piece_.size()) {
      taken_ = 0;
      piece_.clear();
      if (!next_(piece_)) return 0;
    }
    const std::size_t count = std::min(static_cast<std::size_t>(length), piece_.size() - taken_);
    std::memcpy(data, piece_.data() + taken_, count);
    taken_ += count;
    return static_cast<zip_int64_t>(count);
  }

  const ArrayToWrite& array_;
  std::string header_;
  NextPiece next_;
  std::vector<std::byte> piece_;
  std::size_t taken_ = 0;
};

// Where the archive goes.
class Output final : public ZipEnd {
 public:
  explicit Output(AtomicFile& file) : file_(file) {}

 private:
  zip_int64_t answer(zip_source_cmd_t command, void* data, zip_uint64_t length) override {
    switch (command) {
      case ZIP_SOURCE_WRITE:
        file_.write(std::span(static_cast<const std::byte*>(data), static_cast<std::size_t>(length)));
        return static_cast<zip_int64_t>(length);
      case ZIP_SOURCE_SEEK_WRITE:
        return seek(data, length);
      case ZIP_SOURCE_TELL_WRITE:
        return file_.position();
      case ZIP_SOURCE_STAT:
        return refuse(ZIP_ER_READ, ENOENT);  // there is no archive yet
      case ZIP_SOURCE_BEGIN_WRITE:
      case ZIP_SOURCE_COMMIT_WRITE:
      case ZIP_SOURCE_ROLLBACK_WRITE:
      case ZIP_SOURCE_REMOVE:
        return 0;  // whether the file appears is for its owner to say
      case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_WRITABLE;
      default:
        return refuse(ZIP_ER_OPNOTSUPP);
    }
  }

  zip_int64_t seek(void* data, zip_uint64_t length) {
    const auto* const to = ZIP_SOURCE_GET_ARGS(zip_source_args_seek_t, data, length, &error_);
    if (to == nullptr) return -1;
    if (to->whence == SEEK_END) return refuse(ZIP_ER_OPNOTSUPP);
    file_.seek(to->whence == SEEK_CUR ? file_.position() + to->offset : to->offset);
    return 0;
  }

  AtomicFile& file_;
};

void add_member(zip_t* archive, Member& member, const ArrayToWrite& array, const std::string& path) {
  zip_source_t* source = member.source(zip_get_error(archive));
  const std::string name = array.name + ".npy";
  const zip_int64_t index =
      source == nullptr ? -1 : zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    const std::string why = zip_strerror(archive);
    zip_source_free(source);
    zip_discard(archive);
    throw InvalidArgument(path, "cannot be written: " + why);
  }
  // Counts are mostly zeros and would shrink more than a reader may allow (ArrayFile::max_whole_bytes).
  const zip_int32_t method = array.dtype == Dtype::i64 ? ZIP_CM_STORE : ZIP_CM_DEFLATE;
  zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), method, 6);
}

}  // namespace

void write_npz(const std::vector<ArrayToWrite>& arrays, const std::string& path) {
  AtomicFile file(path);
  Output output(file);
  zip_error_t error{};
  zip_error_init(&error);
  zip_source_t* const source = output.source(&error);
  zip_t* const archive =
      source == nullptr ? nullptr : zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &error);
  if (archive == nullptr) {
    zip_source_free(source);
    throw InvalidArgument(path, fmt::format("cannot be written: {}", zip_error_strerror(&error)));
  }
  std::deque<Member> members;  // which stay where they are
  for (const ArrayToWrite& array : arrays) add_member(archive, members.emplace_back(array), array, path);
  if (zip_close(archive) != 0) {
    const std::string why = zip_strerror(archive);
    zip_discard(archive);
    for (const Member& member : members) member.rethrow();
    output.rethrow();
    throw InvalidArgument(path, "cannot be written: " + why);
  }
  file.commit();
}

}  // namespace evenkeel::internal
