// A method to compare: the experts' homes, how each step is balanced, and how the step's memory is limited.
//
//   "eplb:32+level"     32 copies placed by load, balanced by level
//   "moetuner+llep"     MoETuner's homes; in each step, work above a rank's share moves as in LLEP
//
// Names     Parts joined by +, at most one of each kind.
//   homes    contiguous, eplb:R (R copies), moetuner (both of its stages if traffic is known), joint, robust
//            (level on every one of several parts of the recording); joint:R, robust:R with R copies
//   step     ep (nothing moves), llep, level, level-links (for machines whose links differ), slots:S (each
//            rank keeps S borrowed experts from step to step), best (the predicted fastest of ep, llep, level
//            and level-links)
//   memory   memfine (chunks of 1, 2, 4 or 8 parts, recomputed in backward), budget (chunks as the layer
//            decides within a byte budget)
//   routes   two-levels (a row that several ranks of another node need crosses the link once; not with a
//            budget); with two-levels also node-sums (each node adds up a token's results before it sends
//            them: sum_in_nodes)
//   or       fsdp: no expert parallelism; every rank gathers the weights of all experts, layer by layer
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

struct Method {
  enum class Homes { contiguous, eplb, moetuner, joint, robust };
  enum class Step { ep, llep, level, level_links, slots, best };
  enum class Memory { unlimited, memfine, budget };

  std::string name;  // as the caller wrote it
  Homes homes = Homes::contiguous;
  int copies = 0;  // number of copies, for eplb, joint and robust
  Step step = Step::ep;
  int slots = 0;  // number of slots on a rank, for Step::slots
  Memory memory = Memory::unlimited;
  bool two_levels = false;
  bool node_sums = false;  // only with two_levels
  bool fsdp = false;
  bool renews = false;  // true if experts are placed anew every CompareOptions::place_every steps

  bool is_placed() const { return homes != Homes::contiguous; }
  std::string description() const;
};

// Throws InvalidArgument about `argument` if `text` is not a method; the error lists the possible parts.
Method parse_method(std::string_view text, const std::string& argument = "methods");

// The known facts, which decide which methods can be compared.
struct Known {
  int num_experts = 1;
  int num_ranks = 1;
  bool seconds = false;  // true if model and machine are known
  bool unlike_links = false;
  bool two_levels = false;  // several nodes, and at least one has several ranks
  bool backward = false;
  bool budget = false;
};
// ep, fsdp, eplb (at least one copy per rank), moetuner, robust, llep, level, level-links, two-levels, slots
// (2 per rank), memfine, and all. `all` is robust+best+budget; without backward it also has as many copies as
// eplb.
std::vector<Method> usual_methods(const Known& known);
// Parses "ep,all,eplb:16+level": names of usual methods, and combinations. Throws InvalidArgument as
// parse_method().
std::vector<Method> parse_methods(std::string_view text, const Known& known,
                                  const std::string& argument = "methods");

}  // namespace evenkeel
