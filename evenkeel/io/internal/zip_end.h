// Our end of what libzip reads from or writes to: libzip calls it with commands.
#pragma once

#include <zip.h>

#include <cstdint>
#include <cstring>
#include <exception>

namespace evenkeel::internal {

class ZipEnd {
 public:
  ZipEnd() { zip_error_init(&error_); }
  virtual ~ZipEnd() { zip_error_fini(&error_); }
  ZipEnd(const ZipEnd&) = delete;
  ZipEnd& operator=(const ZipEnd&) = delete;

  // For libzip, which frees it; this outlives it. Null where there is no memory.
  zip_source_t* source() { return zip_source_function_create(&ZipEnd::serve, this, nullptr); }
  // The archive at this end, for zip_discard(). Null where it cannot be opened, and `why` says it.
  zip_t* open(int flags, std::string& why) {
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t* const end = source();
    zip_t* const archive = zip_open_from_source(end, flags, &error);
    if (archive == nullptr) {
      zip_source_free(end);
      why = zip_error_strerror(&error);
    }
    zip_error_fini(&error);
    return archive;
  }
  // Throws what a command threw, if one did.
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 protected:
  zip_int64_t refuse(int error, int system_error = 0) {
    zip_error_set(&error_, error, system_error);
    return -1;
  }
  static zip_int64_t answer_size(void* data, zip_uint64_t length, std::int64_t size) {
    if (length < sizeof(zip_stat_t)) return -1;
    zip_stat_t stat;
    zip_stat_init(&stat);
    stat.size = static_cast<zip_uint64_t>(size);
    stat.valid = ZIP_STAT_SIZE;
    std::memcpy(data, &stat, sizeof(stat));
    return sizeof(stat);
  }

  zip_error_t error_{};

 private:
  // All commands but those about errors and the end.
  virtual zip_int64_t answer(zip_source_cmd_t command, void* data, zip_uint64_t length) = 0;

  static zip_int64_t serve(void* end, void* data, zip_uint64_t length, zip_source_cmd_t command) {
    ZipEnd& self = *static_cast<ZipEnd*>(end);
    if (command == ZIP_SOURCE_ERROR) return zip_error_to_data(&self.error_, data, length);
    if (command == ZIP_SOURCE_CLOSE || command == ZIP_SOURCE_FREE) return 0;
    try {
      return self.answer(command, data, length);
    } catch (...) {
      self.thrown_ = std::current_exception();
      return self.refuse(ZIP_ER_READ);
    }
  }

  std::exception_ptr thrown_;  // exceptions must not pass through C
};

}  // namespace evenkeel::internal
