// SPDX-License-Identifier: Apache-2.0
// The command that runs the case of one row again with its kernel: the only place that spells it. It stands
// in the row itself (column repeat), so tables, failures.txt, JUnit, the summary and the HTML report all show
// the same.
#pragma once

#include <string>

#include "harness/report/row.hpp"
#include "harness/run/options.hpp"

namespace assay {

// For a POSIX shell, started in the folder the run was started in: `bench` where the run timed (a kernel may
// fail only then), `check` otherwise; the backend, and every option that is not at its default and matters to
// this row.
std::string repeat_command(const Row&, const RunOptions&);

}  // namespace assay
