// SPDX-License-Identifier: Apache-2.0
// See lse_optional.hpp.
#include "harness/check/session/lse_optional.hpp"

#include <fmt/format.h>

#include <cstring>

#include "harness/device/call_once.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

Objection differs_without_lse(Session& session, const Backend& backend, const assay_kernel& kernel,
                              const assay_device& device, const Inputs& inputs, const Snapshot& left) {
  assay_tensors tensors = *session.device_case().tensors(), host = inputs.tensors;
  tensors.lse = host.lse = assay_tensor{};
  const assay_problem* view = inputs.view->get();
  CallResult r = call_supports(kernel, view, &host, device);
  if (r.ok()) r = call_once(backend, kernel, view, &tensors);  // the session's plan has seen an LSE
  if (!r.ok()) return {"call", "promises an optional LSE, and without one: " + r.error};
  if (Objection damage = session.damage()) return damage;
  const Snapshot now = session.outputs();
  const assay_tensor before = left.view(inputs, Operand::kO), after = now.view(inputs, Operand::kO);
  session.poison_outputs();
  const int bytes = format_bytes(before.format);
  for (int64_t row = 0; row < before.shape[0]; ++row)
    for (int64_t head = 0; head < before.shape[1]; ++head)
      for (int64_t d = 0; d < before.shape[2]; ++d) {
        const int64_t at = row * before.stride[0] + head * before.stride[1] + d * before.stride[2];
        if (std::memcmp(static_cast<const std::byte*>(before.data) + at * bytes,
                        static_cast<const std::byte*>(after.data) + at * bytes,
                        static_cast<size_t>(bytes)) != 0)
          return {"lse optional",
                  fmt::format("without an LSE O[{}, {}, {}] is {:g}, with one {:g}", row, head, d,
                              load(after.format, after.data, at), load(before.format, before.data, at))};
      }
  return {};
}

}  // namespace assay
