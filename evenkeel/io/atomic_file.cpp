#include "evenkeel/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/base/system_limits.h"

namespace evenkeel {

namespace {

[[noreturn]] void refuse_path(const std::string& path, int error) {
  throw InvalidArgument(path, "cannot be written: " + describe_errno(error));
}

constexpr int kMostLinks = 40;  // as on Linux

// The path to replace, with links followed. Throws for a folder, a device or a pipe.
std::string place_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(there)) refuse_path(path, EISDIR);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    throw InvalidArgument(path, "cannot be written: it is not an ordinary file");
  std::filesystem::path place = path;  // unchanged if it is not a link
  for (int links = 0; std::filesystem::is_symlink(std::filesystem::symlink_status(place, error)); ++links) {
    if (links == kMostLinks) refuse_path(path, ELOOP);
    const std::filesystem::path next = std::filesystem::read_symlink(place, error);
    if (error) refuse_path(path, error.value());
    place = place.parent_path() / next;
  }
  return place.string();
}

thread_local unsigned mode_of_new = 0666;

// While the file is written, its owner can write it; others get at most their final permissions.
int make_file(const char* name, unsigned mode, std::optional<unsigned> replaced) {
  const mode_t wanted = replaced.value_or(mode) | 0600u;
  const int file = ::open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, wanted);
  if (file < 0) return errno;
  if (replaced) static_cast<void>(::fchmod(file, wanted));
  ::close(file);
  return 0;
}

// Creates the file at once, so that an unwritable folder is reported before the work is done.
TemporaryEntry new_file(const std::string& place, unsigned mode, std::optional<unsigned> replaced) {
  try {
    return TemporaryEntry(place, [&](const char* name) { return make_file(name, mode, replaced); });
  } catch (const std::system_error& error) {
    refuse_path(place, error.code().value());
  }
}

}  // namespace

std::optional<unsigned> mode_of(const std::string& path) {
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0 || (!S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)))
    return std::nullopt;
  return there.st_mode & 0777u;
}

// A source may be a folder, whose permissions limit who can read the files inside.
ModeOfSources::ModeOfSources(const std::vector<std::string>& sources) : before_(mode_of_new) {
  for (const std::string& source : sources) mode_of_new &= mode_of(source).value_or(0777);
  mode_of_new |= 0600u;
}

ModeOfSources::~ModeOfSources() {
  mode_of_new = before_;
}

AtomicFile::AtomicFile(const std::string& path) : AtomicFile(path, mode_of_new) {}

AtomicFile::AtomicFile(const std::string& path, unsigned mode)
    : mode_(mode),
      replaced_mode_(mode_of(path)),
      temporary_(new_file(place_of(path), mode_, replaced_mode_)),
      file_(std::fopen(temporary_.temporary_path().c_str(), "wb")) {
  if (file_ == nullptr) refuse(errno);
}

AtomicFile::~AtomicFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void AtomicFile::refuse(int error) const {
  refuse_path(temporary_.final_path().string(), error);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) refuse(errno);
}

std::int64_t AtomicFile::position() const {
  return ::ftello(file_);
}

void AtomicFile::seek(std::int64_t offset, int whence) {
  if (::fseeko(file_, offset, whence) != 0) refuse(errno);
}

void AtomicFile::commit() {
  // Flushed to disk before the rename: a crash must not replace a good file with an empty one.
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) refuse(errno);
  if (std::fclose(std::exchange(file_, nullptr)) != 0) refuse(errno);
  // Until now the owner could write the file. Errors are ignored, since some file systems have no modes.
  const std::string temporary = temporary_.temporary_path().string();
  const unsigned made = mode_of(temporary).value_or(mode_);
  if (const unsigned wanted = replaced_mode_.value_or(made & mode_); wanted != made)
    static_cast<void>(::chmod(temporary.c_str(), wanted));
  if (const int error = temporary_.rename(); error != 0) refuse(error);
}

void require_writable(const std::string& path) {
  const AtomicFile file(path);
}

void write_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace evenkeel
