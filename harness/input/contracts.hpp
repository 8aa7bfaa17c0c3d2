// SPDX-License-Identifier: Apache-2.0
// What a kernel's contract (enum assay_contract of the C header) changes of the inputs it gets and of the
// cases it is asked. A new contract: a bit there, its name here, and what it changes.
#pragma once

#include <cstdint>
#include <string>

#include "harness/input/inputs.hpp"

namespace assay {

// "finite_unused lse_base_2": the names of the bits in the order of the header; empty for none.
std::string contracts_text(uint32_t contracts);
// A combination that cannot be, or that the op has no room for, in words; empty when it can.
std::string impossible_contracts(uint32_t contracts, int32_t op);
// "required ..., supported ..., missing ..." for a problem outside of the contract; empty inside.
std::string outside_contracts(const Problem&, uint32_t contracts);
// The same of a problem that is captured, or that a captured call is replayed for.
std::string outside_graph_contracts(const Problem&, uint32_t contracts);

// Views and unused memory as a kernel of these contracts gets them; the values stay. Inputs of nobody yet are
// those of a kernel without contracts. Unused memory is written again only where FINITE_UNUSED comes or goes.
void meet_contracts(Inputs&, uint32_t contracts);

// One unit of the LSE as the kernel writes it, in natural units.
double lse_unit(uint32_t contracts);

}  // namespace assay
