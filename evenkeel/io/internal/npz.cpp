// npz: a zip archive of npy files. Members are streamed, never unpacked whole: the sizes in an archive are
// claims.
#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/formats.h"

namespace evenkeel::internal {

namespace {

constexpr zip_int64_t max_members = 1024;

// libzip's view of a ByteSource.
struct Input {
  std::shared_ptr<const ByteSource> source;
  std::int64_t at = 0;
  zip_error_t error{};
};

zip_int64_t fill_stat(const Input& input, void* data, zip_uint64_t length) {
  if (length < sizeof(zip_stat_t)) return -1;
  zip_stat_t stat;
  zip_stat_init(&stat);
  stat.size = static_cast<zip_uint64_t>(input.source->size());
  stat.valid = ZIP_STAT_SIZE;
  std::memcpy(data, &stat, sizeof(stat));
  return sizeof(stat);
}

zip_int64_t read_some(Input& input, void* data, zip_uint64_t length) {
  const auto count = std::min(static_cast<std::int64_t>(length), input.source->size() - input.at);
  try {
    input.source->read(input.at, {static_cast<std::byte*>(data), static_cast<std::size_t>(count)});
  } catch (const ParseError&) {
    zip_error_set(&input.error, ZIP_ER_READ, 0);
    return -1;
  }
  input.at += count;
  return count;
}

zip_int64_t serve(void* state, void* data, zip_uint64_t length, zip_source_cmd_t command) {
  Input& input = *static_cast<Input*>(state);
  switch (command) {
    case ZIP_SOURCE_OPEN:
      input.at = 0;
      return 0;
    case ZIP_SOURCE_CLOSE:
      return 0;
    case ZIP_SOURCE_STAT:
      return fill_stat(input, data, length);
    case ZIP_SOURCE_READ:
      return read_some(input, data, length);
    case ZIP_SOURCE_TELL:
      return input.at;
    case ZIP_SOURCE_SEEK: {
      const zip_int64_t to = zip_source_seek_compute_offset(static_cast<zip_uint64_t>(input.at),
                                                            static_cast<zip_uint64_t>(input.source->size()),
                                                            data, length, &input.error);
      if (to < 0) return -1;
      input.at = to;
      return 0;
    }
    case ZIP_SOURCE_ERROR:
      return zip_error_to_data(&input.error, data, length);
    case ZIP_SOURCE_FREE:
      return 0;
    case ZIP_SOURCE_SUPPORTS:
      return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                            ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                            ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS, -1);
    default:
      zip_error_set(&input.error, ZIP_ER_OPNOTSUPP, 0);
      return -1;
  }
}

class Archive {
 public:
  explicit Archive(std::shared_ptr<const ByteSource> source)
      : input_{.source = std::move(source), .at = 0, .error = {}} {
    zip_error_init(&input_.error);
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t* served = zip_source_function_create(serve, &input_, &error);
    if (served != nullptr) archive_ = zip_open_from_source(served, ZIP_RDONLY, &error);
    if (archive_ == nullptr) {
      const std::string why = zip_error_strerror(&error);
      zip_source_free(served);
      zip_error_fini(&error);
      throw ParseError(name(), "", "is not a readable zip archive: " + why);
    }
    zip_error_fini(&error);
  }
  ~Archive() {
    zip_discard(archive_);
    zip_error_fini(&input_.error);
  }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  const std::string& name() const { return input_.source->name(); }
  std::int64_t file_size() const { return input_.source->size(); }
  zip_t* get() const { return archive_; }
  std::string error() const { return zip_strerror(archive_); }

