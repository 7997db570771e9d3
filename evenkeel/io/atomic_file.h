// A file that appears whole or not at all: written beside its place and renamed when done. A link stays, and
// what it leads to is replaced.
//
// Mode    A file that is replaced leaves its mode to the new one. Any other has what the umask leaves of
// 0666,
//         of a mode that the caller names, or of what the files have that it is made from (ModeOfSources).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/io/unfinished.h"

namespace evenkeel {

// Throws InvalidArgument if no file can be made at `path`: for whoever would learn it only after long work.
void require_writable(const std::string& path);

class AtomicFile {
 public:
  // Throws InvalidArgument if no file can be made there, or something is there that is no ordinary file.
  // Without commit() nothing is left behind, and what was at the path stays.
  explicit AtomicFile(const std::string& path);
  AtomicFile(const std::string& path, unsigned mode);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Throw InvalidArgument if the bytes cannot be written, as when the disk is full.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  // Where the next byte goes, counted from the file's begin.
  std::int64_t position() const;
  // As std::fseek.
  void seek(std::int64_t offset, int whence);
  // Gives the finished file its name.
  void commit();

 private:
  [[noreturn]] void refuse(int error) const;

  unsigned mode_;  // of a new file
  std::optional<unsigned> replaced_mode_;
  Unfinished unfinished_;
  std::FILE* file_ = nullptr;
};

// The permissions of a file or folder; none if it is not there, or is a pipe or a device, whose say nothing.
std::optional<unsigned> mode_of(const std::string& path);

// While one lives, a new file of this thread is open to those alone who could read all of its sources.
class ModeOfSources {
 public:
  explicit ModeOfSources(const std::vector<std::string>& sources);
  ~ModeOfSources();
  ModeOfSources(const ModeOfSources&) = delete;
  ModeOfSources& operator=(const ModeOfSources&) = delete;

 private:
  unsigned before_;
};

// A whole file of this text.
void write_file(const std::string& path, std::string_view text);

}  // namespace evenkeel
