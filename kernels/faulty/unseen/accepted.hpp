// SPDX-License-Identifier: Apache-2.0
// Which answers of `assay explain` are right for a fault: written after the faults, by looking at the names
// of its causes, before anything was measured.
#pragma once

namespace assay_unseen {

// Names of causes (harness/explain/causes.hpp) with spaces between them; "none" where explain knows none.
const char* accepted_causes(const char* fault);

}  // namespace assay_unseen
