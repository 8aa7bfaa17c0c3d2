// SPDX-License-Identifier: Apache-2.0
// See NotedGroup in rank_exchanges.hpp. A process is one rank, so there is one group whose exchanges are
// noted.
#include "harness/explain/stages/rank_exchanges.hpp"

namespace assay {
namespace {

struct Noting {
  const assay_group* inner;
  std::vector<Exchange>* all;
};
Noting& noting() {
  static Noting one{};
  return one;
}

std::vector<std::byte> bytes(const void* from, int64_t count) {
  const auto* first = static_cast<const std::byte*>(from);
  return {first, first + count};
}

int gather(const assay_group* g, const void* send, void* receive, int64_t count, void* stream, char* error,
           size_t size) {
  Exchange& e = noting().all->emplace_back();
  e.sent = bytes(send, count);
  const int status = noting().inner->all_gather(noting().inner, send, receive, count, stream, error, size);
  if (status == ASSAY_OK) e.received = bytes(receive, count * g->ranks);
  return status;
}

int reduce(const assay_group* g, const float* send, float* receive, int64_t count, void* stream, char* error,
           size_t size) {
  const auto width = static_cast<int64_t>(sizeof(float));
  Exchange& e = noting().all->emplace_back();
  e.reduces = true, e.sent = bytes(send, count * g->ranks * width);
  const int status =
      noting().inner->reduce_scatter(noting().inner, send, receive, count, stream, error, size);
  if (status == ASSAY_OK) e.received = bytes(receive, count * width);
  return status;
}

}  // namespace

NotedGroup::NotedGroup(const assay_group& inner) : inner_(inner), group_(inner) {
  noting() = {&inner_, &all_};
  group_.all_gather = gather, group_.reduce_scatter = reduce;
  group_.barrier = [](const assay_group*, void* stream, char* error, size_t size) {
    return noting().inner->barrier(noting().inner, stream, error, size);
  };
}

}  // namespace assay
