// SPDX-License-Identifier: Apache-2.0
// What connects emulated ranks, a process each: assay's exchanges, for the memory of emulated devices is the
// host's. While a call is captured they are kept, as launches are, and run at each replay. With
// ASSAY_EXCHANGE=peers there are wide exchanges, too, of any size: those of assay, put together, so that
// steps that use them are judged where no devices are that write into each other's memory
// (kernels/device/peers.hpp).
#include "kernels/common/group.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/emulator/host.hpp"

namespace {

assay_group given{}, emulated{};  // live as long as the process

template <class Exchange>
int now_or_later(void* stream, const Exchange& exchange) {
  gpu::emulator::Recording* const list = gpu::emulator::recording(stream);
  if (list == nullptr) return exchange();
  list->push_back({[=] { return exchange() == ASSAY_OK ? emulatorSuccess : emulatorErrorLaunch; }});
  return ASSAY_OK;
}

int gather_rows(const assay_kernels::HeadRows& rows, void* receive) {
  std::vector<unsigned char> dense;
  for (int64_t head = 0; head < rows.heads; ++head)
    for (int64_t row = 0; row < rows.rows; ++row) {
      const auto* piece =
          static_cast<const unsigned char*>(rows.data) + head * rows.head_stride + row * rows.row_stride;
      dense.insert(dense.end(), piece, piece + rows.piece_bytes);
    }
  return given.all_gather(&given, dense.data(), receive, rows.bytes(), nullptr, nullptr, 0);
}

int sum_parts(const assay_kernels::RankParts& p) {
  const int64_t units = given.ranks * p.units;
  std::vector<float> lse(static_cast<size_t>(given.ranks * units)), addend;
  const auto width = static_cast<int64_t>(sizeof(float));
  if (const int bad = given.all_gather(&given, p.lse, lse.data(), units * width, nullptr, nullptr, 0))
    return bad;
  for (int64_t unit = 0; unit < units; ++unit) {
    const auto of = [&](int rank) { return lse[static_cast<size_t>(rank * units + unit)]; };
    float top = -HUGE_VALF, sum = 0;
    for (int rank = 0; rank < given.ranks; ++rank) top = std::max(top, of(rank));
    const auto weight = [&](int rank) { return of(rank) == -HUGE_VALF ? 0 : std::exp(of(rank) - top); };
    for (int rank = 0; rank < given.ranks; ++rank) sum += weight(rank);
    const float own = weight(given.rank);
    for (int32_t d = 0; d < p.dims; ++d)
      addend.push_back(own == 0 ? 0 : own / sum * p.part[unit * p.dims + d]);
    if (unit / p.units == given.rank) p.total[unit % p.units] = top == -HUGE_VALF ? top : top + std::log(sum);
  }
  return given.reduce_scatter(&given, addend.data(), p.out, p.units * p.dims, nullptr, nullptr, 0);
}

const assay_kernels::WideExchanges kWide = {
    [](const assay_kernels::HeadRows&) { return true; }, [](const assay_kernels::RankParts&) { return true; },
    [](const assay_kernels::HeadRows& rows, void* receive, void* stream, char*, size_t) {
      return now_or_later(stream, [=] { return gather_rows(rows, receive); });
    },
    [](const assay_kernels::RankParts& parts, void* stream, char*, size_t) {
      return now_or_later(stream, [=] { return sum_parts(parts); });
    }};

}  // namespace

extern "C" __attribute__((visibility("default"))) int assay_backend_join(const assay_group* group,
                                                                         char* error, size_t size) {
  if (const int status = assay_kernels::join_group(group, error, size); status != ASSAY_OK) return status;
  given = emulated = *group;
  emulated.all_gather = [](const assay_group*, const void* send, void* receive, int64_t bytes, void* stream,
                           char*, size_t) {
    return now_or_later(stream,
                        [=] { return given.all_gather(&given, send, receive, bytes, nullptr, nullptr, 0); });
  };
  emulated.reduce_scatter = [](const assay_group*, const float* send, float* receive, int64_t count,
                               void* stream, char*, size_t) {
    return now_or_later(
        stream, [=] { return given.reduce_scatter(&given, send, receive, count, nullptr, nullptr, 0); });
  };
  const char* wanted = std::getenv("ASSAY_EXCHANGE");
  const bool wide = wanted != nullptr && std::strcmp(wanted, "peers") == 0;
  return assay_kernels::join_group(&emulated, error, size, wide ? &kWide : nullptr);
}
