// Tables of published times, measured by others (tests/data/README.md).
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace evenkeel::testing {

using PublishedRow = std::map<std::string, std::string>;  // value by column

inline std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream text(line);
  for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
  return cells;
}

inline std::vector<PublishedRow> published_table(const std::string& name) {
  std::ifstream file(EVENKEEL_SOURCE_DIR "/tests/data/published/" + name);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> names = cells_of(line);
  std::vector<PublishedRow> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = cells_of(line);
    rows.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i) rows.back()[names[i]] = cells.at(i);
  }
  return rows;
}

inline double number(const PublishedRow& row, const char* name) {
  return std::stod(row.at(name));
}

}  // namespace evenkeel::testing
