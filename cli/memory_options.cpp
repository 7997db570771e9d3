#include "cli/memory_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "cli/options.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/topology/devices.h"
#include "evenkeel/training_memory/names.h"

namespace evenkeel::cli {

namespace {

constexpr std::int64_t longest_sequence_given = std::int64_t{1} << 32;

void read_parallel(const std::string& text, MemoryArguments& options) {
  Parallelism& parallel = options.setup.parallel;
  parallel.data = 0;  // not given
  std::vector<NamedNumber> degrees;
  for (const auto& [name, degree] : degree_names) degrees.push_back({name, &(parallel.*degree)});
  options.degrees = parse_named("--parallel", text, degrees, most_degree);
  if (parallel.data == 0) parallel.data = parallel.least_data();
}

void read_bytes(const std::string& text, MemoryArguments& options) {
  BytesPerNumber& bytes = options.setup.bytes;
  std::int64_t activation = 0;
  // Gradient and optimizer may be 0: frozen weights have neither, and optimizer states may be kept elsewhere.
  const std::array<NamedNumber, 5> numbers = {{{"activation", &activation},
                                               {"weight", &bytes.weight},
                                               {"gradient", &bytes.gradient, 0},
                                               {"optimizer", &bytes.optimizer, 0},
                                               {"cache", &options.cache_bytes}}};
  options.bytes_named = parse_named("--bytes", text, numbers, 64);
  options.static_bytes_given =
      std::ranges::any_of(options.bytes_named, [](const auto& name) { return name != "activation"; });
  options.bytes_given = activation > 0;
  if (activation > 0) bytes.activation = activation;
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

}  // namespace

void add_setup(CLI::App& app, MemoryArguments& options) {
  add_text(app, "--parallel", "tp=N,...",
           "Devices by dimension: tp, pp, ep, dp, vp, cp and etp; 1 if not given",
           [&](const std::string& text) { read_parallel(text, options); });
  add_whole(app, "--gpus", options.gpus, 1, most_degree, "Rank the layouts of so many devices instead");
  add_whole(app, "--seq", options.setup.sequence, 1, longest_sequence_given, "Tokens of a sequence (s)");
  add_whole(app, "--micro-batch", options.setup.micro_batch, 1, 4096, "Sequences of a micro-batch (b)");
  add_text(app, "--recompute", "none|full|PART,...",
           "What backward computes again; parts as Megatron-Core names them: moe_act, ...",
           [&](const std::string& text) { parse_recompute("--recompute", text, options.setup); })
      ->default_str("full");
  add_word(app, "--cross-entropy", options.cross_entropy, {cross_entropies.begin(), cross_entropies.end()},
           "Logits: with a copy in f32, without it, or computed in chunks");
  add_word(app, "--attention", options.attention, {"fused", "unfused"},
           "unfused keeps the scores and probabilities of all pairs of tokens");
  app.add_option("--pipeline-layout", options.pipeline_layout,
                 "Layers of each piece (3,4,4,3), or as Megatron-Core writes it (Et*3|(tt|)*29m|L)")
      ->type_name("PIECES");
  add_text(app, "--bytes", "activation=N,...",
           "Bytes per number (default: activation 2, weight 2, gradient 4, optimizer 12 for all states)",
           [&](const std::string& text) { read_bytes(text, options); });
  app.add_flag("--paper", options.paper, "Count only the paper's terms, and those of --with");
  add_text(app, "--with", "TERM,...",
           "Also count: sharded-optimizer, fsdp, expert-outputs; with --paper any term, or all",
           [&](const std::string& text) { options.with = parse_terms("--with", text); });
  add_text(app, "--without", "TERM,...", "Do not count these terms, on by default: prediction, ...",
           [&](const std::string& text) { options.without = parse_terms("--without", text); });
  add_whole(app, "--borrowed-experts", options.setup.extra.borrowed_experts, 0, 1 << 16,
            "Experts borrowed for a step, with weights and gradients");
  add_size(app, "--allocation-granule", options.setup.extra.allocation_granule,
           "Each tensor takes a multiple of this");
}

void add_device(CLI::App& app, MemoryArguments& options) {
  add_size(app, "--device-memory", options.device_bytes, "Memory of one device (M_GPU)")->default_str("80GB");
  add_text(app, "--device", "NAME",
           "Instead, the memory that a framework sees of an a100, h100, h200, b200 or mi300x",
           [&](const std::string& text) { read_device(text, options); });
  add_thousandths(app, "--available-ratio", options.ratio_thousandths, 1,
                  "The share that may be used (alpha)");
  add_text(app, "--static-bytes", "SIZE", "Static memory as measured, instead of Eq. 1",
           [&](const std::string& text) { options.static_bytes = parse_bytes(text, "--static-bytes"); });
  add_text(
      app, "--received", "N|even",
      "Rows of the fullest device per sequence, before tp and cp divide them (s'; default: the worst case)",
      [&](const std::string& text) { read_received(text, options); });
  add_wholes(app, "--bins", options.bins, 1, 1 << 20, "Chunk counts to choose from, ascending");
}

std::int64_t available_bytes(const CLI::App& app, const MemoryArguments& options) {
  if (options.ratio_thousandths > 1000)
    throw InvalidArgument("--available-ratio", format_thousandths(options.ratio_thousandths),
                          "a share of the device, above 0 and at most 1");
  if (is_given(app, "--device")) refuse_if_given(app, "--device-memory", "is already given by --device");
  return static_cast<std::int64_t>(static_cast<long double>(options.device_bytes) *
                                   static_cast<long double>(options.ratio_thousandths) / 1000);
}

ExtraTerms counted_terms(const CLI::App& app, const MemoryArguments& options) {
  const ExtraTerms terms =
      counted_terms(options.setup.extra, options.with, options.without, options.paper, options.cross_entropy);
  if (is_given(app, "--cross-entropy") && options.cross_entropy != CrossEntropy::chunked && !terms.logits)
    throw InvalidArgument("--cross-entropy", "applies to logits, which --paper does not count",
                          "--with logits as well");
  return terms;
}

}  // namespace evenkeel::cli
