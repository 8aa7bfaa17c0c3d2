// SPDX-License-Identifier: Apache-2.0
// The probes of the support matrix: a feature and a small case that needs it beyond the plainest one that a
// kernel takes, and the shapes among which that is looked for. To add a feature to `assay kernels`: one row
// of the table in probes.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay {

struct Probe {
  std::string feature;  // "mask tree"
  std::string line;     // scenario
};
// Fields of a small case: "h=4/2 d=64"; those of the batch apart.
using Shape = std::vector<std::string>;
std::string shape_text(const Shape&);
// For an op name ("paged"): shapes a kernel may be made for, the most usual first, of which the first is what
// is asked of every kernel; the line of one; and the features, as changes of a shape.
std::vector<Shape> candidate_shapes(std::string_view op);
std::string shape_line(std::string_view op, const Shape&);
std::vector<Probe> support_probes(std::string_view op, const Shape&);
// One field of the shape in other values each: "h", "d", and "page" where there is a cache.
struct ShapeAxis {
  std::string field;
  std::vector<Probe> values;  // Probe::feature is the value
};
std::vector<ShapeAxis> shape_axes(std::string_view op, const Shape&);
// Whether the language takes the line at all.
bool buildable(const std::string& line);

}  // namespace assay
