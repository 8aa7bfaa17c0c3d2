// SPDX-License-Identifier: Apache-2.0
// One case inside the worker: build it, judge every kernel with one reference, time those that passed,
// and say a Row for each. Works without a socket too: `say` gets the messages.
#pragma once

#include <functional>

#include "harness/check/verdict.hpp"
#include "harness/measure/clocks.hpp"
#include "harness/report/row.hpp"
#include "harness/run/housekeeping.hpp"
#include "harness/run/messages.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {

using Say = std::function<void(const WorkerAnswer&)>;

// `calibration`: "defaults" or a fingerprint, for the rows. Everything a scenario
// or a kernel can do wrong becomes a row; only a process that dies, or a bug of assay, gets past this. False
// when a kernel left the device or the process unusable: the rows said so far stand, and the process must
// end.
bool run_case(const RunCaseOrder&, const Backend&, const assay_device&, const std::string& calibration,
              Housekeeping&, const Say& say);

// Why a kernel that was asked for cannot be called: the library's list is another one in this process.
std::string not_listed(const std::string& kernel);

// The part of a row known from the scenario text alone; outcome and the rest stay empty. Used for rows
// the parent has to write itself.
Row row_of_line(const std::string& scenario, const std::string& place);

// The device's clock, opened once per process (the library behind it stays loaded); null when there is none.
DeviceClock* clock_of(const Backend&, const assay_device&);

// The columns that describe the batch.
void fill_batch(Row&, const Problem&);
void fill_verdict(Row&, const Verdict&);

}  // namespace assay
