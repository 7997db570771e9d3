#include "evenkeel/io/internal/zip_archive.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <deque>
#include <exception>
#include <utility>

#include "evenkeel/io/atomic_file.h"
#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel::internal {

// A source or target for libzip, which calls it with commands.
struct ZipEnd {
  using Command = std::function<zip_int64_t(ZipEnd& end, zip_source_cmd_t, void* data, zip_uint64_t length)>;

  zip_int64_t supports = 0;  // supported commands
  std::int64_t size = -1;    // bytes that can be read; -1: nothing yet
  Command answer;            // handles all commands except those for errors, size and closing
  zip_error_t error = {};
  std::exception_ptr thrown = {};  // stored here, since exceptions must not pass through C code

  zip_int64_t refuse(int code, int system_error = 0) {
    zip_error_set(&error, code, system_error);
    return -1;
  }
  // A source that libzip frees; this object must outlive it. Null if out of memory.
  zip_source_t* source() { return zip_source_function_create(&ZipEnd::serve, this, nullptr); }

 private:
  static zip_int64_t serve(void* self, void* data, zip_uint64_t length, zip_source_cmd_t command) {
    ZipEnd& end = *static_cast<ZipEnd*>(self);
    try {
      switch (command) {
        case ZIP_SOURCE_ERROR:
          return zip_error_to_data(&end.error, data, length);
        case ZIP_SOURCE_CLOSE:
        case ZIP_SOURCE_FREE:
          return 0;
        case ZIP_SOURCE_SUPPORTS:
          return end.supports;
        case ZIP_SOURCE_STAT: {
          if (end.size < 0) return end.refuse(ZIP_ER_READ, ENOENT);
          auto* const stat = ZIP_SOURCE_GET_ARGS(zip_stat_t, data, length, &end.error);
          if (stat == nullptr) return -1;
          zip_stat_init(stat);
          stat->size = static_cast<zip_uint64_t>(end.size);
          stat->valid = ZIP_STAT_SIZE;
          return sizeof(*stat);
        }
        default:
          return end.answer(end, command, data, length);
      }
    } catch (...) {
      end.thrown = std::current_exception();
      return end.refuse(ZIP_ER_READ);
    }
  }
};

namespace {

// Returns null if the archive cannot be opened, with the reason in `why`.
zip_t* open_zip(ZipEnd& end, int flags, std::string& why) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const source = end.source();
  zip_t* const archive = zip_open_from_source(source, flags, &error);
  if (archive == nullptr) {
    zip_source_free(source);
    why = zip_error_strerror(&error);
  }
  zip_error_fini(&error);
  return archive;
}

ZipEnd::Command bytes_of(const ByteSource& source) {
  return [source, at = std::int64_t{0}](ZipEnd& end, zip_source_cmd_t command, void* data,
                                        zip_uint64_t length) mutable -> zip_int64_t {
    switch (command) {
      case ZIP_SOURCE_OPEN:
        at = 0;
        return 0;
      case ZIP_SOURCE_READ: {
        const auto count = std::min(static_cast<std::int64_t>(length), source.size() - at);
        source.read(at, {static_cast<std::byte*>(data), static_cast<std::size_t>(count)});
        at += count;
        return count;
      }
      case ZIP_SOURCE_TELL:
        return at;
      case ZIP_SOURCE_SEEK: {
        const zip_int64_t to = zip_source_seek_compute_offset(static_cast<zip_uint64_t>(at),
                                                              static_cast<zip_uint64_t>(source.size()), data,
                                                              length, &end.error);
        if (to < 0) return -1;
        at = to;
        return 0;
      }
      default:
        return end.refuse(ZIP_ER_OPNOTSUPP);
    }
  };
}

ZipEnd::Command pieces_of(const std::function<NextPiece()>& pieces) {
  return [pieces, next = NextPiece(), piece = std::span<const std::byte>()](
             ZipEnd& end, zip_source_cmd_t command, void* data, zip_uint64_t length) mutable -> zip_int64_t {
    if (command == ZIP_SOURCE_OPEN) {
      next = pieces();
      piece = {};
      return 0;
    }
    if (command != ZIP_SOURCE_READ) return end.refuse(ZIP_ER_OPNOTSUPP);
    if (piece.empty()) piece = next();
    const auto now = piece.first(std::min(static_cast<std::size_t>(length), piece.size()));
    std::ranges::copy(now, static_cast<std::byte*>(data));
    piece = piece.subspan(now.size());
    return std::ssize(now);
  };
}

