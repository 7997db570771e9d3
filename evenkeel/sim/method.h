// A method that is compared: where experts live, how a step is evened out, and in which memory.
//
//   "eplb:32+level"     32 copies placed by load, and level over them
//   "moetuner+llep"     MoETuner's homes, and the excess moved each step as LLEP moves it
//
// Names   Parts joined by +, at most one of each kind.
//   homes    contiguous, eplb:R (R copies), moetuner (two stages, where traffic is known), joint, robust
//            (level on every one of several parts of the recording); joint:R, robust:R with R copies
//   step     ep (nothing moves), llep, level, level-links (where a machine has unlike links), slots:S (S
//            borrowed experts a rank stay from step to step), best (of ep, llep, level and level-links
//            what is predicted to be fastest)
//   memory   memfine (chunks of 1, 2, 4 or 8 parts, computed again in backward), budget (as the layer
//            decides in so many bytes)
//   ways     two-levels (what several ranks of another node want crosses the link to it once; no budget), and
//            with it node-sums (each node adds a token's results before they leave it: sum_in_nodes)
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

  std::string name;  // as it was asked for
  Homes homes = Homes::contiguous;
  int copies = 0;  // of eplb, joint and robust
  Step step = Step::ep;
  int slots = 0;  // of slots
  Memory memory = Memory::unlimited;
  bool two_levels = false;
  bool node_sums = false;  // with two_levels
  bool fsdp = false;
  bool renews = false;  // is placed anew again and again, where a comparison does that

  bool is_placed() const { return homes != Homes::contiguous; }
  std::string description() const;
};

// Throws InvalidArgument about `argument` for what is no method, naming the parts there are.
Method parse_method(std::string_view text, const std::string& argument = "methods");

// What is known decides what can be compared.
struct Known {
  int num_experts = 1;
  int num_ranks = 1;
  bool seconds = false;  // a model and a machine
  bool unlike_links = false;
  bool two_levels = false;  // several nodes, one of several ranks
  bool backward = false;
  bool budget = false;
};
// ep, fsdp, eplb (a copy a rank at least), moetuner, robust, llep, level, level-links, two-levels, slots (2 a
// rank), memfine, and all: robust+best+budget, without backward with the copies of eplb.
std::vector<Method> usual_methods(const Known& known);
// "ep,all,eplb:16+level": names of usual methods, and combinations. Throws InvalidArgument as parse_method().
std::vector<Method> parse_methods(std::string_view text, const Known& known,
                                  const std::string& argument = "methods");

}  // namespace evenkeel
