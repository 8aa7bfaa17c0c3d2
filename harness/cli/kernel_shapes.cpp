// SPDX-License-Identifier: Apache-2.0
// See kernel_shapes.hpp.
#include "harness/cli/kernel_shapes.hpp"

#include <algorithm>

namespace assay {

KernelAnswers ask_kernel(Dispatcher& dispatcher, std::string_view op, const std::string& name) {
  const std::vector<Shape> candidates = candidate_shapes(op);
  KernelAnswers a{name, candidates.front(), false, {}, {}};
  const auto status = [&](const std::vector<std::string>& lines) {
    std::vector<KernelSupport> all;
    for (const auto& said : dispatcher.supports(lines, {name}))
      all.push_back(said.empty() ? KernelSupport{name, ASSAY_FAILED, "no answer"} : said.front());
    return all;
  };
  const int32_t first = status({shape_line(op, a.shape)}).front().status;
  a.takes_it = first == ASSAY_OK;
  if (first == ASSAY_UNSUPPORTED) {
    std::vector<std::string> lines;
    std::vector<size_t> which;
    for (size_t i = 1; i < candidates.size(); ++i)
      if (buildable(shape_line(op, candidates[i]))) {
        lines.push_back(shape_line(op, candidates[i]));
        which.push_back(i);
      }
    const std::vector<KernelSupport> said = status(lines);
    const auto taken = std::find_if(said.begin(), said.end(), [](auto& s) { return s.status == ASSAY_OK; });
    if (taken != said.end()) a.shape = candidates[which[static_cast<size_t>(taken - said.begin())]];
    a.takes_it = taken != said.end();
  }
  std::vector<std::string> lines;
  std::vector<int> at;  // of each probe in lines; -1: cannot be built at this shape
  const auto add = [&](const std::string& line) {
    const bool fine = buildable(line);
    at.push_back(fine ? static_cast<int>(lines.size()) : -1);
    if (fine) lines.push_back(line);
  };
  const std::vector<Probe> probes = support_probes(op, a.shape);
  const std::vector<ShapeAxis> axes = shape_axes(op, a.shape);
  for (const Probe& p : probes) add(p.line);
  if (a.takes_it)
    for (const ShapeAxis& axis : axes)
      for (const Probe& p : axis.values) add(p.line);
  const std::vector<KernelSupport> said = status(lines);
  const auto answer = [&](size_t i) {
    return at[i] < 0 ? KernelSupport{name, ASSAY_UNSUPPORTED, "does not go with " + shape_text(a.shape)}
                     : said[static_cast<size_t>(at[i])];
  };
  size_t next = 0;
  for (; next < probes.size(); ++next) a.features.push_back(answer(next));
  if (!a.takes_it) return a;
  for (const ShapeAxis& axis : axes) {
    std::string values;
    size_t taken = 0;
    for (const Probe& p : axis.values)
      if (answer(next++).status == ASSAY_OK) values += (taken++ == 0 ? "" : " ") + p.feature;
    a.axes.emplace_back(axis.field, taken == axis.values.size() ? "all of " + values : values);
  }
  return a;
}

}  // namespace assay
