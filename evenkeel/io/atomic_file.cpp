#include "evenkeel/io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

[[noreturn]] void refuse(const std::string& path, int error) {
  throw InvalidArgument(path, "cannot be written: " + std::generic_category().message(error));
}

}  // namespace

void require_writable(const std::string& path) {
  if (std::filesystem::is_directory(path)) refuse(path, EISDIR);
  const AtomicPath place(path);
}

AtomicPath::AtomicPath(std::string path) : path_(std::move(path)) {
  static std::atomic<unsigned> counter{0};
  for (;;) {
    beside_ = fmt::format("{}.{}-{}.part", path_, ::getpid(), counter++);
    // The file's name is taken at once, so that a folder that cannot be written is known before the work is
    // done.
    const int file = ::open(beside_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (file >= 0) {
      ::close(file);
      return;
    }
    if (errno != EEXIST) refuse(path_, errno);
  }
}

AtomicPath::~AtomicPath() {
  if (!committed_) ::unlink(beside_.c_str());
}

void AtomicPath::commit() {
  if (::rename(beside_.c_str(), path_.c_str()) != 0) refuse(path_, errno);
  committed_ = true;
}

AtomicFile::AtomicFile(std::string path)
    : place_(std::move(path)), file_(std::fopen(place_.beside().c_str(), "wb")) {
  if (file_ == nullptr) refuse(place_.path(), errno);
}

AtomicFile::~AtomicFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) refuse(place_.path(), errno);
}

void AtomicFile::commit() {
  // On the disk before it has its name: a crash must not leave an empty file where a good one was.
  const bool flushed = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
  const int flush_error = errno;
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!flushed) refuse(place_.path(), flush_error);
  if (!closed) refuse(place_.path(), errno);
  place_.commit();
}

}  // namespace evenkeel
