#include "evenkeel/comm/mpi/internal/notice.h"

#include <cstring>

#include "evenkeel/base/check.h"

namespace evenkeel::internal {

namespace {

// Read only by processes of the same build.
struct Head {
  std::uint64_t messages;
  std::int32_t kind, peer, other, found_by, unresponsive, waits;
  std::uint32_t awaited, cause, last_message;  // sizes in bytes of the parts that follow
};

template <class Values>
Values take(std::string_view& bytes, std::uint32_t size) {
  EVENKEEL_CHECK(size <= bytes.size());
  Values values;
  values.resize(size / sizeof(values[0]));
  if (size > 0) std::memcpy(values.data(), bytes.data(), size);
  bytes.remove_prefix(size);
  return values;
}

template <class Values>
std::uint32_t size_of(const Values& values) {
  return static_cast<std::uint32_t>(values.size() * sizeof(values[0]));
}

}  // namespace

std::string pack(const Notice& notice) {
  const Head head{notice.messages,
                  static_cast<std::int32_t>(notice.kind),
                  notice.cause.peer,
                  notice.cause.other,
                  notice.cause.found_by,
                  notice.unresponsive ? 1 : 0,
                  notice.waits ? 1 : 0,
                  size_of(notice.awaited),
                  size_of(notice.cause.message),
                  size_of(notice.last_message)};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes.append(reinterpret_cast<const char*>(notice.awaited.data()), head.awaited);
  bytes += notice.cause.message;
  bytes += notice.last_message;
  return bytes;
}

Notice unpack(std::string_view bytes) {
  Head head;
  EVENKEEL_CHECK(bytes.size() >= sizeof(head));
  std::memcpy(&head, bytes.data(), sizeof(head));
  bytes.remove_prefix(sizeof(head));
  Notice notice;
  notice.kind = static_cast<Notice::Kind>(head.kind);
  notice.messages = head.messages;
  notice.unresponsive = head.unresponsive != 0;
  notice.waits = head.waits != 0;
  notice.awaited = take<std::vector<int>>(bytes, head.awaited);
  notice.cause = {head.peer, head.other, head.found_by, take<std::string>(bytes, head.cause)};
  notice.last_message = take<std::string>(bytes, head.last_message);
  return notice;
}

}  // namespace evenkeel::internal