ZipEnd::Command writes_to(AtomicFile& file) {
  return [&file](ZipEnd& end, zip_source_cmd_t command, void* data, zip_uint64_t length) -> zip_int64_t {
    switch (command) {
      case ZIP_SOURCE_WRITE:
        file.write(std::span(static_cast<const std::byte*>(data), static_cast<std::size_t>(length)));
        return static_cast<zip_int64_t>(length);
      case ZIP_SOURCE_SEEK_WRITE: {
        const auto* const to = ZIP_SOURCE_GET_ARGS(zip_source_args_seek_t, data, length, &end.error);
        if (to == nullptr) return -1;
        file.seek(to->offset, to->whence);
        return 0;
      }
      case ZIP_SOURCE_TELL_WRITE:
        return file.position();
      case ZIP_SOURCE_BEGIN_WRITE:
      case ZIP_SOURCE_COMMIT_WRITE:
      case ZIP_SOURCE_ROLLBACK_WRITE:
      case ZIP_SOURCE_REMOVE:
        return 0;  // AtomicFile decides whether the file appears
      default:
        return end.refuse(ZIP_ER_OPNOTSUPP);
    }
  };
}

}  // namespace

// Writes through AtomicFile: libzip's own temporary file would stay behind if the program ended by a signal.
void write_zip(const std::vector<MemberToWrite>& members, const std::string& path) {
  AtomicFile file(path);
  ZipEnd output{.supports = ZIP_SOURCE_SUPPORTS_WRITABLE, .answer = writes_to(file)};
  std::string why;
  std::deque<ZipEnd> inputs;  // a deque, since libzip keeps pointers to the elements
  std::unique_ptr<zip_t, decltype(&zip_discard)> archive(open_zip(output, ZIP_CREATE | ZIP_TRUNCATE, why),
                                                         zip_discard);
  if (archive == nullptr) throw InvalidArgument(path, "cannot be written: " + why);
  const auto refuse = [&] {
    throw InvalidArgument(path, fmt::format("cannot be written: {}", zip_strerror(archive.get())));
  };
  for (const MemberToWrite& member : members) {
    ZipEnd& input = inputs.emplace_back(ZipEnd{
        .supports = ZIP_SOURCE_SUPPORTS_READABLE, .size = member.size, .answer = pieces_of(member.pieces)});
    zip_source_t* const source = input.source();
    const zip_int64_t added = zip_file_add(archive.get(), member.name.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (added < 0) {
      zip_source_free(source);
      refuse();
    }
    const auto index = static_cast<zip_uint64_t>(added);
    zip_set_file_compression(archive.get(), index, member.deflated ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 6);
    constexpr std::time_t first_day = 315532800;  // 1980: the same content gives the same file
    zip_file_set_mtime(archive.get(), index, first_day, 0);
  }
  if (zip_close(archive.get()) != 0) {
    inputs.push_back(output);
    for (const ZipEnd& end : inputs)
      if (end.thrown) std::rethrow_exception(end.thrown);
    refuse();
  }
  static_cast<void>(archive.release());
  file.commit();
}

ZipArchive::ZipArchive(const ByteSource& source, int max_members)
    : source_(source),
      input_(new ZipEnd{
          .supports = ZIP_SOURCE_SUPPORTS_SEEKABLE, .size = source.size(), .answer = bytes_of(source)}),
      archive_(nullptr, zip_discard) {
  std::string why;
  archive_.reset(open_zip(*input_, ZIP_RDONLY, why));
  if (archive_ == nullptr) throw ParseError(name(), "", "is not a readable zip archive: " + why);
  list_members(max_members);
}

ZipArchive::~ZipArchive() = default;

void ZipArchive::list_members(int max_members) {
  const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
  if (count > max_members)
    throw parse_error(name(), "", "has {} members; at most {} are read", count, max_members);
  members_.reserve(static_cast<std::size_t>(count));
  std::int64_t packed_bytes = 0;
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    zip_stat_init(&stat);
    constexpr zip_uint64_t needed = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE |
                                    ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if (zip_stat_index(archive_.get(), static_cast<zip_uint64_t>(i), 0, &stat) != 0 ||
        (stat.valid & needed) != needed)
      throw ParseError(name(), fmt::format("member {}", i), "has no readable directory entry");
    if (stat.size > static_cast<zip_uint64_t>(std::int64_t{1} << 62))
      throw parse_error(name(), stat.name, "claims {} bytes, which is impossible", stat.size);
    // Overlapping members could make a small file unpack to a huge amount of data.
    if (stat.comp_size > static_cast<zip_uint64_t>(file_size() - packed_bytes))
      throw ParseError(
          name(), stat.name,
          "overlaps another member: it and the members before it are together longer than the file");
    packed_bytes += static_cast<std::int64_t>(stat.comp_size);
    members_.push_back({.name = stat.name,
                        .index = static_cast<std::uint64_t>(i),
                        .size = static_cast<std::int64_t>(stat.size),
                        .method = stat.comp_method,
                        .encrypted = stat.encryption_method != ZIP_EM_NONE});
    by_name_.emplace(members_.back().name, &members_.back());
  }
  intact_.resize(members_.size());
}

