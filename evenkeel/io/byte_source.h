// The input of a reader: a file on disk, or bytes in memory. Readers ask for the bytes they need and never
// map the file, so a file that shrinks or has wrong lengths causes an error, not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace evenkeel {

// Copies share the file; the last copy closes it. A path converts to a ByteSource:
//
//   RoutingProfile profile = read_profile("profile.safetensors");
class ByteSource {
 public:
  // Throw ParseError if the file cannot be opened or is not a regular file. A folder is allowed, but only
  // name() and is_folder() work on it; size() and read() throw ParseError.
  ByteSource(const std::string& path);
  ByteSource(const char* path) : ByteSource(std::string(path)) {}
  // Messages use `name` in place of a path.
  ByteSource(std::vector<std::byte> bytes, std::string name);

  const std::string& name() const;
  bool is_folder() const;
  std::int64_t size() const;
  // Fills `out` from `offset` on. Throws ParseError if the file is too short.
  void read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  struct Content;
  std::shared_ptr<const Content> content_;
};

}  // namespace evenkeel
