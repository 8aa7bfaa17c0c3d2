// SPDX-License-Identifier: Apache-2.0
// Puts the results folders of a run's shards together into one. Refuses whatever would make the sum
// look complete when it is not: a shard missing, unfinished or given twice, rows in two shards, rows or
// samples lost from a finished folder, shards of different runs. What is asked for in part says that it is.
#pragma once

#include <string>
#include <vector>

#include "harness/report/row.hpp"

namespace assay {

struct Merged {
  std::vector<Row> rows;  // of shard 1, then 2, ...
  std::string folder;
};

// Writes rows.csv, run.json and the pages into `out` (made; InputError when it is not empty) or throws
// InputError before anything is written. `partial`: shards that were ended early, and those that are missing,
// count as far as they came; run.json says that the whole is not complete then, and which shards it has.
Merged merge(const std::vector<std::string>& folders, const std::string& out,
             const std::vector<std::string>& command, bool partial = false);

}  // namespace assay
