// Where the bytes of a file come from: a file on disk, or memory. Readers ask for the bytes they need and
// never map the file, so a file that shrinks or lies about its lengths ends in an error, not in a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace evenkeel {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  const std::string& name() const { return name_; }
  std::int64_t size() const { return size_; }
  // Fills `out` from `offset` on. Throws ParseError if the file ends before.
  void read(std::int64_t offset, std::span<std::byte> out) const;

 protected:
  ByteSource(std::string name, std::int64_t size) : name_(std::move(name)), size_(size) {}
  void set_size(std::int64_t size) { size_ = size; }

 private:
  // Both are inside the size; throws ParseError if the bytes are not there all the same.
  virtual void fetch(std::int64_t offset, std::span<std::byte> out) const = 0;

  std::string name_;
  std::int64_t size_;
};

// Throws ParseError if the file cannot be opened or is not an ordinary file.
std::shared_ptr<const ByteSource> open_source(const std::string& path);
// `name` stands in messages where a path would.
std::shared_ptr<const ByteSource> memory_source(std::vector<std::byte> bytes, std::string name);

}  // namespace evenkeel
