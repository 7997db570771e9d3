// Which records of SGLang's recorder are of one forward pass, and so of one step.
//
// Every rank records every pass under the same number, in a file of its own. A rank may record a pass twice
// (once for a draft model, without load); where both have load, they are of two runs of the server, or of two
// recordings of one, and nobody knows which records belong together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "evenkeel/io/internal/torch_file.h"

namespace evenkeel::internal {

class ForwardPasses {
 public:
  // The step of a record, by which all are numbered from 0 in the order in which they are met; `where` is its
  // key. Throws ParseError: a pass that a rank has twice, or records without numbers in several files.
  std::size_t step_of(const TorchFile& file, Pickle::Id record, const std::string& where, bool has_load);
  // A step that no other record is of.
  std::size_t new_step() { return count_++; }
  std::size_t count() const { return count_; }

 private:
  void require_numbers_in_all(const TorchFile& file, const std::string& where, bool numbered);

  std::map<std::int64_t, std::size_t> steps_;
  // By pass, rank and gatherer, where a record with load is.
  std::map<std::tuple<std::int64_t, std::int64_t, std::string>, std::string> loads_;
  std::optional<bool> numbered_;
  std::string first_file_;
  std::size_t count_ = 0;
};

}  // namespace evenkeel::internal
