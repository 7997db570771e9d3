// Zip archives as readers meet them: the members there are, and their bytes from front to back. Nothing that
// an archive says of its sizes is believed, and what is read of a member counts only once its CRC-32 is that
// of the archive: whoever reads a member in part calls require_intact() first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/byte_source.h"

struct zip;
struct zip_file;

namespace evenkeel::internal {

struct ZipEnd;

class ZipArchive {
 public:
  struct Member {
    std::string name;
    std::uint64_t index = 0;
    std::int64_t size = 0;  // unpacked, as the archive claims
    int method = 0;
    bool encrypted = false;

    bool stored() const { return method == 0; }    // ZIP_CM_STORE
    bool deflated() const { return method == 8; }  // ZIP_CM_DEFLATE
  };

  // Throws ParseError if it is no zip archive, has more members than `max_members`, one claims an impossible
  // size, or all together are longer than the file, so that some overlap.
  ZipArchive(const ByteSource& source, int max_members);
  ~ZipArchive();

  const std::string& name() const { return source_.name(); }
  std::int64_t file_size() const { return source_.size(); }
  const std::vector<Member>& members() const { return members_; }
  // nullptr where there is none. Throws ParseError if there are several.
  const Member* find(std::string_view member) const;

 private:
  friend class ZipMemberReader;

  void list_members(int max_members);

  ByteSource source_;
  std::unique_ptr<ZipEnd> input_;
  std::unique_ptr<zip, void (*)(zip*)> archive_;
  std::vector<Member> members_;
  std::multimap<std::string_view, const Member*> by_name_;
  mutable std::vector<bool> intact_;  // of each member, whether its CRC-32 was compared
};

// The bytes of one member, in order; going back starts over.
class ZipMemberReader {
 public:
  // `where` is how messages call the member.
  ZipMemberReader(std::shared_ptr<const ZipArchive> archive, const ZipArchive::Member& member,
                  std::string where);

  // Throws ParseError if the bytes are not there, or end the member and its CRC-32 is not theirs.
  void read(std::int64_t offset, std::span<std::byte> out);
  // Unpacks the member to its end, once for an archive, and compares its CRC-32. Throws ParseError if it is
  // another. Not for several threads at once, as everything of an archive.
  void require_intact();

 private:
  void reopen();
  void take(std::span<std::byte> out);
  std::int64_t unpack(std::span<std::byte> out);
  [[noreturn]] void refuse(const std::string& why);

  std::shared_ptr<const ZipArchive> archive_;
  const ZipArchive::Member& member_;
  std::string where_;
  std::unique_ptr<zip_file, int (*)(zip_file*)> file_;
  std::int64_t at_ = 0;
};

// The next bytes, which stay until it is called again; none when there are no more.
using NextPiece = std::function<std::span<const std::byte>()>;

struct MemberToWrite {
  std::string name;
  std::int64_t size = 0;
  bool deflated = false;
  // Makes a walk through the member's bytes, from its start.
  std::function<NextPiece()> pieces;
};
// Throws InvalidArgument if it cannot be written, or whatever a member's pieces throw.
void write_zip(const std::vector<MemberToWrite>& members, const std::string& path);

}  // namespace evenkeel::internal
