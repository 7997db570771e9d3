#include "evenkeel/io/internal/forward_passes.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"
#include "evenkeel/io/internal/parse_error.h"

namespace evenkeel::internal {

namespace {

std::optional<std::int64_t> whole_number(const Pickle& pickle, Pickle::Id record, std::string_view key) {
  const auto found = pickle.find(record, key);
  if (!found || pickle.kind(*found) != Pickle::Kind::integer) return std::nullopt;
  return pickle.integer(*found);
}

// The name of a record's batch, which a server with two batches at a time gives it; empty without one.
std::string gatherer_of(const Pickle& pickle, Pickle::Id record) {
  const auto found = pickle.find(record, "gatherer_key");
  return found && pickle.kind(*found) == Pickle::Kind::text ? pickle.text(*found) : "";
}

}  // namespace

void ForwardPasses::require_numbers_in_all(const TorchFile& file, const std::string& where, bool numbered) {
  if (!numbered_) {
    numbered_ = numbered;
    first_file_ = file.name();
  }
  if (numbered != *numbered_)
    throw ParseError(file.name(), where + ".forward_pass_id",
                     numbered ? "is there, and other records have none: nobody knows which are of one step"
                              : "is missing, and other records have one: nobody knows which are of one step");
  if (!numbered && file.name() != first_file_)
    throw parse_error(file.name(), where + ".forward_pass_id",
                      "is missing, as in {}: nobody knows which records of the two are of one step; "
                      "read the files one by one",
                      first_file_);
}

std::size_t ForwardPasses::step_of(const TorchFile& file, Pickle::Id record, const std::string& where,
                                   bool has_load) {
  const Pickle& pickle = file.pickle();
  const auto pass = whole_number(pickle, record, "forward_pass_id");
  require_numbers_in_all(file, where, pass.has_value());
  if (!pass) return new_step();
  const std::int64_t rank = whole_number(pickle, record, "rank").value_or(0);
  if (has_load) {
    const auto [first, fresh] = loads_.try_emplace({*pass, rank, gatherer_of(pickle, record)},
                                                   fmt::format("{}: {}", file.name(), where));
    if (!fresh)
      throw parse_error(file.name(), where,
                        "is forward pass {} of rank {}, as {} is: they are of two runs; read each "
                        "run apart",
                        *pass, rank, first->second);
  }
  const auto [step, fresh] = steps_.try_emplace(*pass, count_);
  if (fresh) ++count_;
  return step->second;
}

}  // namespace evenkeel::internal
