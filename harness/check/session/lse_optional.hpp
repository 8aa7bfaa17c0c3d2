// SPDX-License-Identifier: Apache-2.0
// For a kernel that promises to do without an LSE: O is the same without one, bit for bit.
#pragma once

#include "harness/check/session/session.hpp"

namespace assay {

// A run without an LSE, in the buffers of the session, of which the first run with one left `left`: what is
// wrong with it.
Objection differs_without_lse(Session&, const Backend&, const assay_kernel&, const assay_device&,
                              const Inputs&, const Snapshot& left);

}  // namespace assay
