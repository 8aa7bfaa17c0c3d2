// SPDX-License-Identifier: Apache-2.0
// What an op makes of the requests of a batch: the parts of their keys that a decode_splitkv keeps apart, and
// the attention that a step ends with.
#pragma once

#include "harness/ops/op.hpp"
#include "harness/problem/problem.hpp"

namespace assay {

// Inputs for ops that cut up a context, and why the others are none.
inline constexpr RecipeSet kRecipesOfParts =
    kAllRecipes & ~recipe_set(InputRecipe::kExact, InputRecipe::kIncidence, InputRecipe::kDyadic);
inline constexpr std::string_view kRecipesOfPartsMessage =
    "cuts up a context, for the whole of which input=exact, incidence and dyadic answer; take another input";

// The keys of a request of kv_len keys that a part holds, before masks.
KeyRange part_keys(const Problem&, int32_t kv_len, int32_t part);
// The problem over the whole cache whose result is that part's.
Problem part_of(const Problem&, int32_t part);

// The attention that a step ends with, over a complete cache, or that a schedule cuts up.
Problem attention_of(const Problem&);

// Attends, and to all keys of a request: then recipes exist whose O is known beforehand.
bool answers_are_known(const Op&);

}  // namespace assay
