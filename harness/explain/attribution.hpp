// SPDX-License-Identifier: Apache-2.0
// To which keys does an error belong? The error of O is written as a change of the weights of the keys, by
// least squares with the weights themselves as the expected size of a change: a dropped key shows as minus
// its weight, a doubled one as plus. Feeds the picture and the words about pages and tiles.
#pragma once

#include <vector>

#include "harness/explain/evidence.hpp"
#include "harness/explain/predict.hpp"

namespace assay {

// One row of the picture: change of weight of every key of the request; NaN or infinite errors give zeros.
struct Attribution {
  Cell cell;
  int32_t begin = 0, end = 0;  // visible interval
  bool bad = false;
  std::vector<double> change;  // [kv_len]
  std::vector<double> weight;  // [kv_len], right weights; 0 for masked keys
  double error = 0;            // root mean square of the error of O in units of legal noise
  bool finite = true;
};

Attribution attribute(const Evidence&, Predictor&, Call, const Cell&);

// The cells of the picture: rows of the worst cell's request under its head, or, where that request has one
// row, the heads of that row. At most 64.
std::vector<Cell> picture_cells(const Evidence&, const Cell& worst);

}  // namespace assay
