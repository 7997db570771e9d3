#include "evenkeel/io/internal/zip_archive.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/zip_end.h"

namespace evenkeel::internal {

namespace {

class Input final : public ZipEnd {
 public:
  explicit Input(ByteSource source) : source_(std::move(source)) {}

  const ByteSource& bytes() const { return source_; }

 private:
  zip_int64_t answer(zip_source_cmd_t command, void* data, zip_uint64_t length) override {
    switch (command) {
      case ZIP_SOURCE_OPEN:
        at_ = 0;
        return 0;
      case ZIP_SOURCE_CLOSE:
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
        return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                              ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE,
                                              ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS, -1);
      default:
        return refuse(ZIP_ER_OPNOTSUPP);
    }
  }

  ByteSource source_;
  std::int64_t at_ = 0;
};

}  // namespace

struct ZipArchive::Handle {
  explicit Handle(const ByteSource& source) : input(source) {}
  ~Handle() { zip_discard(archive); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  Input input;
  zip_t* archive = nullptr;
};

bool ZipArchive::Member::stored() const {
  return method == ZIP_CM_STORE;
}

bool ZipArchive::Member::deflated() const {
  return method == ZIP_CM_DEFLATE;
}

std::shared_ptr<const ZipArchive> ZipArchive::open(const ByteSource& source, int max_members) {
  return std::shared_ptr<const ZipArchive>(new ZipArchive(source, max_members));
}

ZipArchive::ZipArchive(const ByteSource& source, int max_members)
    : handle_(std::make_unique<Handle>(source)) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* served = handle_->input.source(&error);
  if (served != nullptr) handle_->archive = zip_open_from_source(served, ZIP_RDONLY, &error);
  if (handle_->archive == nullptr) {
    const std::string why = zip_error_strerror(&error);
    zip_source_free(served);
    zip_error_fini(&error);
    throw ParseError(name(), "", "is not a readable zip archive: " + why);
  }
  zip_error_fini(&error);
  list_members(max_members);
}

ZipArchive::~ZipArchive() = default;

const std::string& ZipArchive::name() const {
  return handle_->input.bytes().name();
}

std::int64_t ZipArchive::file_size() const {
  return handle_->input.bytes().size();
}

void ZipArchive::list_members(int max_members) {
  const zip_int64_t count = zip_get_num_entries(handle_->archive, 0);
  if (count > max_members)
    throw parse_error(name(), "", "has {} members; at most {} are read", count, max_members);
  members_.reserve(static_cast<std::size_t>(count));
  std::int64_t packed_bytes = 0;
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    zip_stat_init(&stat);
    constexpr zip_uint64_t needed = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE |
                                    ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if (zip_stat_index(handle_->archive, static_cast<zip_uint64_t>(i), 0, &stat) != 0 ||
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
  }
  intact_.resize(members_.size());
  by_name_.resize(members_.size());
  std::iota(by_name_.begin(), by_name_.end(), std::uint32_t{0});
  std::ranges::sort(by_name_, {},
                    [&](std::uint32_t place) -> std::string_view { return members_[place].name; });
}

const ZipArchive::Member* ZipArchive::find(std::string_view member) const {
  const auto name_at = [&](std::uint32_t place) -> std::string_view { return members_[place].name; };
  const auto found = std::ranges::equal_range(by_name_, member, {}, name_at);
  if (found.empty()) return nullptr;
  if (found.size() > 1) throw ParseError(name(), std::string(member), "is in the archive twice");
  return &members_[found.front()];
}

void require_intact(const std::shared_ptr<const ZipArchive>& archive, std::uint64_t index,
                    const std::string& where) {
  if (archive->intact_[index]) return;
  // Reading nothing at the end reads all before it.
  ZipMemberReader(archive, index, where).read(archive->members_[index].size, {});
}

ZipMemberReader::ZipMemberReader(std::shared_ptr<const ZipArchive> archive, std::uint64_t index,
                                 std::string where)
    : archive_(std::move(archive)),
      index_(index),
      size_(archive_->members_[index].size),
      where_(std::move(where)) {}

ZipMemberReader::~ZipMemberReader() {
  close();
}

void ZipMemberReader::close() {
  if (file_ != nullptr) zip_fclose(static_cast<zip_file_t*>(file_));
  file_ = nullptr;
}

void ZipMemberReader::read(std::int64_t offset, std::span<std::byte> out) {
  if (file_ == nullptr || offset < at_) reopen();
  std::array<std::byte, 1 << 15> skipped;
  while (at_ < offset)
    take(std::span(skipped).first(static_cast<std::size_t>(std::min(offset - at_, std::ssize(skipped)))));
  take(out);
  if (at_ == size_) require_end();
}

// libzip compares the CRC-32 when it meets the end of a member, which takes one more read.
void ZipMemberReader::require_end() {
  if (archive_->intact_[index_]) return;
  std::byte more{};
  const zip_int64_t got = zip_fread(static_cast<zip_file_t*>(file_), &more, 1);
  if (got == 0) {
    archive_->intact_[index_] = true;
    return;
  }
  zip_error_t* const error = zip_file_get_error(static_cast<zip_file_t*>(file_));
  const std::string why = got > 0 ? fmt::format("goes on behind its own {} bytes", size_)
                          : zip_error_code_zip(error) == ZIP_ER_CRC
                              ? std::string("is damaged: its bytes have another CRC-32 than the archive says")
                              : fmt::format("cannot be unpacked: {}", zip_error_strerror(error));
  close();
  throw ParseError(archive_->name(), where_, why);
}

void ZipMemberReader::reopen() {
  close();
  zip_t* archive = archive_->handle_->archive;
  file_ = zip_fopen_index(archive, index_, 0);
  if (file_ == nullptr)
    throw ParseError(archive_->name(), where_, std::string("cannot be unpacked: ") + zip_strerror(archive));
  at_ = 0;
}

void ZipMemberReader::take(std::span<std::byte> out) {
  zip_file_t* file = static_cast<zip_file_t*>(file_);
  while (!out.empty()) {
    const zip_int64_t got = zip_fread(file, out.data(), out.size());
    if (got <= 0) {
      const std::string why = got < 0 ? fmt::format("cannot be unpacked: {}", zip_file_strerror(file))
                                      : fmt::format("ends at byte {}, before its own size", at_);
      close();
      throw ParseError(archive_->name(), where_, why);
    }
    at_ += got;
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace evenkeel::internal
