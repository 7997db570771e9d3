#include "evenkeel/io/internal/zip_sink.h"

#include <cerrno>
#include <cstdio>
#include <span>

namespace evenkeel::internal {

ZipSink::ZipSink(AtomicFile& file) : file_(file) {
  zip_error_init(&error_);
}

ZipSink::~ZipSink() {
  zip_error_fini(&error_);
}

zip_t* ZipSink::open(zip_error_t* error) {
  zip_source_t* const source = zip_source_function_create(&ZipSink::serve, this, error);
  if (source == nullptr) return nullptr;
  zip_t* const archive = zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, error);
  if (archive == nullptr) zip_source_free(source);
  return archive;
}

void ZipSink::rethrow() const {
  if (thrown_) std::rethrow_exception(thrown_);
}

zip_int64_t ZipSink::serve(void* sink, void* data, zip_uint64_t length, zip_source_cmd_t command) {
  ZipSink& self = *static_cast<ZipSink*>(sink);
  try {
    return self.carry_out(data, length, command);
  } catch (...) {
    self.thrown_ = std::current_exception();
    zip_error_set(&self.error_, ZIP_ER_WRITE, 0);
    return -1;
  }
}

zip_int64_t ZipSink::carry_out(void* data, zip_uint64_t length, zip_source_cmd_t command) {
  switch (command) {
    case ZIP_SOURCE_WRITE:
      file_.write(std::span(static_cast<const std::byte*>(data), static_cast<std::size_t>(length)));
      return static_cast<zip_int64_t>(length);
    case ZIP_SOURCE_SEEK_WRITE:
      return seek(data, length);
    case ZIP_SOURCE_TELL_WRITE:
      return file_.position();
    case ZIP_SOURCE_STAT:
      zip_error_set(&error_, ZIP_ER_READ, ENOENT);  // there is no archive yet
      return -1;
    case ZIP_SOURCE_ERROR:
      return zip_error_to_data(&error_, data, length);
    case ZIP_SOURCE_BEGIN_WRITE:
    case ZIP_SOURCE_COMMIT_WRITE:
    case ZIP_SOURCE_ROLLBACK_WRITE:
    case ZIP_SOURCE_REMOVE:
    case ZIP_SOURCE_FREE:
      return 0;  // whether the file appears is for its owner to say
    case ZIP_SOURCE_SUPPORTS:
      return ZIP_SOURCE_SUPPORTS_WRITABLE;
    default:
      zip_error_set(&error_, ZIP_ER_OPNOTSUPP, 0);
      return -1;
  }
}

zip_int64_t ZipSink::seek(void* data, zip_uint64_t length) {
  const auto* const to = ZIP_SOURCE_GET_ARGS(zip_source_args_seek_t, data, length, &error_);
  if (to == nullptr) return -1;
  if (to->whence == SEEK_END) {
    zip_error_set(&error_, ZIP_ER_OPNOTSUPP, 0);
    return -1;
  }
  file_.seek(to->whence == SEEK_CUR ? file_.position() + to->offset : to->offset);
  return 0;
}

}  // namespace evenkeel::internal
