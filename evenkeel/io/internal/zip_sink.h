// A zip archive that libzip writes into an AtomicFile. Left to itself it would write a file of its own
// beside, which nobody removes when the program ends by a signal.
#pragma once

#include <zip.h>

#include <exception>

#include "evenkeel/io/atomic_file.h"

namespace evenkeel::internal {

class ZipSink {
 public:
  // Both outlive the archive.
  explicit ZipSink(AtomicFile& file);
  ~ZipSink();
  ZipSink(const ZipSink&) = delete;
  ZipSink& operator=(const ZipSink&) = delete;

  // A new archive, or null and why.
  zip_t* open(zip_error_t* error);
  // Throws what the file threw, if it did.
  void rethrow() const;

 private:
  static zip_int64_t serve(void* sink, void* data, zip_uint64_t length, zip_source_cmd_t command);
  zip_int64_t carry_out(void* data, zip_uint64_t length, zip_source_cmd_t command);
  zip_int64_t seek(void* data, zip_uint64_t length);

  AtomicFile& file_;
  zip_error_t error_{};
  std::exception_ptr thrown_;  // exceptions must not pass through C
};

}  // namespace evenkeel::internal
