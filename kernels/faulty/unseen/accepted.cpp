// SPDX-License-Identifier: Apache-2.0
// See accepted.hpp. The rule: a cause is accepted when its sentence in harness/explain/causes.cpp is true of
// the kernel, also where it says less than the whole truth; a sentence that a reader would be misled by is
// not, however well it fits. Five rows name causes that were added to the vocabulary afterwards.
#include "kernels/faulty/unseen/accepted.hpp"

#include <string_view>

#include "kernels/faulty/unseen/faults.hpp"

namespace assay_unseen {
namespace {

struct Accepted {
  const char *fault, *causes;
};

// clang-format off
constexpr Accepted kAccepted[] = {
#include "kernels/faulty/unseen/accepted.inc"
};
// clang-format on
static_assert(sizeof kAccepted / sizeof *kAccepted == kFaultCount);

}  // namespace

const char* accepted_causes(const char* fault) {
  for (const Accepted& row : kAccepted)
    if (std::string_view(row.fault) == fault) return row.causes;
  return nullptr;
}

}  // namespace assay_unseen
