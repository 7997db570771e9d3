// Reads and writes zip archives: their members, and each member's bytes in order. Sizes in an archive are not
// trusted. A member's bytes can be trusted only after its CRC-32 was compared, so call require_intact()
// before reading a part of a member.
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

  // Throws ParseError if the file is not a zip archive, has more than `max_members` members, a member claims
  // an impossible size, or members overlap, so that all together are longer than the file.
  ZipArchive(const ByteSource& source, int max_members);
  ~ZipArchive();

  const std::string& name() const { return source_.name(); }
  std::int64_t file_size() const { return source_.size(); }
  const std::vector<Member>& members() const { return members_; }
  // nullptr if there is no such member. Throws ParseError if there are several.
  const Member* find(std::string_view member) const;

 private:
  friend class ZipMemberReader;

  void list_members(int max_members);

  ByteSource source_;
  std::unique_ptr<ZipEnd> input_;
  std::unique_ptr<zip, void (*)(zip*)> archive_;
  std::vector<Member> members_;
  std::multimap<std::string_view, const Member*> by_name_;
  mutable std::vector<bool> intact_;  // by member: its CRC-32 was compared and is right
};

// Reads the bytes of one member in order. Reading backwards restarts at the beginning.
class ZipMemberReader {
 public:
  // `where` is the member's name in messages.
  ZipMemberReader(std::shared_ptr<const ZipArchive> archive, const ZipArchive::Member& member,
                  std::string where);

  // Throws ParseError if the member is too short, or if its end is reached and its CRC-32 is wrong.
  void read(std::int64_t offset, std::span<std::byte> out);
  // Unpacks the member to its end and compares its CRC-32, once for an archive. Throws ParseError if it is
  // wrong. Not thread-safe, like all functions of an archive.
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

// Returns the next bytes, valid until the next call; empty at the end.
using NextPiece = std::function<std::span<const std::byte>()>;

struct MemberToWrite {
  std::string name;
  std::int64_t size = 0;
  bool deflated = false;
  // Returns a function that yields the member's bytes piece by piece, from the start.
  std::function<NextPiece()> pieces;
};
// Throws InvalidArgument if the file cannot be written, and passes on exceptions from `pieces`.
void write_zip(const std::vector<MemberToWrite>& members, const std::string& path);

}  // namespace evenkeel::internal
