// SPDX-License-Identifier: Apache-2.0
// JUnit XML, which every CI system shows: a testsuite per suite file (or op, for lines typed by hand), a
// testcase per row. wrong and untrusted are failures; crashed, timed_out, invalid and unknown outcomes
// are errors; unsupported is skipped with the kernel's reason.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "harness/report/row.hpp"

namespace assay {

std::string junit_xml(std::span<const Row>);

// Text for an XML attribute or element: entities escaped, characters XML 1.0 forbids made visible.
std::string xml_escape(std::string_view);

}  // namespace assay
