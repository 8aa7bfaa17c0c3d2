// SPDX-License-Identifier: Apache-2.0
// What ranks ask of each other before they write into each other's memory: nothing where nobody wants them
// to. Needs no device: a rank without one has no memory to offer, and says so.
#include "kernels/device/peers.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

namespace assay_gpu {
namespace {

// How often rank 0 of two asks the other, who never can.
int asked(const char* exchange) {
  if (exchange != nullptr)
    setenv("ASSAY_EXCHANGE", exchange, 1);
  else
    unsetenv("ASSAY_EXCHANGE");
  int calls = 0;
  const PeerExchanges* opened = open_peers(0, 2, [&](const void* send, void* receive, int64_t bytes) {
    ++calls;
    std::memset(receive, 0, 2 * static_cast<size_t>(bytes));
    std::memcpy(receive, send, static_cast<size_t>(bytes));
    return true;
  });
  unsetenv("ASSAY_EXCHANGE");
  EXPECT_EQ(opened, nullptr) << "the other rank cannot";
  return calls;
}

TEST(Peers, AskNothingUnlessTheyAreWanted) {
  EXPECT_EQ(asked(nullptr), 0);
  EXPECT_EQ(asked("library"), 0);
  EXPECT_EQ(asked("peers"), 1);
}

}  // namespace
}  // namespace assay_gpu
