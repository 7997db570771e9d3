// The command `evenkeel`: reads the command line, hands over to a subcommand, and turns errors into an exit
// status.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "cli/error_report.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/page_option.h"
#include "cli/subcommand.h"

namespace evenkeel::cli {

namespace {

constexpr const char* kExamples = R"(Examples:
  evenkeel place profile.safetensors --ranks 8 -o placement.json
  evenkeel plan loads.json --ranks 8 --planner level
  evenkeel run --scenario concentrated:0.95:1 --ranks 8 --tokens 512 --min-segment 64
  evenkeel SUBCOMMAND --help

Exit status: 0 done, 2 usage, 3 an input is wrong, 4 cannot be done as asked, 5 communication.)";

const CLI::App* chosen(const std::vector<Subcommand>& subcommands) {
  for (const Subcommand& each : subcommands)
    if (each.app->parsed()) return each.app;
  return nullptr;
}

// Names an unknown subcommand. CLI11 would only say that a subcommand is missing.
void require_subcommand(const std::vector<Subcommand>& subcommands, int argc, char** argv) {
  const auto word = std::find_if(argv + 1, argv + argc, [](const char* w) { return *w != '-'; });
  if (word == argv + argc) return;
  std::vector<std::string> names;
  for (const Subcommand& each : subcommands) names.push_back(each.app->get_name());
  if (std::ranges::find(names, *word) != names.end()) return;
  throw InvalidArgument(kCommandLine, fmt::format("there is no subcommand '{}'", *word),
                        fmt::format("{}", fmt::join(names, ", ")));
}

// Prints --help or --version, and checks that the write succeeds; CLI11's own printing does not check.
int print_asked(const CLI::App& command, const CLI::Success& asked) {
  std::ostringstream out;
  const int status = command.exit(asked, out, out);
  print_text(out.str());
  require_printed();
  return status;
}

int dispatch(CLI::App& command, const std::vector<Subcommand>& subcommands, int argc, char** argv) {
  try {
    require_subcommand(subcommands, argc, argv);
    refuse_empty_values(argc, argv);
    command.parse(argc, argv);
  } catch (const CLI::Success& asked) {
    return print_asked(command, asked);
  }
  for (const Subcommand& each : subcommands)
    if (each.app->parsed()) each.run();
  require_printed();
  return static_cast<int>(Exit::success);
}

int run(int argc, char** argv) {
  remember_command(argc, argv);
  CLI::App command("Keeps Mixture-of-Experts models balanced across devices.", "evenkeel");
  command.set_version_flag("--version", "evenkeel " EVENKEEL_VERSION);
  command.require_subcommand(1);
  command.footer(kExamples);
  const std::vector<Subcommand> subcommands = {
      add_profile(command), add_convert(command), add_place(command), add_evaluate(command),
      add_compare(command), add_permute(command), add_plan(command),  add_memory(command),
#ifdef EVENKEEL_WITH_LAYER
      add_run(command),     add_bench(command),   add_demo(command)
#endif
  };
  const bool json =
      std::any_of(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--json"; });
  for (const Subcommand& each : subcommands) refuse_empty_values(*each.app);
  try {
    return dispatch(command, subcommands, argc, argv);
  } catch (const CLI::ParseError& error) {
    return report_usage(error, command, chosen(subcommands), json);
  } catch (const Error& error) {
    return report(error, chosen(subcommands), json);
  } catch (const std::exception& error) {
    return report_other(error, json);
  }
}

}  // namespace

}  // namespace evenkeel::cli

int main(int argc, char** argv) {
  evenkeel::cli::open_standard_streams();
  evenkeel::cli::watch_signals();
  try {
    return evenkeel::cli::run(argc, argv);
  } catch (const std::exception&) {  // even the error could not be reported
    evenkeel::cli::write_stderr("evenkeel: the machine has not enough memory for this\n");
    return static_cast<int>(evenkeel::cli::Exit::impossible);
  }
}
