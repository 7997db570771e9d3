#include "evenkeel/io/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/base/system_limits.h"

namespace evenkeel {

namespace {

std::string reason(int error) {
  return describe_errno(error);
}

class FileSource final : public ByteSource {
 public:
  explicit FileSource(const std::string& path)
      // Not waiting for a pipe's other end; an ordinary file does not mind.
      : ByteSource(path, 0), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (file_ < 0) throw ParseError(path, "", "cannot be opened: " + reason(errno));
    struct stat status {};
    const bool ordinary = ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
    if (!ordinary) {
      ::close(file_);
      throw ParseError(path, "",
                       S_ISDIR(status.st_mode) ? "is a folder, not a file" : "is not an ordinary file");
    }
    set_size(status.st_size);
  }
  ~FileSource() override { ::close(file_); }

 private:
  void fetch(std::int64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t got = ::pread(file_, out.data(), out.size(), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        throw ParseError(name(), fmt::format("byte {}", offset), "cannot be read: " + reason(errno));
      if (got == 0)
        throw ParseError(name(), fmt::format("byte {}", offset), "the file became shorter while read");
      out = out.subspan(static_cast<std::size_t>(got));
      offset += got;
    }
  }

  int file_;
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::vector<std::byte> bytes, std::string name)
      : ByteSource(std::move(name), static_cast<std::int64_t>(bytes.size())), bytes_(std::move(bytes)) {}

 private:
  void fetch(std::int64_t offset, std::span<std::byte> out) const override {
    std::copy_n(bytes_.begin() + offset, out.size(), out.begin());
  }

  std::vector<std::byte> bytes_;
};

}  // namespace

void ByteSource::read(std::int64_t offset, std::span<std::byte> out) const {
  if (out.empty()) return;
  if (offset < 0 || offset > size_ || std::ssize(out) > size_ - offset)
    throw ParseError(name_, fmt::format("byte {}", offset),
                     fmt::format("{} bytes expected, but the file ends at {}", out.size(), size_));
  fetch(offset, out);
}

std::shared_ptr<const ByteSource> open_source(const std::string& path) {
  return std::make_shared<FileSource>(path);
}

std::shared_ptr<const ByteSource> memory_source(std::vector<std::byte> bytes, std::string name) {
  return std::make_shared<MemorySource>(std::move(bytes), std::move(name));
}

}  // namespace evenkeel
