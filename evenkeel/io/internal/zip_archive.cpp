#include "evenkeel/io/internal/zip_archive.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <utility>

#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/zip_end.h"

namespace evenkeel::internal {

namespace {

class Input final : public ZipEnd {
 public:
  explicit Input(ByteSource source) : source_(std::move(source)) {}

 private:
  zip_int64_t answer(zip_source_cmd_t command, void* data, zip_uint64_t length) override {
    switch (command) {
      case ZIP_SOURCE_OPEN:
        at_ = 0;
        return 0;
      case ZIP_SOURCE_STAT:
        return answer_size(data, length, source_.size());
      case ZIP_SOURCE_READ: {
        const auto count = std::min(static_cast<std::int64_t>(length), source_.size() - at_);
        source_.read(at_, {static_cast<std::byte*>(data), static_cast<std::size_t>(count)});
        at_ += count;
        return count;
      }
      case ZIP_SOURCE_TELL:
        return at_;
      case ZIP_SOURCE_SEEK: {
        const zip_int64_t to = zip_source_seek_compute_offset(
            static_cast<zip_uint64_t>(at_), static_cast<zip_uint64_t>(source_.size()), data, length, &error_);
        if (to < 0) return -1;
        at_ = to;
        return 0;
      }
      case ZIP_SOURCE_SUPPORTS:
        return ZIP_SOURCE_SUPPORTS_SEEKABLE;
      default:
        return refuse(ZIP_ER_OPNOTSUPP);
    }
  }

  ByteSource source_;
  std::int64_t at_ = 0;
};

}  // namespace

std::shared_ptr<const ZipArchive> ZipArchive::open(const ByteSource& source, int max_members) {
  return std::shared_ptr<const ZipArchive>(new ZipArchive(source, max_members));
}

ZipArchive::ZipArchive(const ByteSource& source, int max_members)
    : source_(source), input_(std::make_unique<Input>(source)), archive_(nullptr, zip_discard) {
  std::string why;
  archive_.reset(input_->open(ZIP_RDONLY, why));
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
      throw parse_error(name(), stat.name, "claims {} bytes", stat.size);
    // Members that lie on each other would be read many times over.
    if (stat.comp_size > static_cast<zip_uint64_t>(file_size() - packed_bytes))
      throw ParseError(name(), stat.name,
                       "and the members before it are longer than the file; members overlap");
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
  // libzip compares the CRC-32 when it meets the end of a member, which takes one more read.
  if (unpack(std::span(skipped).first(1)) != 0)
    refuse(fmt::format("goes on behind its own {} bytes", member_.size));
  archive_->intact_[member_.index] = true;
}

void ZipMemberReader::require_intact() {
  // Reading nothing at the end reads all before it.
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
    if (got == 0) refuse(fmt::format("ends at byte {}, before its own size", at_));
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
