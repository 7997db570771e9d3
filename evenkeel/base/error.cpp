#include "evenkeel/base/error.h"

#include <fmt/format.h>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/printable.h"

namespace evenkeel {

namespace {

// The longest file name or key in a message, so that two of them and the reason fit.
constexpr std::size_t most_name_bytes = 256;

std::string shown_name(const std::string& text) {
  return shortened(printable(text), most_name_bytes);
}

std::string with_allowed(const std::string& argument, const std::string& why, const std::string& allowed) {
  return allowed.empty() ? fmt::format("{}: {}", shown_name(argument), why)
                         : fmt::format("{}: {}; allowed: {}", shown_name(argument), why, allowed);
}

std::string located(const std::string& file, const std::string& where, const std::string& why) {
  return where.empty() ? fmt::format("{}: {}", shown_name(file), why)
                       : fmt::format("{}: {}: {}", shown_name(file), shown_name(where), why);
}

std::vector<Error::Field> bounded(std::vector<Error::Field> data) {
  for (Error::Field& field : data)
    if (auto* text = std::get_if<std::string>(&field.value))
      *text = shortened(*text, Error::most_field_bytes);
  return data;
}

// Writes both sizes in bytes where rounding would make them look equal.
std::string too_small(std::int64_t given, std::int64_t least, const std::string& shape) {
  const bool alike = format_bytes(given) == format_bytes(least);
  const auto written = [&](std::int64_t bytes) {
    return alike ? fmt::format("{} bytes", bytes) : format_bytes(bytes);
  };
  return fmt::format("budget {} is below the least that runs every routing of this shape: {} ({})",
                     written(given), written(least), shape);
}

}  // namespace

Error::Error(std::string type, const std::string& message, std::vector<Field> data)
    : std::runtime_error(shortened(printable(message), most_message_bytes)),
      type_(std::move(type)),
      data_(bounded(std::move(data))) {}

InvalidArgument::InvalidArgument(std::string argument, std::string why, std::string allowed)
    : Error("InvalidArgument", with_allowed(argument, why, allowed),
            {{"argument", argument}, {"why", why}, {"allowed", allowed}}) {}

ParseError::ParseError(std::string file, std::string where, std::string why)
    : Error("ParseError", located(file, where, why), {{"file", file}, {"where", where}, {"why", why}}) {}

BudgetTooSmall::BudgetTooSmall(std::int64_t given_bytes, std::int64_t least_bytes, std::string shape)
    : Error("BudgetTooSmall", too_small(given_bytes, least_bytes, shape),
            {{"given", given_bytes}, {"least", least_bytes}, {"shape", shape}}) {}

Infeasible::Infeasible(std::string why) : Error("Infeasible", why, {{"why", why}}) {}

CommError::CommError(int peer, std::string operation, double after_seconds, const std::string& why)
    : Error("CommError", why,
            {{"peer", std::int64_t{peer}},
             {"operation", operation},
             {"after_seconds", after_seconds},
             {"why", why}}),
      peer_(peer),
      operation_(std::move(operation)),
      after_seconds_(after_seconds) {}

DeviceError::DeviceError(std::string device, std::string call, std::string said)
    : Error("DeviceError", fmt::format("{}: {} failed: {}", device, call, said),
            {{"device", device}, {"call", call}, {"said", said}}) {}

Unsupported::Unsupported(std::string why) : Error("Unsupported", why, {{"why", why}}) {}

}  // namespace evenkeel
