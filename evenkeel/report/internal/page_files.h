// The files of report/page/, and d3, as written into every page. cmake/embed_files.cmake makes their
// contents.
#pragma once

#include <string_view>

namespace evenkeel::page_files {

extern const std::string_view style;
extern const std::string_view drawing;
extern const std::string_view script;
extern const std::string_view d3;  // empty if the build did not find d3
extern const std::string_view d3_licence;

}  // namespace evenkeel::page_files
