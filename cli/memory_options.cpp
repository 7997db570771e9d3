#include "cli/memory_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "cli/memory_report.h"
#include "cli/options.h"
#include "evenkeel/base/error.h"
#include "evenkeel/topology/devices.h"

namespace evenkeel::cli {

namespace {

// Terms that frameworks hold beside the paper's; --with names them.
struct Term {
  std::string_view name;
  bool ExtraTerms::*on;
  bool by_default;  // without --paper
  bool in_all;
};
// How the optimizer and weights are sharded is the trainer's choice, and so is where router weights scale;
// the others are there in every framework.
constexpr std::array<Term, 10> known_terms = {
    {{"replicated", &ExtraTerms::replicated, true, true},
     {"sharded-optimizer", &ExtraTerms::sharded_optimizer, false, true},
     {"every-layer", &ExtraTerms::every_layer, true, true},
     {"shared-experts", &ExtraTerms::shared_experts, true, true},
     {"logits", &ExtraTerms::logits, true, true},
     {"buffers", &ExtraTerms::communication_buffers, true, true},
     {"kept-tensors", &ExtraTerms::kept_tensors, true, false},
     {"layer-gradients", &ExtraTerms::layer_gradients, true, false},
     {"fsdp", &ExtraTerms::fully_sharded, false, false},
     {"expert-outputs", &ExtraTerms::expert_outputs, false, false}}};

struct Module {
  std::string_view name;
  bool SelectiveRecompute::*on;
};
constexpr std::array<Module, 7> known_modules = {{{"core_attn", &SelectiveRecompute::core_attn},
                                                  {"layernorm", &SelectiveRecompute::layernorm},
                                                  {"mla_up_proj", &SelectiveRecompute::mla_up_proj},
                                                  {"moe_act", &SelectiveRecompute::moe_act},
                                                  {"mlp", &SelectiveRecompute::mlp},
                                                  {"moe", &SelectiveRecompute::moe},
                                                  {"shared_experts", &SelectiveRecompute::shared_experts}}};

// By MemoryArguments::cross_entropy.
constexpr std::array<std::string_view, 3> cross_entropies = {"plain", "fused", "chunked"};

constexpr std::int64_t longest_sequence_given = std::int64_t{1} << 32;

struct NamedNumber {
  std::string_view name;
  std::int64_t* number;
  std::int64_t least = 1;
};

// "tp=2,pp=4": numbers by name, each at most once. The names that were given.
std::vector<std::string> read_named(const std::string& option, const std::string& text,
                                    std::span<const NamedNumber> names, std::int64_t most) {
  std::vector<std::string> given;
  for (const std::string& part : split(text, ',')) {
    const std::size_t sign = part.find('=');
    const std::string name = part.substr(0, sign);
    const auto known = std::ranges::find(names, name, &NamedNumber::name);
    if (known == names.end() || sign == std::string::npos) {
      std::vector<std::string_view> all;
      for (const NamedNumber& each : names) all.push_back(each.name);
      throw InvalidArgument(option, fmt::format("'{}'", part), fmt::format("{}=N", fmt::join(all, "=N, ")));
    }
    if (std::ranges::find(given, known->name) != given.end())
      throw InvalidArgument(option, fmt::format("'{}' twice", name), "each once");
    given.push_back(name);
    *known->number = parse_whole(option, std::string_view(part).substr(sign + 1), known->least, most);
  }
  return given;
}

void read_parallel(const std::string& text, MemoryArguments& options) {
  Parallelism& parallel = options.setup.parallel;
  parallel.data = 0;  // not said
  std::vector<NamedNumber> degrees;
  for (const auto& [name, degree] : degree_names) degrees.push_back({name, &(parallel.*degree)});
  options.degrees = read_named("--parallel", text, degrees, most_degree);
  if (parallel.data == 0) parallel.data = parallel.least_data();
}

void read_bytes(const std::string& text, MemoryArguments& options) {
  BytesPerNumber& bytes = options.setup.bytes;
  std::int64_t activation = 0;
  // Optimizer states may be elsewhere, and frozen weights have none of either.
  const std::array<NamedNumber, 4> numbers = {{{"activation", &activation},
                                               {"weight", &bytes.weight},
                                               {"gradient", &bytes.gradient, 0},
                                               {"optimizer", &bytes.optimizer, 0}}};
  const std::vector<std::string> given = read_named("--bytes", text, numbers, 64);
  options.static_bytes_given =
      std::ranges::any_of(given, [](const auto& name) { return name != "activation"; });
  options.bytes_given = activation > 0;
  if (activation > 0) bytes.activation = activation;
}

void read_terms(const std::string& text, MemoryArguments& options) {
  std::vector<std::string_view> names = {"all"};
  for (const Term& term : known_terms) names.push_back(term.name);
  options.with = split(text, ',');
  for (std::size_t at = 0; at < options.with.size(); ++at)
    if (std::ranges::count(options.with, options.with[at]) > 1)
      throw InvalidArgument("--with", fmt::format("'{}' twice", options.with[at]), "each once");
  for (const std::string& name : options.with)
    if (std::ranges::find(names, name) == names.end())
      throw InvalidArgument("--with", fmt::format("'{}'", name), fmt::format("{}", fmt::join(names, ", ")));
}

// none, full, or parts of a layer.
void read_recompute(const std::string& text, MemorySetup& setup) {
  setup.full_recompute = text == "full";
  setup.selective = {};
  if (text == "none" || text == "full") return;
  for (const std::string& part : split(text, ',')) {
    if (part == "none" || part == "full")
      throw InvalidArgument("--recompute", fmt::format("'{}' beside others", part), "it alone, or parts");
    const auto known = std::ranges::find(known_modules, part, &Module::name);
    if (known == known_modules.end()) {
      std::vector<std::string_view> names;
      for (const Module& module : known_modules) names.push_back(module.name);
      throw InvalidArgument(
          "--recompute", fmt::format("'{}'", part),
          fmt::format("none, full, or parts as --recompute-modules of Megatron-Core names them: {}",
                      fmt::join(names, ", ")));
    }
    if (setup.selective.*known->on)
      throw InvalidArgument("--recompute", fmt::format("'{}' twice", part), "each once");
    setup.selective.*known->on = true;
  }
}

void read_received(const std::string& text, MemoryArguments& options) {
  options.even = text == "even";
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z' && !options.even)
    throw InvalidArgument("--received", fmt::format("'{}'", text), "a number of rows, or even");
  if (!options.even) options.received = parse_whole("--received", text, 0, longest_sequence_given << 8);
}

void read_device(const std::string& text, MemoryArguments& options) {
  const DevicePreset& device = device_preset(text, "--device");
  options.device = device.name;
  options.device_bytes = device.memory_bytes();
}

CLI::Option* add_text(CLI::App& app, const std::string& name, const std::string& type,
                      const std::string& help, std::function<void(const std::string&)> read) {
  const auto parse = [read = std::move(read)](const CLI::results_t& given) {
    read(given.front());
    return true;
  };
  return app.add_option(name, parse, help)->type_name(type);
}

}  // namespace

void add_setup(CLI::App& app, MemoryArguments& options) {
  add_text(app, "--parallel", "tp=N,...",
           "Devices by dimension: tp, pp, ep, dp, vp, cp and etp; 1 where not said",
           [&](const std::string& text) { read_parallel(text, options); });
  add_whole(app, "--gpus", options.gpus, 1, most_degree, "Rank the layouts of so many devices instead")
      ->default_str("");
  add_whole(app, "--seq", options.setup.sequence, 1, longest_sequence_given, "Tokens of a sequence (s)");
  add_whole(app, "--micro-batch", options.setup.micro_batch, 1, 4096, "Sequences of a micro-batch (b)");
  add_text(app, "--recompute", "none|full|PART,...",
           "What backward computes again; parts as Megatron-Core names them: moe_act, ...",
           [&](const std::string& text) { read_recompute(text, options.setup); })
      ->default_str("full");
  add_word(app, "--cross-entropy", options.cross_entropy, {cross_entropies.begin(), cross_entropies.end()},
           "Scores over the vocabulary: with a copy in f32, without, or never whole");
  add_text(app, "--bytes", "activation=N,...",
           "Of a number: activation 2, weight 2, gradient 4, optimizer 12 (all states)",
           [&](const std::string& text) { read_bytes(text, options); });
  app.add_flag("--paper", options.paper, "Count the paper's terms alone, and those of --with");
  add_text(app, "--with", "TERM,...",
           "Terms that are off: sharded-optimizer, fsdp, expert-outputs; with --paper any, or all",
           [&](const std::string& text) { read_terms(text, options); });
  add_whole(app, "--borrowed-experts", options.setup.extra.borrowed_experts, 0, 1 << 16,
            "Experts whose weights and gradients visit for a step");
  add_size(app, "--allocation-granule", options.setup.extra.allocation_granule,
           "Each tensor takes a multiple of this");
}

void add_device(CLI::App& app, MemoryArguments& options) {
  add_size(app, "--device-memory", options.device_bytes, "Of one device (M_GPU)");
  app.get_option("--device-memory")->default_str("80GB");
  add_text(app, "--device", "NAME", "Instead: what a framework sees of an a100, h100, h200, b200 or mi300x",
           [&](const std::string& text) { read_device(text, options); });
  add_thousandths(app, "--available-ratio", options.ratio_thousandths, 1,
                  "The share that may be used (alpha)");
  add_size(app, "--static-bytes", options.static_bytes, "Static memory as measured, instead of Eq. 1");
  add_text(
      app, "--received", "N|even",
      "Rows of the fullest device for a sequence, before tp and cp divide them (s'); without, the worst's",
      [&](const std::string& text) { read_received(text, options); });
  add_wholes(app, "--bins", options.bins, 1, 1 << 20, "Chunk counts to choose from, ascending");
}

std::vector<std::string> set_terms(const CLI::App& app, const MemoryArguments& options, ExtraTerms& extra) {
  std::vector<std::string> names;
  const auto named = [&](std::string_view name) {
    return std::ranges::find(options.with, name) != options.with.end();
  };
  for (const Term& term : known_terms)
    extra.*term.on = named(term.name) || (term.in_all && named("all")) || (term.by_default && !options.paper);
  if (extra.expert_outputs && !extra.kept_tensors)
    throw InvalidArgument("--with", "expert-outputs", "without --paper, whose Table 2 has them as row 13");
  if (extra.layer_gradients && !extra.kept_tensors)
    throw InvalidArgument("--with", "layer-gradients", "beside --with kept-tensors");
  if (is_given(app, "--cross-entropy") && !extra.logits)
    throw InvalidArgument("--cross-entropy", "of logits, which --paper does not count",
                          "beside --with logits");
  extra.fused_cross_entropy = cross_entropy_text(options) == "fused";
  if (cross_entropy_text(options) == "chunked") {
    for (const char* name : {"logits", "all"})
      if (named(name))
        throw InvalidArgument("--cross-entropy", fmt::format("'chunked' beside --with {}", name),
                              "one of the two");
    extra.logits = false;
  }
  for (const Term& term : known_terms)
    if (extra.*term.on) names.emplace_back(term.name);
  return names;
}

std::string_view cross_entropy_text(const MemoryArguments& options) {
  return cross_entropies[options.cross_entropy];
}

std::string recompute_text(const MemorySetup& setup) {
  if (setup.full_recompute) return "full";
  std::vector<std::string_view> names;
  for (const Module& module : known_modules)
    if (setup.selective.*module.on) names.push_back(module.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ","));
}

}  // namespace evenkeel::cli
