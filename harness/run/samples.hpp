// SPDX-License-Identifier: Apache-2.0
// samples.bin of a results folder: every timed call behind the rows of rows.csv, so that medians, intervals
// and drifts can be looked at again. Records of 24 bytes, little endian, in the order of the rows; those of a
// row are on the disk before the row is, so a killed run loses none that counts:
//
//   row u4, flags u4 (1: left out, the device was throttled), us f8, sm_mhz f4 (NaN: not known), at_s f4
//
// `row` counts the rows of rows.csv from 0; at_s is when the call had ended, in seconds since its row's
// first.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/measure/measure.hpp"
#include "harness/report/row.hpp"

namespace assay {

inline constexpr const char* kSamplesName = "samples.bin";

std::string sample_bytes(int64_t row, const Samples&);

struct SamplesFile {
  std::vector<Samples> of_row;  // as many as rows
  // Up to the last whole record of such a row: what to cut the file to before appending.
  int64_t valid_bytes = 0;
};
// Of the first `rows` rows; nothing when there is no file. InputError when records are out of order or
// impossible.
SamplesFile read_samples(const std::string& path, size_t rows);
// InputError unless every row has as many records as its columns say (samples, throttled).
void check_samples(const std::string& path, std::span<const Row> rows, const SamplesFile&);

// What run.json says about the file: its name and numpy's description of a record.
nlohmann::json samples_json();

}  // namespace assay
