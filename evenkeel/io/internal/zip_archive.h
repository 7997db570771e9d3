// Zip archives as readers meet them: the members there are, and their bytes from front to back. Nothing that
// an archive says of its sizes is believed, and what is read of a member counts only once its CRC-32 is that
// of the archive: whoever reads a member in part calls require_intact() first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/byte_source.h"

namespace evenkeel::internal {

class ZipArchive {
 public:
  struct Member {
    std::string name;
    std::uint64_t index = 0;
    std::int64_t size = 0;  // unpacked, as the archive claims
    int method = 0;
    bool encrypted = false;

    bool stored() const;
    bool deflated() const;
  };

  // Throws ParseError if it is no zip archive, has more members than `max_members`, one claims an impossible
  // size, or all together are longer than the file, so that some overlap.
  static std::shared_ptr<const ZipArchive> open(const ByteSource& source, int max_members);
  ~ZipArchive();
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  const std::string& name() const;
  std::int64_t file_size() const;
  const std::vector<Member>& members() const { return members_; }
  // nullptr where there is none. Throws ParseError if there are several.
  const Member* find(std::string_view member) const;

 private:
  friend class ZipMemberReader;
  friend void require_intact(const std::shared_ptr<const ZipArchive>& archive, std::uint64_t index,
                             const std::string& where);
  struct Handle;

  ZipArchive(const ByteSource& source, int max_members);
  void list_members(int max_members);

  std::unique_ptr<Handle> handle_;
  std::vector<Member> members_;
  std::vector<std::uint32_t> by_name_;  // places in members_
  mutable std::vector<bool> intact_;    // of each member, whether its CRC-32 was compared
};

// Unpacks a member to its end, once for an archive, and compares its CRC-32; `where` is how messages call it.
// Throws ParseError if it is another. Not for several threads at once, as everything of an archive.
void require_intact(const std::shared_ptr<const ZipArchive>& archive, std::uint64_t index,
                    const std::string& where);

// The bytes of one member, in order; going back starts over.
class ZipMemberReader {
 public:
  // `where` is how messages call the member.
  ZipMemberReader(std::shared_ptr<const ZipArchive> archive, std::uint64_t index, std::string where);
  ~ZipMemberReader();
  ZipMemberReader(const ZipMemberReader&) = delete;
  ZipMemberReader& operator=(const ZipMemberReader&) = delete;

  // Throws ParseError if the bytes are not there, or end the member and its CRC-32 is not theirs.
  void read(std::int64_t offset, std::span<std::byte> out);

 private:
  void close();
  void reopen();
  void take(std::span<std::byte> out);
  void require_end();

  std::shared_ptr<const ZipArchive> archive_;
  std::uint64_t index_;
  std::int64_t size_;
  std::string where_;
  void* file_ = nullptr;  // zip_file_t
  std::int64_t at_ = 0;
};

}  // namespace evenkeel::internal
