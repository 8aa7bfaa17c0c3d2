// SPDX-License-Identifier: Apache-2.0
// Names of what only the scenario language knows (storage, index, slots, tree, input); enumerators of the C
// header have theirs in harness/problem/names.hpp. A new value: a row here.
#pragma once

#include "harness/problem/names.hpp"
#include "harness/problem/problem.hpp"

namespace assay {

inline constexpr Name kStorageNames[] = {{"split", static_cast<int32_t>(Storage::kSplit)},
                                         {"stacked", static_cast<int32_t>(Storage::kStacked)},
                                         {"interleaved", static_cast<int32_t>(Storage::kInterleaved)}};
inline constexpr Name kIndexNames[] = {{"full", 0}, {"swa", 1}};
inline constexpr Name kSlotNames[] = {{"ordered", 0}, {"drawn", 1}};
inline constexpr Name kWriteNames[] = {{"on", 0}, {"off", 1}};
inline constexpr Name kTreeNames[] = {{"compact", 0}, {"flat", 1}};
inline constexpr Name kPoolNames[] = {{"own", 0}, {"full", 1}};
inline constexpr Name kScalesNames[] = {{"given", 0}, {"computed", 1}};
inline constexpr Name kSourcesNames[] = {{"1", 0}, {"2", 1}};
inline constexpr Name kSwitchNames[] = {{"off", 0}, {"on", 1}};
inline constexpr Name kRecipeNames[] = {{"normal", static_cast<int32_t>(InputRecipe::kNormal)},
                                        {"peaked", static_cast<int32_t>(InputRecipe::kPeaked)},
                                        {"ascending", static_cast<int32_t>(InputRecipe::kAscending)},
                                        {"boundary", static_cast<int32_t>(InputRecipe::kBoundary)},
                                        {"cancelling", static_cast<int32_t>(InputRecipe::kCancelling)},
                                        {"outlier", static_cast<int32_t>(InputRecipe::kOutlier)},
                                        {"exact", static_cast<int32_t>(InputRecipe::kExact)},
                                        {"incidence", static_cast<int32_t>(InputRecipe::kIncidence)},
                                        {"dyadic", static_cast<int32_t>(InputRecipe::kDyadic)},
                                        {"narrow", static_cast<int32_t>(InputRecipe::kNarrow)},
                                        {"negative", static_cast<int32_t>(InputRecipe::kNegative)},
                                        {"patterned", static_cast<int32_t>(InputRecipe::kPatterned)},
                                        {"codes", static_cast<int32_t>(InputRecipe::kCodes)},
                                        {"steep", static_cast<int32_t>(InputRecipe::kSteep)}};

}  // namespace assay
