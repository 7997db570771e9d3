// npz files: libzip takes the bytes of each member from here, and writes the archive into an AtomicFile. Left
// to itself it would write a file of its own beside, which nobody removes when the program ends by a signal.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <deque>
#include <memory>

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
    switch (command) {
      case ZIP_SOURCE_OPEN: {
        const auto header = std::as_bytes(std::span(header_));
        piece_.assign(header.begin(), header.end());
        taken_ = 0;
        next_ = array_.pieces();
        return 0;
      }
      case ZIP_SOURCE_READ:
        return read(data, length);
      case ZIP_SOURCE_STAT:
        return answer_size(data, length, std::ssize(header_) + array_.num_bytes());
      case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_READABLE;
      default:
        return refuse(ZIP_ER_OPNOTSUPP);
    }
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
      case ZIP_SOURCE_SEEK_WRITE: {
        const auto* const to = ZIP_SOURCE_GET_ARGS(zip_source_args_seek_t, data, length, &error_);
        if (to == nullptr) return -1;
        file_.seek(to->offset, to->whence);
        return 0;
      }
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

  AtomicFile& file_;
};

using Archive = std::unique_ptr<zip_t, decltype(&zip_discard)>;

void add_member(zip_t* archive, Member& member, const ArrayToWrite& array, const std::string& path) {
  zip_source_t* const source = member.source();
  const std::string name = array.name + ".npy";
  const zip_int64_t added = zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (added < 0) {
    zip_source_free(source);
    throw InvalidArgument(path, fmt::format("cannot be written: {}", zip_strerror(archive)));
  }
  const auto index = static_cast<zip_uint64_t>(added);
  // Counts are mostly zeros and would shrink more than a reader may allow (ArrayFile::max_whole_bytes).
  zip_set_file_compression(archive, index, array.dtype == Dtype::i64 ? ZIP_CM_STORE : ZIP_CM_DEFLATE, 6);
  constexpr std::time_t first_day = 315532800;  // 1980: the same content gives the same file
  zip_file_set_mtime(archive, index, first_day, 0);
}

}  // namespace

void write_npz(const std::vector<ArrayToWrite>& arrays, const std::string& path) {
  AtomicFile file(path);
  Output output(file);
  std::string why;
  std::deque<Member> members;  // which stay where they are
  Archive archive(output.open(ZIP_CREATE | ZIP_TRUNCATE, why), zip_discard);
  if (archive == nullptr) throw InvalidArgument(path, "cannot be written: " + why);
  for (const ArrayToWrite& array : arrays)
    add_member(archive.get(), members.emplace_back(array), array, path);
  if (zip_close(archive.get()) != 0) {
    for (const Member& member : members) member.rethrow();
    output.rethrow();
    throw InvalidArgument(path, fmt::format("cannot be written: {}", zip_strerror(archive.get())));
  }
  static_cast<void>(archive.release());
  file.commit();
}

}  // namespace evenkeel::internal
