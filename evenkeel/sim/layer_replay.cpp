#include "evenkeel/sim/layer_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/plan/away.h"

namespace evenkeel {

namespace {

using Step = Method::Step;

std::vector<std::unique_ptr<Planner>> planners_for(const Method& method, const SimSetup& setup) {
  const bool knows_links = setup.planner.links.has_value();
  const auto planner = [&](PlannerOptions::Kind kind, bool links) {
    PlannerOptions options = setup.planner;
    options.kind = kind;
    if (!links) options.links.reset();
    return make_planner(options);
  };
  std::vector<std::unique_ptr<Planner>> planners;
  const auto add = [&](PlannerOptions::Kind kind, bool links) { planners.push_back(planner(kind, links)); };
  using Kind = PlannerOptions::Kind;
  switch (method.step) {
    case Step::ep:
      add(Kind::ep, false);
      break;
    case Step::llep:
      add(Kind::least_loaded, false);
      break;
    case Step::level:
      add(Kind::level, false);
      break;
    case Step::level_links:
      if (!knows_links)
        throw InvalidArgument("methods", "level-links, but links are unknown or all alike",
                              "level, or a topology whose links within nodes and across differ");
      add(Kind::level, true);
      break;
    case Step::slots:
      break;
    case Step::best:
      if (!setup.layer || !setup.machine)
        throw InvalidArgument("methods", "best needs sizes and rates to predict times",
                              "level, or best with a model and a machine");
      add(Kind::ep, false);
      add(Kind::least_loaded, false);
      add(Kind::level, false);
      if (knows_links) add(Kind::level, true);
      break;
  }
  return planners;
}

MemoryOptions memory_options(const Method& method, const SimSetup& setup) {
  MemoryOptions options = setup.memory;
  if (setup.machine) options.cost = *setup.machine;
  if (method.memory != Method::Memory::memfine) return options;
  options.rule.kind = ChunkRule::Kind::mact;
  options.recompute = setup.backward ? Recompute::chunk : Recompute::automatic;
  return options;
}

// Used if tokens are not known: how many of `count` assignments are in the first `end` of `units` equal
// parts. Rounding differs by expert, so that no part gets the remainders of all experts.
std::int64_t share_of(std::int64_t count, std::size_t expert, std::int64_t end, std::int64_t units) {
  constexpr double kGolden = 0.6180339887498949;
  const double place = static_cast<double>(expert) * kGolden;
  const auto sooner = static_cast<std::int64_t>((place - std::floor(place)) * static_cast<double>(units));
  return (count * end + sooner) / units;
}

// Copies units [chunk.begin, chunk.end) of every rank's tokens to `part`.
void take_part(const LayerTokens& all, const Chunk& chunk, std::int64_t units, LayerTokens& part) {
  const int ranks = all.num_ranks();
  part.top_k = all.top_k;
  part.experts.clear();
  part.first_token.assign(1, 0);
  part.counts.resize(ranks, all.counts.num_experts());
  const auto rows = part.counts.rows();
  const auto experts = static_cast<std::size_t>(all.counts.num_experts());
  for (RankId rank : indices<RankId>(ranks)) {
    const std::int64_t tokens = all.tokens_of(rank);
    const std::int64_t begin = chunk.first_token(tokens, units), end = chunk.end_token(tokens, units);
    part.first_token.push_back(part.first_token.back() + end - begin);
    const auto row = rows.subspan(rank.offset() * experts, experts);
    if (!all.has_tokens()) {
      const auto whole = all.counts.row(rank);
      for (std::size_t e = 0; e < experts; ++e)
        row[e] = share_of(whole[e], e, chunk.end, units) - share_of(whole[e], e, chunk.begin, units);
      continue;
    }
    const auto k = static_cast<std::size_t>(all.top_k);
    const auto from = static_cast<std::size_t>(all.first_token[rank.offset()] + begin) * k;
    const auto ids = std::span(all.experts).subspan(from, static_cast<std::size_t>(end - begin) * k);
    part.experts.insert(part.experts.end(), ids.begin(), ids.end());
    for (const std::int32_t id : ids)
      if (id >= 0) ++row[static_cast<std::size_t>(id)];
  }
  part.counts.sum_loads();
}

void require_slots(const Method& method, const SimSetup& setup, const LayerPlacement& homes) {
  if (setup.backward)
    throw InvalidArgument("methods", method.name + ", but weights change in training",
                          "level, or steps without backward");
  if (!homes.has_single_homes())
    throw InvalidArgument("methods", method.name + ", but slots need one home for each expert",
                          "slots with a placement that makes no copies");
  if (method.slots > homes.num_experts())
    throw InvalidArgument("methods",
                          fmt::format("{}, but there are {} experts", method.name, homes.num_experts()),
                          fmt::format("1..{} slots", homes.num_experts()));
}

// True if the plan is for exactly these tokens.
bool covers(const StepPlan& plan, const LayerTokens& tokens) {
  const auto loads = plan.rank_loads();
  return std::accumulate(loads.begin(), loads.end(), std::int64_t{0}) == tokens.counts.total();
}

Nodes nodes_for(const Method& method, const SimSetup& setup) {
  if (!method.two_levels) return {};
  const auto refuse = [&](const char* why, const char* allowed) {
    throw InvalidArgument("methods", method.name + ": " + why, allowed);
  };
  if (method.memory != Method::Memory::unlimited || setup.budget)
    refuse("two-levels does not work with a budget", "no budget, or a method without two-levels");
  if (!setup.layer)
    refuse("two-levels needs a model, which says how large rows are",
           "a model, or a method without two-levels");
  if (method.step == Method::Step::slots)
    refuse("slots do not work with two-levels", "two-levels without slots");
  Nodes nodes(setup.topology.description().node_of_rank);
  if (!nodes.two_levels())
    refuse("two-levels needs ranks of several nodes that share experts, several of them on one node",
           "such a topology, or a method without two-levels");
  return nodes;
}

}  // namespace

LayerReplay::LayerReplay(const SimSetup& setup, const Method& method, std::vector<LayerPlacement> homes)
    : setup_(setup),
      method_(method),
      nodes_(nodes_for(method, setup)),
      planners_(planners_for(method, setup)),
      options_(memory_options(method, setup)),
      counter_(nodes_),
      foreign_(setup.topology.num_ranks()) {
  if (method.memory != Method::Memory::unlimited && !(setup.budget && setup.layer))
    throw InvalidArgument("methods",
                          method.name + " needs a budget, and a model that gives the sizes of rows",
                          "a budget and a model, or a method without memfine and budget");
  if (method.step == Step::slots) require_slots(method, setup, homes.front());
  if (setup.layer && setup.machine)
    seconds_.emplace(setup.layer->sizes, *setup.machine, setup.topology, nodes_, method.node_sums);
  else if (setup.layer)
    seconds_.emplace(setup.layer->sizes, Machine{}, setup.topology, nodes_, method.node_sums);
  place(std::move(homes));
  if (!setup.layer) return;
  bytes_.emplace(setup.layer->chunk, options_.recompute);
  decider_ = std::make_unique<StepDecider>(
      *bytes_,
      DecisionOptions{options_, setup.layer->sizes.expert, memory(homes_.front()).units(), setup.backward},
      setup.topology.num_ranks());
}

void LayerReplay::place(std::vector<LayerPlacement> homes) {
  homes_ = std::move(homes);
  slots_.clear();
  if (method_.step != Step::slots) return;
  PlannerOptions options = setup_.planner;
  options.kind = PlannerOptions::Kind::level;
  options.links.reset();
  options.borrow_slots = method_.slots;
  for (const LayerPlacement& layer : homes_) slots_.emplace_back(std::in_place, layer, options);
}

LayerMemory LayerReplay::memory(const LayerPlacement& homes) const {
  LayerMemory memory;
  memory.shape.chunk = setup_.layer->chunk;
  memory.shape.max_tokens = setup_.most_tokens;
  memory.shape.home_experts = homes.most_natives();
  memory.shape.recompute = options_.recompute;
  for (RankId rank : indices<RankId>(homes.num_ranks()))
    memory.shape.copies = std::max<std::int64_t>(memory.shape.copies, homes.num_copies(rank));
  if (method_.memory != Method::Memory::unlimited) memory.budget = setup_.budget;
  memory.options = options_;
  return memory;
}

const LayerOutcome& LayerReplay::run(int layer, const LayerTokens& tokens, bool with_spans) {
  const LayerPlacement& homes = homes_[static_cast<std::size_t>(layer)];
  if (method_.step == Step::slots) {
    HeldSlots& slots = *slots_[static_cast<std::size_t>(layer)];
    slots.plan(tokens.counts, decision_.plan);
    take_whole(!slots.sent().empty(), decision_);
    carry_out(homes, tokens, decision_, slots.sent(), outcome_, with_spans);
    // Unused slots take memory too.
    for (std::size_t rank = 0; rank < outcome_.peaks.size(); ++rank) {
      const auto used = std::ranges::count(decision_.plan.transfers(), RankId(rank), &Transfer::to);
      outcome_.peaks[rank].forward += (method_.slots - used) * setup_.layer->chunk.forward_weight_bytes;
    }
    return outcome_;
  }
  for (std::size_t i = 0; i < planners_.size(); ++i) {
    decide(*planners_[i], homes, tokens, decision_);
    LayerOutcome& tried = i == 0 ? outcome_ : tried_;
    carry_out(homes, tokens, decision_, decision_.plan.transfers(), tried, with_spans);
    if (i > 0 && tried_.seconds < outcome_.seconds) std::swap(outcome_, tried_);
  }
  return outcome_;
}

// Decides to run all tokens as one chunk and to keep its activations for backward.
void LayerReplay::take_whole(bool moves, StepDecision& decision) const {
  decision.chunks.assign(1, {0, 1, setup_.backward});
  decision.reason = reason_of_plan(moves);
  if (bytes_) decision.workspace = bytes_->workspaces();
}

void LayerReplay::decide(Planner& planner, const LayerPlacement& homes, const LayerTokens& tokens,
                         StepDecision& decision) {
  const bool cuts = setup_.layer && memory(homes).cuts();
  if (!cuts) {
    planner.plan(tokens.counts, homes, decision.plan);
    return take_whole(decision.plan.spilled(), decision);
  }
  const LayerMemory memory = this->memory(homes);
  memories_.clear();
  for (RankId rank : indices<RankId>(tokens.num_ranks()))
    memories_.push_back(memory.report(tokens.tokens_of(rank)));
  const BlockTable table = block_table(homes, tokens);
  blocks_ = table.num_blocks();
  decider_->decide({StepPass::forward, table, tokens.counts, homes, memories_, tokens.top_k, &planner},
                   decision);
}

// Counts the tokens in blocks, as ranks do before they decide.
BlockTable LayerReplay::block_table(const LayerPlacement& homes, const LayerTokens& tokens) {
  const int ranks = tokens.num_ranks(), experts = homes.num_experts();
  const int blocks =
      memory(homes).num_blocks(std::ranges::min(memories_, {}, &RankMemory::table_bytes).table_bytes);
  table_numbers_.resize(static_cast<std::size_t>(BlockTable::count(ranks, experts, blocks)));
  const BlockTable table(table_numbers_, ranks, experts, blocks);
  if (tokens.has_tokens()) {
    const auto k = static_cast<std::size_t>(tokens.top_k);
    for (RankId rank : indices<RankId>(ranks))
      table.fill(rank,
                 std::span(tokens.experts)
                     .subspan(static_cast<std::size_t>(tokens.first_token[rank.offset()]) * k,
                              static_cast<std::size_t>(tokens.tokens_of(rank)) * k),
                 tokens.top_k, homes);
    return table;
  }
  std::vector<std::int64_t> counts;
  for (RankId rank : indices<RankId>(ranks))
    for (std::int64_t block = 0; block < blocks; ++block) {
      const auto row = tokens.counts.row(rank);
      for (std::size_t e = 0; e < row.size(); ++e)
        counts.push_back(share_of(row[e], e, block + 1, blocks) - share_of(row[e], e, block, blocks));
    }
  table.fill_counts(counts, homes);
  return table;
}

// Decides chunks for the tokens whose activations were not kept. First tries with the borrowed weights and
// gradients still held; if that does not fit, tries again with them freed.
void LayerReplay::decide_recompute(const LayerPlacement& homes, const LayerTokens& tokens,
                                   const StepDecision& forward) {
  const LayerMemory memory = this->memory(homes);
  const auto begin = std::ranges::find(forward.chunks, false, &Chunk::kept);
  take_part(tokens, {begin->begin, memory.units()}, memory.units(), recompute_tokens_);
  const bool holds = begin != forward.chunks.begin();
  foreign_.read(forward.plan, homes);
  recompute_decision_.plan = forward.plan;
  recompute_blocks_.clear();
  for (const bool holding : {true, false}) {
    if (holding && !holds) continue;
    memories_.clear();
    for (RankId rank : indices<RankId>(tokens.num_ranks())) {
      const ForeignLoad& foreign = foreign_.loads()[rank.offset()];
      memories_.push_back(memory.report(recompute_tokens_.tokens_of(rank),
                                        holding ? bytes_->foreign(ChunkUse::recompute, foreign) : 0));
    }
    const BlockTable table = block_table(homes, recompute_tokens_);
    recompute_blocks_.push_back(table.num_blocks());
    decider_->decide({StepPass::backward, table, recompute_tokens_.counts, homes, memories_, tokens.top_k,
                      nullptr, holding},
                     recompute_decision_);
    if (!recompute_decision_.chunks.empty()) return;
  }
}

// Counts the traffic of a decision's chunks, each under its own part of the plan.
void LayerReplay::count_chunks(const LayerPlacement& homes, const LayerTokens& tokens,
                               const StepDecision& decision, std::int64_t units, Chunks& chunks) {
  chunks.traffic.resize(decision.chunks.size());
  chunks.loads.clear();
  chunks.plans.resize(decision.chunks.size());
  const bool whole = decision.chunks.size() == 1 && covers(decision.plan, tokens);
  if (!whole) shares_.begin(decision.plan);
  for (std::size_t c = 0; c < decision.chunks.size(); ++c) {
    const LayerTokens* part = &tokens;
    if (decision.chunks.size() > 1) {
      take_part(tokens, decision.chunks[c], units, part_);
      part = &part_;
    }
    if (whole)
      chunks.plans[c] = decision.plan;
    else
      shares_.next(part->counts, homes, chunks.plans[c]);
    counter_.count(*part, decision.plan, chunks.plans[c], homes, chunks.traffic[c]);
    chunks.loads.push_back(chunks.traffic[c].loads);
  }
}

void LayerReplay::carry_out(const LayerPlacement& homes, const LayerTokens& tokens,
                            const StepDecision& decision, std::span<const Transfer> transfers,
                            LayerOutcome& outcome, bool with_spans) {
  outcome.reason = decision.reason;
  outcome.plan = decision.plan;
  outcome.chunks = decision.chunks;
  outcome.sent.assign(transfers.begin(), transfers.end());
  outcome.recomputed = 0;
  outcome.rows = 0;
  outcome.seconds = 0;
  outcome.spans.clear();
  if (!setup_.layer) return;
  const LayerMemory memory = this->memory(homes);
  count_chunks(homes, tokens, decision, memory.cuts() ? memory.units() : 1, forward_);
  const bool recomputes =
      setup_.backward && std::ranges::any_of(decision.chunks, [](const Chunk& c) { return !c.kept; });
  for (const RankLoads& loads : forward_.loads)
    for (const ChunkLoad& load : loads) outcome.rows += load.rows_elsewhere;
  recompute_chunks_ = {};
  if (recomputes) {
    decide_recompute(homes, tokens, decision);
    count_chunks(homes, recompute_tokens_, recompute_decision_, memory.units(), recompute_chunks_);
    outcome.recomputed = recompute_tokens_.counts.total();
  }
  outcome.peaks = peaks_of(memory,
                           {.homes = homes,
                            .plan = decision.plan,
                            .recompute_plan = recomputes ? recompute_decision_.plan : decision.plan,
                            .workspace = decision.workspace,
                            .chunks = decision.chunks,
                            .loads = forward_.loads,
                            .recompute_loads = recompute_chunks_.loads,
                            .blocks = blocks_,
                            .recompute_blocks = recompute_blocks_},
                           with_spans ? &outcome.fullest : nullptr);
  time(homes, decision, transfers, recomputes, with_spans ? &outcome.spans : nullptr, outcome);
}

void LayerReplay::time(const LayerPlacement& homes, const StepDecision& decision,
                       std::span<const Transfer> transfers, bool recomputes, std::vector<PhaseSpan>* spans,
                       LayerOutcome& outcome) {
  const auto work = [&](const Chunks& chunks, std::size_t c, bool recomputed) {
    return ChunkWork{chunks.traffic[c], chunks.plans[c], recomputed};
  };
  LayerSeconds& clock = *seconds_;
  clock.clear();
  work_.clear();
  for (std::size_t c = 0; c < decision.chunks.size(); ++c) work_.push_back(work(forward_, c, false));
  outcome.seconds = clock.forward(work_, transfers, homes, spans);
  if (setup_.backward) {
    // Backward handles kept chunks first, in reverse order. Then come the recomputed chunks, whose plan may
    // have fallen back to plain EP.
    work_.clear();
    for (std::size_t c = decision.chunks.size(); c-- > 0;)
      if (decision.chunks[c].kept) work_.push_back(work(forward_, c, false));
    for (std::size_t c = 0; c < recompute_chunks_.plans.size(); ++c)
      work_.push_back(work(recompute_chunks_, c, true));
    const StepPlan& plan = recomputes ? recompute_decision_.plan : decision.plan;
    const auto borrowed = recomputes ? plan.transfers() : transfers;
    const double begin = outcome.seconds;
    const std::size_t first = outcome.spans.size();
    outcome.seconds += clock.backward(work_, borrowed, gradients_home(plan, homes), homes, spans);
    for (std::size_t i = first; i < outcome.spans.size(); ++i) {
      outcome.spans[i].begin += begin;
      outcome.spans[i].end += begin;
    }
  }
  outcome.pair_bytes.assign(clock.pair_bytes().begin(), clock.pair_bytes().end());
  outcome.moved = clock.moved();
  outcome.parts = clock.parts();
  if (!setup_.machine) outcome.seconds = 0;
}

// Bytes of gradients between each pair of ranks; empty if no gradient is sent.
std::vector<double> LayerReplay::gradients_home(const StepPlan& plan, const LayerPlacement& homes) const {
  const auto ranks = static_cast<std::size_t>(plan.num_ranks());
  std::vector<double> bytes;
  for_each_away(plan, homes, [&](ExpertId, RankId owner, RankId rank) {
    if (bytes.empty()) bytes.resize(ranks * ranks);
    bytes[rank.offset() * ranks + owner.offset()] += setup_.layer->sizes.expert.gradient_bytes;
  });
  return bytes;
}

}  // namespace evenkeel
