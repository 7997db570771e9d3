// A file that appears whole or not at all: it is written under a temporary name and renamed when done. If the
// path is a symbolic link, the link stays and its target is replaced.
//
// Mode    A replaced file's mode is kept. A new file has the mode that the caller gives, or that of its
//         sources (ModeOfSources), or 0666, each reduced by the umask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/temporary_entry.h"

namespace evenkeel {

// Throws InvalidArgument if no file can be made at `path`. Call it before long work.
void require_writable(const std::string& path);

class AtomicFile {
 public:
  // Throws InvalidArgument if no file can be made there, or the path is something other than a regular file.
  // Without commit() no file is left behind, and an existing file stays as it is.
  explicit AtomicFile(const std::string& path);
  AtomicFile(const std::string& path, unsigned mode);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Both throw InvalidArgument if the bytes cannot be written, for example if the disk is full.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // The offset of the next byte from the beginning of the file.
  std::int64_t position() const;
  // Like std::fseek.
  void seek(std::int64_t offset, int whence);
  // Gives the finished file its name.
  void commit();

 private:
  [[noreturn]] void refuse(int error) const;

  unsigned mode_;  // of a new file
  std::optional<unsigned> replaced_mode_;
  TemporaryEntry temporary_;
  std::FILE* file_ = nullptr;
};

// The permissions of a file or folder; nullopt if there is none, or it is a pipe or a device.
std::optional<unsigned> mode_of(const std::string& path);

// While such an object exists, only users who can read all sources can read files that this thread creates.
class ModeOfSources {
 public:
  explicit ModeOfSources(const std::vector<std::string>& sources);
  ~ModeOfSources();
  ModeOfSources(const ModeOfSources&) = delete;
  ModeOfSources& operator=(const ModeOfSources&) = delete;

 private:
  unsigned before_;
};

// Writes `text` as the whole file.
void write_file(const std::string& path, std::string_view text);

}  // namespace evenkeel
