// Every error a caller can meet. Few types, each with the data that is needed to act on it: as a sentence
// (what) and by name (data), so that a program need not parse the sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace evenkeel {

// The sentence can be shown as it is: what files and callers gave stands in it as visible characters
// (base/printable.h), and a long text has lost its middle. The data are as they were given, but for their
// length.
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

// An argument that no call can take: which one, why, and what would be taken.
class InvalidArgument : public Error {
 public:
  InvalidArgument(std::string argument, std::string why, std::string allowed = "");
};

// A file or text that is not what it should be: which file, where in it (byte or key), why.
class ParseError : public Error {
 public:
  ParseError(std::string file, std::string where, std::string why);
};

// A budget below the least that runs every routing of the shape.
class BudgetTooSmall : public Error {
 public:
  BudgetTooSmall(std::int64_t given_bytes, std::int64_t least_bytes, std::string shape);
};

// A request that nothing can fulfil, such as a placement of more experts than ranks have capacity for.
class Infeasible : public Error {
 public:
  explicit Infeasible(std::string why);
};

// A peer that failed, or did not answer in time: `why` is the whole sentence, the same on every rank, and the
// rest says where it met this rank. `peer` is -1 where no single rank is to blame.
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

// A device that failed at its work: which, in which call, and what it said. What it was told to do may or may
// not be done; for most of these, the process has no further use of the device.
class DeviceError : public Error {
 public:
  DeviceError(std::string device, std::string call, std::string said);
};

// Something this build, machine or format cannot do, with the way out where there is one.
class Unsupported : public Error {
 public:
  explicit Unsupported(std::string why);
};

}  // namespace evenkeel
