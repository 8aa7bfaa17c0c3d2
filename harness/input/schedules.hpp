// SPDX-License-Identifier: Apache-2.0
// The schedules that ops are given (ps_metadata of enum assay_op): even shares, but with workers in a drawn
// order, partial results numbered, merges listed and their parts named in drawn orders, so that nothing
// can be taken for granted which the lists do not say.
#pragma once

#include "harness/input/inputs.hpp"
#include "reference/data_ops/schedule.hpp"

namespace assay {

ScheduleShape schedule_shape(const Problem&);
Schedule draw_schedule(const Problem&);
void write_schedule(Inputs&);  // all lists of it that the op reads

}  // namespace assay
