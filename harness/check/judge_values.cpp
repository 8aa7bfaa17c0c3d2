// SPDX-License-Identifier: Apache-2.0
// Other values for a kernel that was judged: all signs turned, or those of drawn rows. See verdict.hpp.
#include "harness/base/error.hpp"
#include "harness/check/expectations/reasons.hpp"
#include "harness/check/judge_impl.hpp"

namespace assay {
namespace {

constexpr int64_t kDrawnBytes = 16 << 10;  // brought to the device before every timed call

}  // namespace

void Judge::Impl::upload_values() {
  session->upload_inputs();
  for (const Operand cache : caches_read(inputs))
    session->device_case().upload(cache, 0, inputs.buffers[cache].bytes());
}

std::vector<TurnedRows> Judge::Impl::draw_rows(std::mt19937_64& random, bool keys) {
  // What the device holds of the last draw goes with the new one.
  std::vector<TurnedRows> changed = std::move(drawn);
  turn_rows(inputs, changed);
  if (keys) drawn = turn_random_keys(inputs, random);
  if (drawn.empty()) drawn = turn_random_rows(inputs, random, kDrawnBytes);
  changed.insert(changed.end(), drawn.begin(), drawn.end());
  return changed;
}

void Judge::Impl::turn_back() {
  turn_rows(inputs, drawn);
  drawn.clear();
  if (opposite) turn_values(inputs);
  opposite = false;
  unturned.reset();
}

bool Judge::turn() {
  Impl& i = *impl_;
  ASSAY_CHECK(i.session != nullptr && i.judged.has_value(),
              "only a kernel that was judged gets other values");
  settle();
  if (!i.opposite && !i.unturned) i.unturned.emplace(i.session->outputs());
  if (!turn_values(i.inputs)) return false;
  i.opposite = !i.opposite;
  i.upload_values();
  return true;
}
std::string Judge::turned() const {
  const Impl& i = *impl_;
  ASSAY_CHECK(i.unturned.has_value(), "no values were turned");
  return not_as_turned(i.inputs, *i.unturned, i.session->outputs(), i.opposite);
}
void Judge::draw(std::mt19937_64& random, Draw what) {
  Impl& i = *impl_;
  ASSAY_CHECK(i.session != nullptr && i.judged.has_value(),
              "only a kernel that was judged gets other values");
  if (what == Draw::kEverything) {
    turn_rows(i.inputs, i.drawn);
    i.drawn = turn_random_rows(i.inputs, random, 0);
    return i.upload_values();
  }
  for (const TurnedRows& rows : i.draw_rows(random, what == Draw::kFewKeys))
    i.session->device_case().upload(rows.operand, rows.first, rows.last);
}
Changes Judge::draw_later(std::mt19937_64& random) {
  Impl& i = *impl_;
  Changes changes;
  for (const TurnedRows& rows : i.draw_rows(random)) {
    const std::byte* const from = i.inputs.buffers[rows.operand].payload();
    const auto* const host = static_cast<const std::byte*>(tensor_of(i.inputs.tensors, rows.operand).data);
    auto* const device =
        static_cast<std::byte*>(tensor_of(*i.session->device_case().tensors(), rows.operand).data);
    changes.push_back({device + (from + rows.first - host), {from + rows.first, from + rows.last}});
  }
  return changes;
}
void Judge::settle() {
  Impl& i = *impl_;
  if (i.drawn.empty()) return;
  turn_rows(i.inputs, i.drawn);
  i.drawn.clear();
  i.upload_values();
}
std::string Judge::judge_drawn(double row_key_budget) {
  Impl& i = *impl_;
  if (const Objection damage = i.session->damage()) return damage.reason;
  const auto fresh = make_expectation(i.inputs, row_key_budget);
  fresh->prepare(i.said.arithmetic);
  RunOutputs out(i.inputs, i.session->outputs());
  fresh->ask(out);
  if (std::string reason = out.unwritten(); !reason.empty()) return reason;
  return one_line(objection_of(out, *fresh).reason);
}

}  // namespace assay
