// Every error a caller can get. Each type carries the data needed to act on it: as a sentence (what()) and as
// named fields (data()), so that a program need not parse the sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace evenkeel {

// what() is safe to print: text from files and callers is escaped (base/printable.h), and a long text loses
// its middle. data() holds the text unescaped; long fields are shortened too.
class Error : public std::runtime_error {
 public:
  static constexpr std::size_t most_message_bytes = 1024;
  static constexpr std::size_t most_field_bytes = 4096;  // the longest path

  struct Field {
    std::string name;
    std::variant<std::int64_t, double, std::string> value;
  };

  // The name of the class, such as "ParseError".
  const std::string& type() const { return type_; }
  const std::vector<Field>& data() const { return data_; }

 protected:
  Error(std::string type, const std::string& message, std::vector<Field> data);

 private:
  std::string type_;
  std::vector<Field> data_;
};

// An argument that the call refuses: which one, why, and what is allowed.
class InvalidArgument : public Error {
 public:
  InvalidArgument(std::string argument, std::string why, std::string allowed = "");
};

// A file or text that is not what it should be: which file, where in it (byte or key), why.
class ParseError : public Error {
 public:
  ParseError(std::string file, std::string where, std::string why);
};

// A budget below the least one that every routing of the shape can run in.
class BudgetTooSmall : public Error {
 public:
  BudgetTooSmall(std::int64_t given_bytes, std::int64_t least_bytes, std::string shape);
};

// A request that nothing can fulfil, such as a placement of more experts than ranks have capacity for.
class Infeasible : public Error {
 public:
  explicit Infeasible(std::string why);
};

// A peer that failed, or did not answer in time. `why` is the whole message, the same on every rank; the
// other fields say where this rank noticed it. `peer` is -1 where no single rank is to blame.
class CommError : public Error {
 public:
  CommError(int peer, std::string operation, double after_seconds, const std::string& why);
  int peer() const { return peer_; }
  const std::string& operation() const { return operation_; }
  double after_seconds() const { return after_seconds_; }

 private:
  int peer_;
  std::string operation_;
  double after_seconds_;
};

// A device call that failed: which device, which call, and the device's message. The requested work may or
// may not be done. After most of these errors the process cannot use the device any more.
class DeviceError : public Error {
 public:
  DeviceError(std::string device, std::string call, std::string said);
};

// Something this build, machine or format cannot do, with a workaround where there is one.
class Unsupported : public Error {
 public:
  explicit Unsupported(std::string why);
};

}  // namespace evenkeel
