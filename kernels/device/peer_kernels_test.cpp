// SPDX-License-Identifier: Apache-2.0
// Ranks that write into each other's memory, each an emulated device in a process of its own: what arrives,
// exchange after exchange of any size, out of step, and where the number of exchanges begins anew.
#include "kernels/device/peer_kernels.hpp"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

namespace assay_gpu {
namespace {

// A byte, and a small whole number as a float, of what a rank sends in an exchange.
unsigned char byte_of(int rank, int exchange, int64_t at) {
  return static_cast<unsigned char>(37 * rank + 11 * exchange + 7 * at + at / 256);
}
float number_of(int rank, int exchange, int64_t at) {
  return static_cast<float>((5 * rank + 3 * exchange + at) % 1000) - 500.0f;
}

struct Course {
  int ranks, exchanges;
  uint32_t first;  // exchanges that were before
  int64_t most;    // bytes of one
};

// Why exchange n went wrong on this rank, or 0.
int gather(const Peers& a, int n, int64_t bytes, size_t shift) {
  const auto size = static_cast<size_t>(bytes);
  std::vector<unsigned char> send(size + shift),
      receive(size * static_cast<size_t>(a.ranks) + shift + 1, 0xee);
  for (int64_t i = 0; i < bytes; ++i) send[static_cast<size_t>(i) + shift] = byte_of(a.rank, n, i);
  if (launch_peer_gather(a, send.data() + shift, receive.data() + shift, bytes, nullptr) != emulatorSuccess)
    return 2;
  for (int from = 0; from < a.ranks; ++from)
    for (int64_t i = 0; i < bytes; ++i)
      if (receive[static_cast<size_t>(from * bytes + i) + shift] != byte_of(from, n, i)) return 3;
  return receive.back() == 0xee ? 0 : 4;  // nothing behind the end
}

int sum(const Peers& a, int n, int64_t count) {
  std::vector<float> send, receive(static_cast<size_t>(count) + 1, -7.0f);
  for (int to = 0; to < a.ranks; ++to)
    for (int64_t i = 0; i < count; ++i) send.push_back(number_of(a.rank, n, i + to));
  if (launch_peer_sum(a, send.data(), receive.data(), count, nullptr) != emulatorSuccess) return 5;
  for (int64_t i = 0; i < count; ++i) {
    float all = 0;
    for (int from = 0; from < a.ranks; ++from) all += number_of(from, n, i + a.rank);
    if (receive[static_cast<size_t>(i)] != all) return 6;
  }
  return receive.back() == -7.0f ? 0 : 7;
}

int go(const Course& c, const Peers& a) {
  alarm(60);  // ranks that wait for ever fail
  omp_set_num_threads(1);
  std::mt19937 same(7), own(static_cast<unsigned>(a.rank));
  a.turn[0] = c.first;
  for (int n = 0; n < c.exchanges; ++n) {
    const int64_t bytes = n == 0 ? c.most : 1 + static_cast<int64_t>(same() % static_cast<uint32_t>(c.most));
    const bool gathers = same() % 2 == 0;
    if (n == 0 && a.rank == 0) usleep(20000);  // others find what memory held before
    if (own() % 4 == 0) usleep(own() % 500);
    if (const int bad = gathers ? gather(a, n, bytes, own() % 5) : sum(a, n, (bytes + 3) / 4)) return bad;
  }
  return a.turn[1] == 0 ? 0 : 8;
}

// What each rank said, in their order: zeros where all is right.
std::vector<int> run(const Course& c) {
  const auto room = static_cast<size_t>(peer_room_bytes(c.ranks));
  const size_t all = room * static_cast<size_t>(c.ranks);
  void* memory = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {-1};
  std::vector<pid_t> children;
  for (int rank = 0; rank < c.ranks; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    uint32_t turn[2] = {};
    Peers a{};
    a.rank = rank, a.ranks = c.ranks, a.turn = turn;
    for (int r = 0; r < c.ranks; ++r)
      a.rooms[r] = static_cast<unsigned char*>(memory) + room * static_cast<size_t>(r);
    _exit(go(c, a));
  }
  std::vector<int> said;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    said.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
  }
  munmap(memory, all);
  return said;
}

TEST(PeerExchanges, BringWhatEachRankSent) {
  EXPECT_EQ(run({2, 80, 0, 5000}), std::vector<int>(2, 0));
  EXPECT_EQ(run({3, 50, 0, 3000}), std::vector<int>(3, 0));
  EXPECT_EQ(run({2, 8, 0, kMostPeerBytes}), std::vector<int>(2, 0)) << "more words than threads";
  EXPECT_EQ(run({1, 20, 0, 300}), std::vector<int>(1, 0)) << "a rank alone waits for nobody";
}

TEST(PeerExchanges, GoOnWhereTheirNumberBeginsAnew) {
  for (uint32_t before = 0; before < 4; ++before)
    EXPECT_EQ(run({2, 20, 0xffffffffu - before, 600}), std::vector<int>(2, 0)) << before;
}

}  // namespace
}  // namespace assay_gpu