const ZipArchive::Member* ZipArchive::find(std::string_view member) const {
  const auto found = by_name_.find(member);
  if (by_name_.count(member) > 1) throw ParseError(name(), std::string(member), "is in the archive twice");
  return found == by_name_.end() ? nullptr : found->second;
}

ZipMemberReader::ZipMemberReader(std::shared_ptr<const ZipArchive> archive, const ZipArchive::Member& member,
                                 std::string where)
    : archive_(std::move(archive)), member_(member), where_(std::move(where)), file_(nullptr, zip_fclose) {}

void ZipMemberReader::read(std::int64_t offset, std::span<std::byte> out) {
  if (file_ == nullptr || offset < at_) reopen();
  std::array<std::byte, 1 << 15> skipped;
  while (at_ < offset)
    take(std::span(skipped).first(static_cast<std::size_t>(std::min(offset - at_, std::ssize(skipped)))));
  take(out);
  if (at_ != member_.size || archive_->intact_[member_.index]) return;
  // libzip compares the CRC-32 at the end of a member, which needs one more read.
  if (unpack(std::span(skipped).first(1)) != 0)
    refuse(fmt::format("is longer than its stated {} bytes", member_.size));
  archive_->intact_[member_.index] = true;
}

void ZipMemberReader::require_intact() {
  // Reading zero bytes at the end unpacks all bytes before it.
  if (!archive_->intact_[member_.index]) read(member_.size, {});
}

void ZipMemberReader::reopen() {
  file_.reset(zip_fopen_index(archive_->archive_.get(), member_.index, 0));
  if (file_ == nullptr) refuse(fmt::format("cannot be unpacked: {}", zip_strerror(archive_->archive_.get())));
  at_ = 0;
}

void ZipMemberReader::take(std::span<std::byte> out) {
  while (!out.empty()) {
    const std::int64_t got = unpack(out);
    if (got == 0) refuse(fmt::format("ends at byte {}, before its stated size", at_));
    at_ += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::int64_t ZipMemberReader::unpack(std::span<std::byte> out) {
  const zip_int64_t got = zip_fread(file_.get(), out.data(), out.size());
  if (got >= 0) return got;
  zip_error_t* const error = zip_file_get_error(file_.get());
  refuse(zip_error_code_zip(error) == ZIP_ER_CRC
             ? "is damaged: its bytes have another CRC-32 than the archive says"
             : fmt::format("cannot be unpacked: {}", zip_error_strerror(error)));
}

void ZipMemberReader::refuse(const std::string& why) {
  file_.reset();
  throw ParseError(archive_->name(), where_, why);
}

}  // namespace evenkeel::internal
