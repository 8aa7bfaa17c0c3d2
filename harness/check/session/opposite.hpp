// SPDX-License-Identifier: Apache-2.0
// Other visible values in the same buffers, with a known answer and without another reference: V with every
// sign turned. O then turns its sign, LSE stays, and everything that was kept from before (by a plan, by the
// values of Q, by an output that nobody writes any more) has the wrong one.
#pragma once

#include <string>

#include "harness/check/session/session.hpp"

namespace assay {

// On the host only; done twice it is undone. False, and nothing done, where V has no signs to turn: an op
// without one, or V that is a part of K.
bool turn_values(Inputs&);

// Why O and LSE of `after` are not those of `before`, with O's sign turned if `opposite`; "" when they are,
// as far as two calls of one kernel on such values agree (to a 16th: what is kept is off by twice its value).
std::string not_as_turned(const Inputs&, const Snapshot& before, const Snapshot& after, bool opposite);

}  // namespace assay
