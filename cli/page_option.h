// --html FILE: the result as a page, beside what is printed.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/output.h"
#include "evenkeel/io/atomic_file.h"
#include "evenkeel/report/html.h"

namespace evenkeel::cli {

// Keeps the command line, for pages to show. Call it once, in main.
void remember_command(int argc, const char* const* argv);
PageOrigin page_origin();

void add_html(CLI::App& app, std::string& html);
// Call it before long work. Throws Unsupported if this build has no pages, and InvalidArgument if the page
// cannot be written, or would overwrite an input, as in require_not_read(), or another output.
void require_page(const std::string& html, const std::vector<std::string>& recordings,
                  const std::vector<std::string>& others, const std::string& output = "",
                  const char* output_option = "--output");

// Writes the page, if one is asked for, then prints the result. `more` are further arguments of to_html().
template <class Result, class... More>
void show_result(const Result& result, bool as_json, const std::string& html, const More&... more) {
  if (!html.empty()) write_file(html, to_html(result, more..., page_origin()));
  print_result(result, as_json);
  if (!html.empty()) say("note: the page is {}", html);
}

}  // namespace evenkeel::cli
