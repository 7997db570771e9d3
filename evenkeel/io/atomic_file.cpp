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
#include "evenkeel/base/system_limits.h"

namespace evenkeel {

namespace {

[[noreturn]] void refuse(const std::string& path, int error) {
  throw InvalidArgument(path, "cannot be written: " + describe_errno(error));
}

// 0, or what went wrong.
int flush(const std::filesystem::path& path, int flags) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC);
  if (file < 0) return errno;
  const int error = ::fsync(file) == 0 ? 0 : errno;
  ::close(file);
  return error;
}

constexpr int kMostLinks = 40;  // as on Linux

// Where the file is to be: behind a link, and never in the place of a folder, a device or a pipe.
std::string place_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(there)) refuse(path, EISDIR);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    throw InvalidArgument(path, "cannot be written: is no ordinary file");
  std::filesystem::path place = path;  // as it was typed, where it is no link
  for (int links = 0; std::filesystem::is_symlink(std::filesystem::symlink_status(place, error)); ++links) {
    if (links == kMostLinks) refuse(path, ELOOP);
    const std::filesystem::path next = std::filesystem::read_symlink(place, error);
    if (error) refuse(path, error.value());
    place = place.parent_path() / next;
  }
  return place.string();
}

}  // namespace

void require_writable(const std::string& path) {
  const AtomicPath place(path);
}

AtomicPath::AtomicPath(const std::string& path) : path_(place_of(path)) {
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
  // On the disk before it has its name: a crash must not leave an empty file where a good one was.
  if (const int error = flush(beside_, O_RDONLY); error != 0) refuse(path_, error);
  if (::rename(beside_.c_str(), path_.c_str()) != 0) refuse(path_, errno);
  committed_ = true;
  // The name as well; a folder that cannot be flushed has it all the same.
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  static_cast<void>(flush(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY));
}

AtomicFile::AtomicFile(const std::string& path)
    : place_(path), file_(std::fopen(place_.beside().c_str(), "wb")) {
  if (file_ == nullptr) refuse(place_.path(), errno);
}

AtomicFile::~AtomicFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) refuse(place_.path(), errno);
}

void AtomicFile::commit() {
  if (std::fclose(std::exchange(file_, nullptr)) != 0) refuse(place_.path(), errno);
  place_.commit();
}

}  // namespace evenkeel
