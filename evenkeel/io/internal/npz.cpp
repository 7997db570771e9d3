// npz: a zip archive of npy files. Members are streamed, never unpacked whole: the sizes in an archive are
// claims.
#include <algorithm>
#include <set>
#include <utility>

#include "evenkeel/io/internal/formats.h"
#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/zip_archive.h"

namespace evenkeel::internal {

namespace {

constexpr int max_members = 1024;

ArrayFile::Stored array_of(const std::shared_ptr<const ZipArchive>& archive, const ZipArchive::Member& member,
                           const std::string& name) {
  const std::string& file = archive->name();
  if (member.encrypted) throw ParseError(file, name, "is encrypted");
  if (!member.stored() && !member.deflated())
    throw parse_error(file, name, "is compressed by zip method {}; stored and deflated are read",
                      member.method);
  ZipMemberReader reader(archive, member, name);
  const auto read = [&](std::int64_t offset, std::span<std::byte> out) { reader.read(offset, out); };
  NpyHeader header = read_npy_header(read, member.size, file, name + ".");
  header.array.name = name;
  const auto open = [=, &member, begin = header.data_begin] {
    const auto opened = std::make_shared<ZipMemberReader>(archive, member, name);
    return [=](std::int64_t first, std::span<std::byte> out) {
      opened->require_intact();
      opened->read(begin + first, out);
    };
  };
  return {std::move(header.array), open};
}

}  // namespace

std::unique_ptr<ArrayFile> open_npz(const ByteSource& source) {
  const auto archive = ZipArchive::open(source, max_members);
  std::vector<ArrayFile::Stored> arrays;
  std::set<std::string> names;
  for (const ZipArchive::Member& member : archive->members()) {
    if (!member.name.ends_with(".npy")) continue;
    const std::string name = member.name.substr(0, member.name.size() - 4);
    if (!names.insert(name).second) throw ParseError(source.name(), name, "is in the archive twice");
    arrays.push_back(array_of(archive, member, name));
  }
  const std::int64_t max_whole_bytes =
      (std::int64_t{1} << 20) + 64 * std::min(source.size(), std::int64_t{1} << 50);
  return std::make_unique<ArrayFile>(source.name(), FileFormat::npz, max_whole_bytes, std::move(arrays));
}

}  // namespace evenkeel::internal
