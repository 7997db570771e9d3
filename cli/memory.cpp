// evenkeel memory: what one device holds while a model trains, what fits, and with how many chunks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>

#include "cli/memory_budget.h"
#include "cli/memory_history.h"
#include "cli/memory_layouts.h"
#include "cli/memory_report.h"
#include "cli/options.h"
#include "cli/subcommand.h"
#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/io/model_config.h"

namespace evenkeel::cli {

namespace {

// What frameworks hold beside the paper's terms; --with names them.
struct Term {
  std::string_view name;
  bool ExtraTerms::*on;
  bool by_default;  // without --paper
};
// Whether optimizer states are sharded is the trainer's choice, the others are there in every framework.
constexpr std::array<Term, 6> known_terms = {{{"replicated", &ExtraTerms::replicated, true},
                                              {"sharded-optimizer", &ExtraTerms::sharded_optimizer, false},
                                              {"every-layer", &ExtraTerms::every_layer, true},
                                              {"shared-experts", &ExtraTerms::shared_experts, true},
                                              {"logits", &ExtraTerms::logits, true},
                                              {"buffers", &ExtraTerms::communication_buffers, true}}};

constexpr std::int64_t longest_sequence_given = std::int64_t{1} << 32;

struct MemoryArguments {
  std::string model;
  std::string counts;
  std::string steps;
  MemorySetup setup;
  std::int64_t device_bytes = 80'000'000'000;
  std::int64_t ratio_thousandths = 900;
  std::int64_t static_bytes = 0;
  std::int64_t received = 0;
  std::vector<std::int64_t> bins = {1, 2, 4, 8};
  std::vector<std::string> with;  // terms by name, or all
  bool paper = false;
  std::vector<std::string> degrees;  // named by --parallel
  std::int64_t gpus = 0;
  std::size_t recompute = 1;  // none, full
  bool bytes_given = false;
  bool require_fit = false;
  bool json = false;
};

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
  read_named("--bytes", text, numbers, 64);
  options.bytes_given = activation > 0;
  if (activation > 0) bytes.activation = activation;
}

void read_terms(const std::string& text, MemoryArguments& options) {
  std::vector<std::string_view> names = {"all"};
  for (const Term& term : known_terms) names.push_back(term.name);
  options.with = split(text, ',');
  for (const std::string& name : options.with)
    if (std::ranges::find(names, name) == names.end())
      throw InvalidArgument("--with", fmt::format("'{}'", name), fmt::format("{}", fmt::join(names, ", ")));
}

// Which terms are counted; their names.
std::vector<std::string> set_terms(const MemoryArguments& options, ExtraTerms& extra) {
  std::vector<std::string> names;
  for (const Term& term : known_terms) {
    const bool named = std::ranges::any_of(
        options.with, [&](const std::string& name) { return name == term.name || name == "all"; });
    extra.*term.on = named || (term.by_default && !options.paper);
    if (extra.*term.on) names.emplace_back(term.name);
  }
  return names;
}

DeviceMemory device_of(const CLI::App& app, const MemoryArguments& options) {
  DeviceMemory device;
  device.available_bytes =
      static_cast<std::int64_t>(static_cast<long double>(options.device_bytes) *
                                static_cast<long double>(options.ratio_thousandths) / 1000);
  device.bins = options.bins;
  if (is_given(app, "--static-bytes")) device.static_bytes = options.static_bytes;
  return device;
}

// --gpus: layouts of so many devices.
void search(const CLI::App& app, const MemoryArguments& options, const MemoryModel& memory,
            const DeviceMemory& device, ReceivedRows received) {
  for (const char* option : {"--static-bytes", "--counts"})
    refuse_if_given(app, option, "is of one layout, and --gpus looks at many");
  for (const std::string& degree : options.degrees)
    if (degree != "cp" && degree != "vp" && degree != "etp")
      throw InvalidArgument("--parallel", fmt::format("{} is what --gpus looks for", degree),
                            "cp, vp and etp beside --gpus");
  const std::vector<LayoutFit> layouts = rank_layouts(memory, options.gpus, received, device);
  if (layouts.empty())
    throw InvalidArgument("--gpus",
                          fmt::format("{} devices have no layout with --parallel {}", options.gpus,
                                      degrees_text(memory.setup().parallel)),
                          "a multiple of cp, with whole copies of the experts");
  const LayoutsReport report{
      .layouts = layouts, .devices = options.gpus, .available_bytes = device.available_bytes};
  if (options.require_fit) require_fit(report);
  options.json ? print_json(report) : print_table(report);
}

void run(const CLI::App& app, const MemoryArguments& options) {
  if (options.ratio_thousandths > 1000)
    throw InvalidArgument("--available-ratio", format_thousandths(options.ratio_thousandths),
                          "a share of the device, above 0 and at most 1");
  if (!is_given(app, "--counts")) refuse_if_given(app, "--steps", "has no meaning without --counts");
  MemorySetup setup = options.setup;
  setup.full_recompute = options.recompute == 1;
  std::vector<std::string> terms = set_terms(options, setup.extra);
  ModelDescription description = read_model_description(options.model);
  if (!options.bytes_given && description.dtype_bytes > 0) setup.bytes.activation = description.dtype_bytes;
  const MemoryModel memory(std::move(description), setup);
  const DeviceMemory device = device_of(app, options);
  const ReceivedRows received = is_given(app, "--received") ? ReceivedRows(options.received) : std::nullopt;
  if (is_given(app, "--gpus")) return search(app, options, memory, device, received);

  MemoryReport report{.memory = memory,
                      .device = device,
                      .given_received = received,
                      .device_bytes = options.device_bytes,
                      .ratio_thousandths = options.ratio_thousandths,
                      .terms = std::move(terms),
                      .paper = options.paper,
                      .fit = fit(memory, received, device),
                      .longest_sequence = longest_sequence(memory, received, device),
                      .advice = {},
                      .least_budget = {},
                      .history = {}};
  report.least_budget = least_layer_budget(memory, report.fit.tightest);
  if (!report.fit.fits) report.advice = what_would_fit(memory, received, device);
  if (is_given(app, "--counts")) {
    ReceivedHistory history = read_history(options.counts, memory);
    if (is_given(app, "--steps")) {
      history = cut(std::move(history), options.steps);
      report.first_step = parse_whole("--steps", split(options.steps, ':')[0], 0, kAnySize);
    }
    report.history = choose_chunks(history, memory, report.fit, device);
  }
  if (options.require_fit) require_fit(report);
  options.json ? print_json(report) : print_table(report);
}

CLI::Option* add_text(CLI::App& app, const std::string& name, const std::string& type,
                      const std::string& help, std::function<void(const std::string&)> read) {
  const auto parse = [read = std::move(read)](const CLI::results_t& given) {
    read(given.front());
    return true;
  };
  return app.add_option(name, parse, help)->type_name(type);
}

void add_setup(CLI::App& app, MemoryArguments& options) {
  add_text(app, "--parallel", "tp=N,...",
           "Devices by dimension: tp, pp, ep, dp, vp, cp and etp; 1 where not said",
           [&](const std::string& text) { read_parallel(text, options); });
  add_whole(app, "--gpus", options.gpus, 1, most_degree, "Rank the layouts of so many devices instead")
      ->default_str("");
  add_whole(app, "--seq", options.setup.sequence, 1, longest_sequence_given, "Tokens of a sequence (s)");
  add_whole(app, "--micro-batch", options.setup.micro_batch, 1, 4096, "Sequences of a micro-batch (b)");
  add_word(app, "--recompute", options.recompute, {"none", "full"}, "What backward computes again");
  add_text(app, "--bytes", "activation=N,...",
           "Of a number: activation 2, weight 2, gradient 4, optimizer 12 (all states)",
           [&](const std::string& text) { read_bytes(text, options); });
  app.add_flag("--paper", options.paper, "Count the paper's terms alone, and those of --with");
  add_text(app, "--with", "TERM,...", "Terms that are off, or all: sharded-optimizer; with --paper any",
           [&](const std::string& text) { read_terms(text, options); });
  add_whole(app, "--borrowed-experts", options.setup.extra.borrowed_experts, 0, 1 << 16,
            "Experts whose weights and gradients visit for a step");
  add_size(app, "--allocation-granule", options.setup.extra.allocation_granule,
           "Each tensor takes a multiple of this");
}

void add_device(CLI::App& app, MemoryArguments& options) {
  add_size(app, "--device-memory", options.device_bytes, "Of one device (M_GPU)");
  app.get_option("--device-memory")->default_str("80GB");
  add_thousandths(app, "--available-ratio", options.ratio_thousandths, 1,
                  "The share that may be used (alpha)");
  add_size(app, "--static-bytes", options.static_bytes, "Static memory as measured, instead of Eq. 1");
  add_whole(app, "--received", options.received, 0, longest_sequence_given << 8,
            "Rows of the fullest device (s'); without, the worst routing's")
      ->default_str("");
  add_wholes(app, "--bins", options.bins, 1, 1 << 20, "Chunk counts to choose from, ascending");
}

}  // namespace

Subcommand add_memory(CLI::App& command) {
  auto options = std::make_shared<MemoryArguments>();
  CLI::App* app =
      command.add_subcommand("memory", "What a device holds in training, what fits, and in how many chunks");
  app->add_option("--model", options->model, "The model's config.json")->required()->type_name("FILE");
  add_setup(*app, *options);
  add_device(*app, *options);
  app->add_option("--counts", options->counts,
                  "Chunks for each of [steps, layers] rows, or [steps, layers, experts] loads")
      ->type_name("FILE");
  app->add_option("--steps", options->steps, "Of --counts: these")->type_name("A:B");
  app->add_flag("--require-fit", options->require_fit, "Exit 4 where it does not fit");
  add_json(*app, options->json);
  app->footer(
      "Example:\n  evenkeel memory --model config.json --parallel pp=4,ep=32 --seq 4096 --device-memory "
      "64GB");
  return {app, [app, options] { run(*app, *options); }};
}

}  // namespace evenkeel::cli
