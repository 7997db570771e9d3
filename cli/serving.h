// evenkeel memory --serve: what one device holds while a model is served.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/memory_options.h"
#include "evenkeel/serving_memory/serving.h"

namespace evenkeel::cli {

struct ServingArguments {
  bool serve = false;
  ServingSetup setup;
};

void add_serving(CLI::App& app, ServingArguments& arguments);
// Refuses options that need --serve. Call it if --serve is not given.
void refuse_serving_options(const CLI::App& app);
void serve(const CLI::App& app, const MemoryArguments& options, const ServingArguments& serving);

}  // namespace evenkeel::cli
