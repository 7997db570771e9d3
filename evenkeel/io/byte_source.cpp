#include "evenkeel/io/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/base/system_limits.h"

namespace evenkeel {

struct ByteSource::Content {
  ~Content() {
    if (file >= 0) ::close(file);
  }

  std::string name;
  bool is_folder = false;
  int file = -1;  // -1: `bytes` is the content
  std::vector<std::byte> bytes = {};
  std::int64_t size = 0;
};

ByteSource::ByteSource(const std::string& path) {
  const auto content = std::make_shared<Content>();
  content->name = path;
  content_ = content;
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    content->is_folder = true;
    return;
  }
  // O_NONBLOCK: opening a pipe must not wait for its other end. It has no effect on a regular file.
  content->file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (content->file < 0) throw ParseError(path, "", "cannot be opened: " + describe_errno(errno));
  if (::fstat(content->file, &status) != 0 || !S_ISREG(status.st_mode))
    throw ParseError(path, "", "is not an ordinary file");
  content->size = status.st_size;
}

ByteSource::ByteSource(std::vector<std::byte> bytes, std::string name) {
  const auto content = std::make_shared<Content>();
  content->name = std::move(name);
  content->size = std::ssize(bytes);
  content->bytes = std::move(bytes);
  content_ = content;
}

const std::string& ByteSource::name() const {
  return content_->name;
}

bool ByteSource::is_folder() const {
  return content_->is_folder;
}

std::int64_t ByteSource::size() const {
  if (is_folder()) throw ParseError(name(), "", "is a folder, not a file");
  return content_->size;
}

void ByteSource::read(std::int64_t offset, std::span<std::byte> out) const {
  if (out.empty()) return;
  if (offset < 0 || offset > size() || std::ssize(out) > size() - offset)
    throw ParseError(name(), fmt::format("byte {}", offset),
                     fmt::format("{} bytes expected, but the file ends at byte {}", out.size(), size()));
  if (content_->file < 0) {
    std::copy_n(content_->bytes.begin() + offset, out.size(), out.begin());
    return;
  }
  while (!out.empty()) {
    const ssize_t got = ::pread(content_->file, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw ParseError(
          name(), fmt::format("byte {}", offset),
          got < 0 ? "cannot be read: " + describe_errno(errno) : "the file became shorter while read");
    out = out.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

}  // namespace evenkeel
