// npz: a zip archive of npy files. Members are streamed, never unpacked whole: the sizes in an archive are
// claims.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/zip_archive.h"

namespace evenkeel::internal {

namespace {

constexpr int max_members = 1024;

class MemberArrayReader final : public ArrayReader {
 public:
  MemberArrayReader(const std::shared_ptr<const ZipArchive>& archive, std::uint64_t index,
                    const ArrayInfo& info, std::int64_t data_begin)
      : ArrayReader(archive->name(), info),
        archive_(archive),
        index_(index),
        member_(archive, index, info.name),
        data_begin_(data_begin) {}

 private:
  void fetch(std::int64_t first_byte, std::span<std::byte> out) override {
    require_intact(archive_, index_, info().name);
    member_.read(data_begin_ + first_byte, out);
  }

  std::shared_ptr<const ZipArchive> archive_;
  std::uint64_t index_;
  ZipMemberReader member_;
  std::int64_t data_begin_;
};

class NpzFile final : public ArrayFile {
 public:
  explicit NpzFile(std::shared_ptr<const ByteSource> source)
      : ArrayFile(source->name(), FileFormat::npz),
        archive_(ZipArchive::open(std::move(source), max_members)) {
    for (const ZipArchive::Member& member : archive_->members()) take_member(member);
  }

  std::int64_t max_whole_bytes() const override {
    return (std::int64_t{1} << 20) + 64 * std::min(archive_->file_size(), std::int64_t{1} << 50);
  }

 private:
  struct Place {
    std::uint64_t index;
    std::int64_t data_begin;
  };

  void take_member(const ZipArchive::Member& member) {
    std::string array = member.name;
    if (!array.ends_with(".npy")) return;
    array.resize(array.size() - 4);
    if (!names_.insert(array).second) throw ParseError(name(), array, "is in the archive twice");
    if (member.encrypted) throw ParseError(name(), array, "is encrypted");
    if (!member.stored() && !member.deflated())
      throw ParseError(
          name(), array,
          fmt::format("is compressed by zip method {}; stored and deflated are read", member.method));
    ZipMemberReader reader(archive_, member.index, array);
    const auto read = [&](std::int64_t offset, std::span<std::byte> out) { reader.read(offset, out); };
    NpyHeader header = read_npy_header(read, member.size, name(), array + ".");
    header.array.name = array;
    arrays_.push_back(std::move(header.array));
    places_.push_back({member.index, header.data_begin});
  }

  std::unique_ptr<ArrayReader> open(const ArrayInfo& array) const override {
    const Place& place = places_[static_cast<std::size_t>(&array - arrays_.data())];
    return std::make_unique<MemberArrayReader>(archive_, place.index, array, place.data_begin);
  }

  std::shared_ptr<const ZipArchive> archive_;
  std::set<std::string> names_;
  std::vector<Place> places_;  // one for each of arrays()
};

}  // namespace

std::unique_ptr<ArrayFile> open_npz(std::shared_ptr<const ByteSource> source) {
  return std::make_unique<NpzFile>(std::move(source));
}

}  // namespace evenkeel::internal
