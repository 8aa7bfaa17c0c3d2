// SPDX-License-Identifier: Apache-2.0
// Ranks that write into each other's memory, each an emulated device in a process of its own: what arrives,
// exchange after exchange of any size, out of step, and where the number of exchanges begins anew.
#include "kernels/device/peer_kernels.hpp"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/portable/rows.hpp"

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
  int kind = -1;   // of all, each as large as may be; else drawn
};

// Why exchange n went wrong on this rank, or 0.
int gather(const Peers& a, int n, int64_t bytes, size_t shift) {
  const auto size = static_cast<size_t>(bytes);
  std::vector<unsigned char> send(size + shift),
      receive(size * static_cast<size_t>(a.ranks) + shift + 1, 0xee);
  for (int64_t i = 0; i < bytes; ++i) send[static_cast<size_t>(i) + shift] = byte_of(a.rank, n, i);
  const PeerRows all = {send.data() + shift, 1, 1, bytes, 0, 0};
  if (launch_peer_gather(a, all, receive.data() + shift, nullptr) != emulatorSuccess) return 2;
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

// Rows of several heads, with room between them, arrive head after head without it.
int gather_heads(const Peers& a, int n, int64_t pieces) {
  const int64_t heads = 1 + n % 3, rows = std::max<int64_t>(1, pieces / heads / 3), piece = 24;
  const int64_t of_head = piece + 8 * (n % 2), of_row = heads * of_head + 40;
  std::vector<unsigned char> send(static_cast<size_t>(rows * of_row), 0xdd),
      receive(static_cast<size_t>(a.ranks * heads * rows * piece) + 1, 0xee);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t i = 0; i < piece; ++i)
        send[static_cast<size_t>(row * of_row + head * of_head + i)] =
            byte_of(a.rank, n, (head * rows + row) * piece + i);
  const PeerRows all = {send.data(), heads, rows, piece, of_head, of_row};
  if (launch_peer_gather(a, all, receive.data(), nullptr) != emulatorSuccess) return 9;
  for (int from = 0; from < a.ranks; ++from)
    for (int64_t i = 0; i < all.bytes(); ++i)
      if (receive[static_cast<size_t>(from * all.bytes() + i)] != byte_of(from, n, i)) return 10;
  return receive.back() == 0xee ? 0 : 11;
}

// What rank `from` has for unit `at` of all ranks: an LSE, -inf for every fifth, for some units of all ranks,
// and a number of each dimension, a NaN where there is none.
float lse_of(int from, int exchange, int64_t at) {
  if ((at + exchange) % 7 == 0 || (at + from + exchange) % 5 == 0) return -kInfinity;
  return 0.25f * static_cast<float>((3 * from + exchange + at) % 90) - 12.0f;
}
float part_of(int from, int exchange, int64_t at, int d) {
  if (lse_of(from, exchange, at) == -kInfinity) return __builtin_nanf("");
  return number_of(from, exchange, 3 * at + d);
}

int parts(const Peers& a, int n, int64_t units, int32_t dims) {
  std::vector<float> part, lse, out(static_cast<size_t>(units * dims) + 1, -7.0f),
      total(static_cast<size_t>(units) + 1, -7.0f);
  for (int64_t u = 0; u < a.ranks * units; ++u) {
    lse.push_back(lse_of(a.rank, n, u));
    for (int d = 0; d < dims; ++d) part.push_back(part_of(a.rank, n, u, d));
  }
  const PeerParts all = {units, dims, part.data(), lse.data(), out.data(), total.data()};
  if (launch_peer_parts(a, all, nullptr) != emulatorSuccess) return 12;
  for (int64_t u = 0; u < units; ++u) {
    const int64_t at = a.rank * units + u;
    double sum = 0;
    for (int from = 0; from < a.ranks; ++from) sum += std::exp(double{lse_of(from, n, at)});
    const float got = total[static_cast<size_t>(u)];
    if (sum == 0 ? got != -kInfinity : !(std::abs(got - std::log(sum)) < 1e-5)) return 13;
    for (int d = 0; d < dims; ++d) {
      double wanted = 0;
      for (int from = 0; from < a.ranks; ++from)
        if (const double weight = std::exp(double{lse_of(from, n, at)}); weight > 0)
          wanted += weight / sum * part_of(from, n, at, d);
      if (!(std::abs(out[static_cast<size_t>(u * dims + d)] - wanted) < 1e-3)) return 14;
    }
  }
  return out.back() == -7.0f && total.back() == -7.0f ? 0 : 15;
}

int one_of(const Peers& a, int n, uint32_t kind, int64_t bytes, size_t shift) {
  if (kind % 4 == 0) return gather(a, n, bytes, shift);
  if (kind % 4 == 1) return sum(a, n, (bytes + 3) / 4);
  if (kind % 4 == 2) return gather_heads(a, n, bytes / 24);
  const int32_t dims = 2 + static_cast<int32_t>(kind / 4 % 20) * 2;
  return parts(a, n, std::max<int64_t>(1, bytes / 4 / (dims + 2)), dims);
}

int go(const Course& c, const Peers& a) {
  alarm(60);  // ranks that wait for ever fail
  omp_set_num_threads(1);
  std::mt19937 same(7), own(static_cast<unsigned>(a.rank));
  a.turn[0] = c.first;
  for (int n = 0; n < c.exchanges; ++n) {
    const int64_t bytes =
        n == 0 || c.kind >= 0 ? c.most : 1 + static_cast<int64_t>(same() % static_cast<uint32_t>(c.most));
    const uint32_t kind = c.kind >= 0 ? static_cast<uint32_t>(c.kind) : same();
    if (n == 0 && a.rank == 0) usleep(20000);  // others find what memory held before
    if (own() % 4 == 0) usleep(own() % 500);
    if (const int bad = one_of(a, n, kind, bytes, own() % 5)) return bad;
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

TEST(PeerExchanges, TakeAsMuchAsThereIsRoomFor) {
  for (const uint32_t kind : {0u, 1u, 2u, 3u, 3u + 4 * 19})
    EXPECT_EQ(run({2, 2, 0, kMostPeerBytes, static_cast<int>(kind)}), std::vector<int>(2, 0)) << kind;
}

TEST(PeerExchanges, GoOnWhereTheirNumberBeginsAnew) {
  for (uint32_t before = 0; before < 4; ++before)
    EXPECT_EQ(run({2, 20, 0xffffffffu - before, 600}), std::vector<int>(2, 0)) << before;
}

}  // namespace
}  // namespace assay_gpu