 private:
  Input input_;
  zip_t* archive_ = nullptr;
};

// The bytes of one member, in order; going back starts over.
class Member {
 public:
  Member(std::shared_ptr<const Archive> archive, zip_uint64_t index, std::string where)
      : archive_(std::move(archive)), index_(index), where_(std::move(where)) {}
  ~Member() { close(); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void read(std::int64_t offset, std::span<std::byte> out) {
    if (file_ == nullptr || offset < at_) reopen();
    std::array<std::byte, 1 << 15> skipped;
    while (at_ < offset)
      take(std::span(skipped).first(static_cast<std::size_t>(std::min(offset - at_, std::ssize(skipped)))));
    take(out);
  }

 private:
  void close() {
    if (file_ != nullptr) zip_fclose(file_);
    file_ = nullptr;
  }
  void reopen() {
    close();
    file_ = zip_fopen_index(archive_->get(), index_, 0);
    if (file_ == nullptr)
      throw ParseError(archive_->name(), where_, "cannot be unpacked: " + archive_->error());
    at_ = 0;
  }
  void take(std::span<std::byte> out) {
    while (!out.empty()) {
      const zip_int64_t got = zip_fread(file_, out.data(), out.size());
      if (got <= 0) {
        const std::string why = got < 0 ? fmt::format("cannot be unpacked: {}", zip_file_strerror(file_))
                                        : fmt::format("ends at byte {}, before its own size", at_);
        close();
        throw ParseError(archive_->name(), where_, why);
      }
      at_ += got;
      out = out.subspan(static_cast<std::size_t>(got));
    }
  }

  std::shared_ptr<const Archive> archive_;
  zip_uint64_t index_;
  std::string where_;
  zip_file_t* file_ = nullptr;
  std::int64_t at_ = 0;
};

class MemberArrayReader final : public ArrayReader {
 public:
  MemberArrayReader(std::shared_ptr<const Archive> archive, zip_uint64_t index, const ArrayInfo& info,
                    std::int64_t data_begin)
      : ArrayReader(archive->name(), info), member_(archive, index, info.name), data_begin_(data_begin) {}

 private:
  void fetch(std::int64_t first_byte, std::span<std::byte> out) override {
    member_.read(data_begin_ + first_byte, out);
  }

  Member member_;
  std::int64_t data_begin_;
};

class NpzFile final : public ArrayFile {
 public:
  explicit NpzFile(std::shared_ptr<const ByteSource> source)
      : ArrayFile(source->name(), FileFormat::npz), archive_(std::make_shared<Archive>(std::move(source))) {
    const zip_int64_t count = zip_get_num_entries(archive_->get(), 0);
    if (count > max_members)
      throw ParseError(name(), "", fmt::format("has {} members; at most {} are read", count, max_members));
    for (zip_int64_t i = 0; i < count; ++i) take_member(static_cast<zip_uint64_t>(i));
  }

  std::int64_t max_whole_bytes() const override {
    return (std::int64_t{1} << 20) + 64 * std::min(archive_->file_size(), std::int64_t{1} << 50);
  }

 private:
  struct Place {
    zip_uint64_t index;
    std::int64_t data_begin;
  };

  void take_member(zip_uint64_t index) {
    zip_stat_t stat;
    zip_stat_init(&stat);
    constexpr zip_uint64_t needed =
        ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if (zip_stat_index(archive_->get(), index, 0, &stat) != 0 || (stat.valid & needed) != needed)
      throw ParseError(name(), fmt::format("member {}", index), "has no readable directory entry");
    std::string array(stat.name);
    if (!array.ends_with(".npy")) return;
    array.resize(array.size() - 4);
    if (find(array) != nullptr) throw ParseError(name(), array, "is in the archive twice");
    if (stat.encryption_method != ZIP_EM_NONE) throw ParseError(name(), array, "is encrypted");
    if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE)
      throw ParseError(
          name(), array,
          fmt::format("is compressed by zip method {}; stored and deflated are read", stat.comp_method));
    if (stat.size > static_cast<zip_uint64_t>(std::int64_t{1} << 62))
      throw ParseError(name(), array, fmt::format("claims {} bytes", stat.size));
    Member member(archive_, index, array);
    const auto read = [&](std::int64_t offset, std::span<std::byte> out) { member.read(offset, out); };
    NpyHeader header = read_npy_header(read, static_cast<std::int64_t>(stat.size), name(), array + ".");
    header.array.name = array;
    arrays_.push_back(std::move(header.array));
    places_.push_back({index, header.data_begin});
  }

  std::unique_ptr<ArrayReader> open(const ArrayInfo& array) const override {
    const Place& place = places_[static_cast<std::size_t>(&array - arrays_.data())];
    return std::make_unique<MemberArrayReader>(archive_, place.index, array, place.data_begin);
  }

  std::shared_ptr<const Archive> archive_;
  std::vector<Place> places_;  // one for each of arrays()
};

}  // namespace

std::unique_ptr<ArrayFile> open_npz(std::shared_ptr<const ByteSource> source) {
  return std::make_unique<NpzFile>(std::move(source));
}

}  // namespace evenkeel::internal
