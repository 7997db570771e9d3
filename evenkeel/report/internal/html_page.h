// A page that people can open and send to others: one HTML file that draws the data inside it and makes no
// network requests.
//
// Written   From a document (below) whose format does not depend on any report. The to_html() of each result
//           makes such a document. The page contains the document as JSON (id "data"), so that other programs
//           can read it.
// Drawn     In the browser, by report/page/ with d3. A build without d3 has no pages.
// Size      drawn() rounds numbers that are only drawn to four digits. pooled() shortens long rows.
//
// The document. A field with `?` may be left out. An unknown number is null, and is drawn as a gap.
//
//   {title, command, made_with, notes?: [text], filters?, sections: [section]}
//   filters   {layers?: [label], steps?: [first, last]}: lets the reader choose a layer and a range of steps
//             in every section that has layers or steps (heat and band below)
//   section   {kind, title, id, caption?, ...}: `id` is the link target; `caption` says what is shown
//
// A unit is "bytes", "ms", "s", "ratio" (three decimals), "share" (0..1, shown as a percentage), "count", ""
// or any other word, which is written after the number. Panels of a section always share one scale.
//
//   tiles      {verdict?: [text], before?: name, after?: name,
//               tiles: [{label, before?, after, unit?, better?: "lower"|"higher", note?}]}
//   histogram  {unit?, x: label, y?: label, series: [{name, values: [number]}]}
//              one row per series, over the same bins
//              {…, edges: [n+1], series: [{name, counts: [n]}]}       if values are already counted
//   heat       {unit?, row: "layer", column: "step", rows: [label], columns: n | [label], first?: 0,
//               log?, least?: number, panels: [{name, values: [rows][columns]}]}
//              rows whose labels are among filters.layers, and columns that are steps, follow the filters;
//              `first` is the number of the first column, `least` the value where the colours begin
//   band       {unit?, x: label, y: label, first?: 0, every?: 1, line?: {y, label},
//               panels: [{name, layer?: label, least: [], median: [], p95: [], most: []}]}
//              over all ranks, by step: every `every`-th step from `first` on; a panel with a `layer` is
//              shown if that layer is chosen
//   matrix     {unit?, row: "from rank", column: "to rank", log?, panels: [{name, values: [P][P]}]}
//   memory     {x: label, budget?: bytes, panels: [{name, series: [{name, values: [bytes]}],
//               marks?: [{at, label}]}]}
//              series are step lines over points 0, 1, ...; `marks` name the stretches that begin at `at`
//   stack      {unit?, x: label, y: label, line?: {y, label}, panels: [{name, bars: [{label, parts:
//               [{name, value}]}]}]}
//   plan       {unit?, panels: [{name, ranks: [{rank, parts: [{owner, value}]}],
//               transfers?: [{from, to, what}]}]}
//              what each rank computes, by the rank that owns the experts, and which weights travel
//   table      {columns: [{key, label, unit?, align?: "left"|"right"}], rows: [{key: value}]}
//              sorted when the reader clicks a column's head
//   curves     {x: {label, unit?, log?, whole?}, y: {label, unit?, log?, zero?}, line?: {y, label},
//               panels: [{name, series: [{name, points: [[x, y] | [x, y, low, high]]}]}]}
//   notes      {paragraphs: [text]}
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/report/html.h"
#include "evenkeel/report/internal/json.h"

namespace evenkeel::internal {

// A document {title, command, made_with}, still without sections.
Json page_of(const std::string& title, const PageOrigin& origin);
// One entry of the `columns` of a table.
Json column(const std::string& key, const std::string& label, const char* unit = "");
// One entry of `tiles`; a null `before` is left out.
Json tile(const std::string& label, const Json& before, const Json& after, const char* unit);
// The whole file. Throws Unsupported if this build has no pages.
std::string html_page(const Json& document);

// Rounds to four significant digits; null if the value is not a number.
Json drawn(double value);
Json drawn(std::span<const double> values);
Json drawn(std::span<const std::int64_t> values);

// How many columns to pool into one, so that no more than `most` columns remain.
constexpr std::size_t pool_of(std::size_t columns, std::size_t most) {
  return columns <= most ? 1 : (columns + most - 1) / most;
}
// For each run of `pool` values, the largest of them; the last run may be shorter. NaN counts as no value.
std::vector<double> pooled(std::span<const double> values, std::size_t pool);

}  // namespace evenkeel::internal
