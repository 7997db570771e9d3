// The input of a reader: a file on disk, or bytes in memory. Readers ask for the bytes they need and never
// map the file, so a file that shrinks or lies about its lengths ends in an error, not in a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace evenkeel {

// Copies are of the same file, which is closed with the last of them. A path is as good where one is wanted:
//
//   RoutingProfile profile = read_profile("profile.safetensors");
class ByteSource {
 public:
  // Throw ParseError if the file cannot be opened or is not an ordinary file. A folder has no bytes, and is
  // for those readers that say so: what else is asked of it than its name throws ParseError.
  ByteSource(const std::string& path);
  ByteSource(const char* path) : ByteSource(std::string(path)) {}
  // `name` stands in messages where a path would.
  ByteSource(std::vector<std::byte> bytes, std::string name);

  const std::string& name() const;
  bool is_folder() const;
  std::int64_t size() const;
  // Fills `out` from `offset` on. Throws ParseError if the file ends before.
  void read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  struct Content;
  std::shared_ptr<const Content> content_;
};

}  // namespace evenkeel
