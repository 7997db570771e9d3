// The files of report/page/, and d3, as they are written into every page. Made by cmake/embed_files.cmake.
#pragma once

#include <string_view>

namespace evenkeel::page_files {

extern const std::string_view style;
extern const std::string_view drawing;
extern const std::string_view script;
extern const std::string_view d3;  // empty if not found
extern const std::string_view d3_licence;

}  // namespace evenkeel::page_files
