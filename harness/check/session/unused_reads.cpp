// SPDX-License-Identifier: Apache-2.0
// See unused_reads.hpp. What may not be read is what differs between two poisons: no list of holes is kept
// here.
#include "harness/check/session/unused_reads.hpp"

#include <chrono>
#include <cstring>
#include <vector>

#include "harness/input/poison.hpp"
#include "harness/input/where.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;  // of an operand that is taken apart
constexpr double kMostSeconds = 2;                 // after which no further run begins

// What one operand's buffer holds under two poisons.
struct UnusedBytes {
  Operand operand;
  int64_t width;                        // bytes of an element
  std::vector<int64_t> at;              // elements that differ, ascending
  std::vector<std::byte> usual, other;  // the payload
};

bool looked_at(const Inputs& inputs, Operand operand) {
  const GuardedBuffer& buffer = inputs.buffers[static_cast<int>(operand)];
  if (operand == Operand::kWorkspace || buffer.empty() || buffer.sparse() || buffer.bytes() > kMostBytes)
    return false;
  const Role role = role_of(inputs.problem, operand);
  if (role != Role::kIn && !(role == Role::kInOut && holds_values(inputs.problem, operand))) return false;
  return operand != Operand::kV ||
         buffer.raw() != inputs.buffers[static_cast<int>(Operand::kK)].raw();  // V in K's buffer
}

std::vector<std::byte> bytes_of(const GuardedBuffer& buffer) {
  return {buffer.payload(), buffer.payload() + buffer.bytes()};
}

std::vector<UnusedBytes> unused_bytes(Inputs& inputs, Poison usual, Poison other) {
  std::vector<UnusedBytes> all;
  repoison(inputs, other);
  for (int i = 0; i < kOperandCount; ++i)
    if (const auto operand = static_cast<Operand>(i); looked_at(inputs, operand))
      all.push_back({operand,
                     std::max(1, format_bytes(tensor_of(inputs.tensors, operand).format)),
                     {},
                     {},
                     bytes_of(inputs.buffers[i])});
  repoison(inputs, usual);
  for (UnusedBytes& h : all) {
    h.usual = bytes_of(inputs.buffers[static_cast<int>(h.operand)]);
    const auto size = static_cast<int64_t>(h.usual.size());
    for (int64_t e = 0; (e + 1) * h.width <= size; ++e)
      if (std::memcmp(h.usual.data() + e * h.width, h.other.data() + e * h.width,
                      static_cast<size_t>(h.width)) != 0)
        h.at.push_back(e);
  }
  return all;
}

}  // namespace

std::string unused_reads(Session& session, Inputs& inputs, Poison usual, Poison other,
                         const ShowsReading& shows) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const std::vector<UnusedBytes> all = unused_bytes(inputs, usual, other);
  const auto runs = [&] {
    session.device_case().upload();
    return session.run().ok() && shows(session.outputs());
  };
  // Elements first .. last - 1 of an operand hold something else.
  const auto follows = [&](const UnusedBytes& h, size_t first, size_t last) {
    GuardedBuffer& buffer = inputs.buffers[static_cast<int>(h.operand)];
    for (size_t i = first; i < last; ++i)
      std::memcpy(buffer.payload() + h.at[i] * h.width, h.other.data() + h.at[i] * h.width,
                  static_cast<size_t>(h.width));
    const bool shown = runs();
    std::memcpy(buffer.payload(), h.usual.data(), h.usual.size());
    return shown;
  };
  std::string found;
  const auto add = [&](const std::string& text) { found += (found.empty() ? "" : ", and ") + text; };
  for (const UnusedBytes& h : all) {
    if (seconds() > kMostSeconds) break;
    if (h.at.empty() || !follows(h, 0, h.at.size())) continue;
    size_t first = 0, last = h.at.size();
    // The first half that shows it by itself; what shows only together stays together.
    while (last - first > 1 && seconds() < kMostSeconds) {
      const size_t middle = first + (last - first) / 2;
      if (follows(h, first, middle))
        last = middle;
      else if (follows(h, middle, last))
        first = middle;
      else
        break;
    }
    const std::string where = where_in(inputs.problem, h.operand, h.at[first] * h.width);
    add(last - first == 1 ? where
                          : fmt::format("{} (one of {} elements from there on)", where, last - first));
  }
  // Outputs and workspace, which hold nothing before a call. Both are laid together; the workspace has what
  // the outputs hold.
  if (found.empty() && seconds() <= kMostSeconds) {
    repoison(inputs, usual);
    for (const OperandUse& use : op_of(inputs.problem).operands)
      if (role_of(inputs.problem, use.operand) == Role::kOut) poison_all(inputs, use.operand, other);
    session.device_case().upload_inputs();
    session.poison_outputs();
    repoison(inputs, usual);
    session.poison_outputs(false);  // of outputs alone
    if (session.run().ok() && shows(session.outputs())) add("what the workspace held before the call");
  }
  session.lay(Poison::kNaN);
  return found;
}

}  // namespace assay
