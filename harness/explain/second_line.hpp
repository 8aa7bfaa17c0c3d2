// SPDX-License-Identifier: Apache-2.0
// A second line: what explains one case must explain another that the same kernel gets wrong, and causes that
// predict the same on one case rarely do on another.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>

#include "harness/explain/rank.hpp"

namespace assay {

struct Scenario;
double scale_of(const Scenario&);  // the softmax scale that it says, or that of its head dimension

// The line with other values and, where its batch lists its requests, more requests of the same kinds with
// other lengths; empty where that is no legal line.
std::string second_line(const std::string& line);
// The line with values of the usual size; empty where it has them.
std::string usual_line(const std::string& line);

// Takes out what the choice does not ask for. Words are the same where numbers with a fraction differ by less
// than a fiftieth, whatever tiles and parts were assumed.
void keep_asked(Hypotheses&, const Choice&);

// A line for causes that explain both as well: other numbers (scale, cap, window, chunk), scales that differ
// by head, several rows where there was one, other pages. `step` 0 changes all of it, the others less, for
// kernels that refuse the first; empty where that is no legal line. `many_rows`: with a request of more rows
// than a window or a chunk holds keys, of which no number of a row is small; up to step 1.
inline constexpr int kSeparatingSteps = 4, kManyRowsSteps = 2;
std::string separating_line(const std::string& line, int step, bool many_rows = false);

// Ranks the causes of the other line that are asked for; nothing where it shows nothing wrong.
using RankElsewhere = std::function<Ranking(const Choice&)>;

// Numbers that two lines have each its own: sizes of a tile and its halves, quarters and eighths, where it
// differs between the two.
using GivenNumbers = std::set<std::pair<std::string, std::string>>;
GivenNumbers tile_numbers(int32_t here, int32_t there);

// Looks at what the ranking would say on the second line. Causes that explain less there than others that
// explain as much here fall behind those. Where none explains it, another form of them that explains both
// lines takes their place (`here`: ranks the causes that are asked for on the first line), or the ranking is
// not sure any more.
void confirm(Ranking&, const std::string& line, const RankElsewhere& here, const RankElsewhere& elsewhere,
             const GivenNumbers& tiles = {});

// An answer that assumes much must explain the third line too, in the same words, of which numbers may differ
// as the lines do; else the ranking is not sure any more.
void confirm_apart(Ranking&, const std::string& line, const std::string& third, const RankElsewhere& apart,
                   const GivenNumbers& tiles = {});

// Where the third line made it unsure: another form of the first cause that explains all three lines takes
// its place.
void other_form_of_all(Ranking&, const std::string& third, const RankElsewhere& here,
                       const RankElsewhere& second, const RankElsewhere& apart);

// Of causes that explain both lines as well: those that explain hardly anything of a third one that one of
// them explains fall behind.
void tell_apart(Ranking&, const RankElsewhere& apart);

}  // namespace assay
