// A page to look at and to send: one HTML file that draws its own data and asks nothing of any network.
//
// Written   from a document (below) that names no report: to_html() of each result makes one. The document
//           stands in the page as JSON (id "data"), so that the page is also the file to work on from.
// Drawn     in the browser, by report/page/ with d3. A build without d3 has no pages.
// Size      What is only drawn is given by drawn(): four digits. Long rows are pooled by pooled().
//
// The document. A field with `?` may be left out; a number that is not known is null and drawn as a gap.
//
//   {title, command, made_with, notes?: [text], filters?, sections: [section]}
//   filters   {layers?: [label], steps?: [first, last]}: a choice of one layer, and of a range of steps, for
//             every section that has them (heat and band below)
//   section   {kind, title, id, caption?, ...}: `id` is the place to link to; `caption` says what is seen
//
// A unit is "bytes", "ms", "s", "ratio" (three places), "share" (0..1, as a percentage), "count", "" or any
// other word, which is put behind the number. Panels of a section always share one scale.
//
//   tiles      {verdict?: [text], before?: name, after?: name,
//               tiles: [{label, before?, after, unit?, better?: "lower"|"higher", note?}]}
//   histogram  {unit?, x: label, y?: label, series: [{name, values: [number]}]}
//              one row a series, over the same bins
//              {…, edges: [n+1], series: [{name, counts: [n]}]}       where they are counted already
//   heat       {unit?, row: "layer", column: "step", rows: [label], columns: n | [label], first?: 0,
//               log?, least?: number, panels: [{name, values: [rows][columns]}]}
//              rows whose labels are among filters.layers and columns that are steps follow the filters;
//              `first` is the number of the first column, `least` where the colours begin
//   band       {unit?, x: label, y: label, first?: 0, every?: 1, line?: {y, label},
//               panels: [{name, layer?: label, least: [], median: [], p95: [], most: []}]}
//              of all ranks, by step, from `first` on, one of `every`; a panel with a `layer` is shown where
//              that layer is chosen
//   matrix     {unit?, row: "from rank", column: "to rank", log?, panels: [{name, values: [P][P]}]}
//   memory     {x: label, budget?: bytes, panels: [{name, series: [{name, values: [bytes]}],
//               marks?: [{at, label}]}]}
//              series are stairs over points 0, 1, ...; `marks` name the stretches that begin at `at`
//   stack      {unit?, x: label, y: label, line?: {y, label}, panels: [{name, bars: [{label, parts:
//               [{name, value}]}]}]}
//   plan       {unit?, panels: [{name, ranks: [{rank, parts: [{owner, value}]}],
//               transfers?: [{from, to, what}]}]}
//              what each rank computes, by the rank whose experts they are, and whose weights travel
//   table      {columns: [{key, label, unit?, align?: "left"|"right"}], rows: [{key: value}]}
//              sorted by a click on a column's head
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

// {title, command, made_with}, and no sections yet.
Json page_of(const std::string& title, const PageOrigin& origin);
// Of a table.
Json column(const std::string& key, const std::string& label, const char* unit = "");
// Of `tiles`; without `before` where that is null.
Json tile(const std::string& label, const Json& before, const Json& after, const char* unit);
// The whole file. Throws Unsupported where this build has no pages.
std::string html_page(const Json& document);

// To four significant digits; null where it is no number.
Json drawn(double value);
Json drawn(std::span<const double> values);
Json drawn(std::span<const std::int64_t> values);

// Of so many columns, how many are drawn as one so that at most `most` are left.
constexpr std::size_t pool_of(std::size_t columns, std::size_t most) {
  return columns <= most ? 1 : (columns + most - 1) / most;
}
// The largest of each `pool` values, one after the other; the last may be of fewer. NaN is no value.
std::vector<double> pooled(std::span<const double> values, std::size_t pool);

}  // namespace evenkeel::internal
