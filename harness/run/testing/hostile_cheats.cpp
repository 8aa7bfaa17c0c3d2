// SPDX-License-Identifier: Apache-2.0
// Deeds: kernels that are right and look fast, because they find out that they are timed, or keep what they
// computed.
#include <execinfo.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "harness/run/testing/hostile.hpp"
#include "harness/run/testing/hostile_table.hpp"

namespace hostile {
namespace {

size_t bytes_of(const assay_tensor& t) {
  int64_t last = 0;
  for (int i = 0; i < t.rank; ++i) last += (t.shape[i] - 1) * t.stride[i];
  return static_cast<size_t>(last + 1) * (t.format == ASSAY_FP32 ? 4 : 2);
}

struct Kept {
  std::vector<char> o, lse;
};
void keep(Kept& kept, const Call& c) {
  const auto copy = [](std::vector<char>& to, const assay_tensor& t) {
    to.assign(static_cast<char*>(t.data), static_cast<char*>(t.data) + bytes_of(t));
  };
  copy(kept.o, c.tensors->o), copy(kept.lse, c.tensors->lse);
}
void give(const Kept& kept, const Call& c) {
  std::memcpy(c.tensors->o.data, kept.o.data(), kept.o.size());
  std::memcpy(c.tensors->lse.data, kept.lse.data(), kept.lse.size());
}
// Computes what it does not know yet.
template <class Key>
void remembered(std::map<Key, Kept>& known, const Key& key, const Call& c) {
  if (const auto found = known.find(key); found != known.end()) return give(found->second, c);
  compute(c);
  keep(known[key], c);
}

// FNV-1a, of bytes or of addresses.
template <class T>
uint64_t hash_of(const T* values, size_t count) {
  uint64_t h = 1469598103934665603u;
  for (size_t i = 0; i < count; ++i) h = (h ^ values[i]) * 1099511628211u;
  return h;
}
uint64_t hash_of(const assay_tensor& t) {
  return hash_of(static_cast<const unsigned char*>(t.data), bytes_of(t));
}

// Computes, then puts back what was there in a part of the output.
void all_but(const Call& c, int64_t first_row, int64_t first_head) {
  Kept before;
  keep(before, c);
  compute(c);
  const assay_tensor& o = c.tensors->o;
  for (int64_t row = 0; row < o.shape[0]; ++row)
    for (int64_t head = 0; head < o.shape[1]; ++head)
      if (row >= first_row && head >= first_head) {
        const size_t at = static_cast<size_t>(row * o.stride[0] + head * o.stride[1]) * 2;
        std::memcpy(static_cast<char*>(o.data) + at, before.o.data() + at,
                    static_cast<size_t>(o.shape[2]) * 2);
      }
}

constexpr int kJudged = 4;             // runs before anything is timed
constexpr size_t kSampledEvery = 300;  // of values, a few of a small cache

void work_and_compute(const Call& c) {
  usleep(static_cast<useconds_t>(kWorkUs));
  compute(c);
}

void protect_output(const assay_tensor& o, int how) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(o.data) / page * page;
  const auto last = (reinterpret_cast<uintptr_t>(o.data) + bytes_of(o) + page - 1) / page * page;
  mprotect(reinterpret_cast<void*>(first), last - first, how);
}

// With this operand as it was in the first call.
void with_kept(const Call& c, assay_tensor assay_tensors::*operand, std::vector<char>& kept) {
  const assay_tensor& now = c.tensors->*operand;
  const auto* data = static_cast<const char*>(now.data);
  if (kept.size() != bytes_of(now)) kept.assign(data, data + bytes_of(now));
  assay_tensors tensors = *c.tensors;
  (tensors.*operand).data = kept.data();
  Call other = c;
  other.tensors = &tensors;
  compute(other);
}

// Of everybody who called, up to the loop of the program.
uint64_t callers() {
  void* frames[48];
  uintptr_t addresses[48];
  const int count = backtrace(frames, 48);
  std::transform(frames, frames + count, addresses, [](void* at) { return reinterpret_cast<uintptr_t>(at); });
  return hash_of(addresses, static_cast<size_t>(count));
}

// Looks at Q all the time and begins to work as soon as it is another one; who calls waits for the rest.
class Ahead {
 public:
  void call(const Call& c) {
    const assay_tensor& q = c.tensors->q;
    const uint64_t wanted = seen(q.data, bytes_of(q));
    std::unique_lock lock(mutex_);
    data_ = q.data, bytes_ = bytes_of(q);
    if (!thread_.joinable()) thread_ = std::thread([this] { watch(); });
    if (hash_ != wanted) hash_ = wanted, begun_ = Clock::now();
    const auto done = begun_ + std::chrono::microseconds(static_cast<int64_t>(kWorkUs));
    lock.unlock();
    std::this_thread::sleep_until(done);
    compute(c);
  }

 private:
  using Clock = std::chrono::steady_clock;
  // By the system: the memory may be gone by now.
  static uint64_t seen(const void* data, size_t bytes) {
    std::vector<unsigned char> copy(bytes);
    const iovec to{copy.data(), bytes}, from{const_cast<void*>(data), bytes};
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != static_cast<ssize_t>(bytes)) return 0;
    return hash_of(copy.data(), bytes);
  }
  [[noreturn]] void watch() {
    for (;;) {
      usleep(50);
      const std::lock_guard lock(mutex_);
      if (const uint64_t now = seen(data_, bytes_); now != 0 && now != hash_)
        hash_ = now, begun_ = Clock::now();
    }
  }
  std::mutex mutex_;
  std::thread thread_;
  const void* data_ = nullptr;
  size_t bytes_ = 0;
  uint64_t hash_ = 0;
  Clock::time_point begun_;
};

// Rows of Q that are not those of before, of all there are.
double changed_rows(const assay_tensor& q, std::vector<char>& before) {
  const auto* data = static_cast<const char*>(q.data);
  std::vector<char> now(data, data + bytes_of(q));
  int64_t changed = 0;
  for (int64_t row = 0; row < q.shape[0]; ++row)
    for (int64_t head = 0; head < q.shape[1]; ++head) {
      const auto at = static_cast<size_t>(row * q.stride[0] + head * q.stride[1]) * 2;
      changed += before.size() != now.size() ||
                 std::memcmp(&before[at], &now[at], static_cast<size_t>(q.shape[2]) * 2) != 0;
    }
  before = std::move(now);
  return static_cast<double>(changed) / static_cast<double>(q.shape[0] * q.shape[1]);
}

constexpr Deed kDeeds[] = {
    {"cheat_stops", Door::kInstead,
     [](const Call& c) {
       static int calls = 0;

       if (++calls <= kJudged) compute(c);
     }},
    {"cheat_stops_much_later", Door::kInstead,
     [](const Call& c) {
       static int calls = 0;

       if (++calls <= kJudged + 8) compute(c);
     }},
    {"cheat_keeps_output", Door::kInstead,
     [](const Call& c) {
       static int calls = 0;

       static Kept kept;
       if (++calls > kJudged) return give(kept, c);
       compute(c), keep(kept, c);
     }},
    {"cheat_knows_q", Door::kInstead,
     [](const Call& c) {
       static std::map<uint64_t, Kept> known;
       remembered(known, hash_of(c.tensors->q), c);
     }},
    {"cheat_knows_pointers", Door::kInstead,
     [](const Call& c) {
       static std::map<const void*, Kept> known;
       remembered<const void*>(known, c.tensors->o.data, c);
     }},
    {"cheat_half_the_rows", Door::kInstead,
     [](const Call& c) {
       static int calls = 0;
       ++calls <= kJudged ? static_cast<void>(compute(c)) : all_but(c, c.problem->total_q / 2, 0);
     }},
    {"cheat_one_head", Door::kInstead,
     [](const Call& c) {
       static int calls = 0;
       ++calls <= kJudged ? static_cast<void>(compute(c)) : all_but(c, 0, 1);
     }},
    // Writes where the output looks as if somebody had just cleared it.
    {"cheat_unless_poisoned", Door::kInstead,
     [](const Call& c) {
       static int calls = 0;

       if (std::isnan(*static_cast<float*>(c.tensors->lse.data)) || ++calls < 2) compute(c);
     }},
    {"cheat_every_other_call", Door::kInstead,
     [](const Call& c) {
       static int calls = 0;

       if (++calls <= kJudged || calls % 2 == 0) compute(c);
     }},
    {"cheat_plan_computes", Door::kInstead,
     [](const Call& c) {
       static Kept kept;
       static const void* of = nullptr;
       if (of != c.tensors->k.data) compute(c), keep(kept, c), of = c.tensors->k.data;
       give(kept, c);
     }},
    // The first value of V stands for all; unless it is turned with them.
    {"cheat_knows_one_value", Door::kInstead,
     [](const Call& c) {
       static std::map<uint64_t, Kept> known;
       remembered<uint64_t>(known, *static_cast<const uint16_t*>(c.tensors->v.data) & 0x7fffu, c);
     }},
    // Knows that all signs are turned at once.
    {"cheat_knows_turns", Door::kInstead,
     [](const Call& c) {
       static Kept kept;
       static int calls = 0;
       static bool negative = false;
       const bool now = (*static_cast<const uint16_t*>(c.tensors->v.data) & 0x8000u) != 0;
       if (++calls <= kJudged) return compute(c), keep(kept, c), void(negative = now);
       give(kept, c);
       auto* o = static_cast<uint16_t*>(c.tensors->o.data);
       for (size_t i = 0; i < kept.o.size() / 2 && now != negative; ++i) o[i] ^= 0x8000u;
     }},
    {"cheat_keeps_k", Door::kInstead,
     [](const Call& c) {
       static std::vector<char> kept;
       with_kept(c, &assay_tensors::k, kept);
     }},
    {"cheat_keeps_v", Door::kInstead,
     [](const Call& c) {
       static std::vector<char> kept;
       with_kept(c, &assay_tensors::v, kept);
     }},
    // What it made of K and V (here: copies) is kept while a sample of them is what it was.
    {"cheat_keeps_behind_sample", Door::kInstead,
     [](const Call& c) {
       static std::map<uint64_t, std::pair<std::vector<char>, std::vector<char>>> made;
       uint64_t key = 0;
       for (const assay_tensor* t : {&c.tensors->k, &c.tensors->v})
         for (size_t at = 0; at < bytes_of(*t) / 2; at += kSampledEvery)
           key = key * 65599 + static_cast<const uint16_t*>(t->data)[at];
       auto& [k, v] = made[key];
       assay_tensors tensors = *c.tensors;
       const auto kept = [](std::vector<char>& copy, assay_tensor& t) {
         const auto* data = static_cast<const char*>(t.data);
         if (copy.empty()) copy.assign(data, data + bytes_of(t));
         t.data = copy.data();
       };
       kept(k, tensors.k), kept(v, tensors.v);
       Call other = c;
       other.tensors = &tensors;
       compute(other);
     }},
    {"cheat_corrupts_late", Door::kInstead,
     [](const Call& c) {
       static std::thread late;
       if (late.joinable()) late.join();
       compute(c);
       late = std::thread([c] {
         std::this_thread::sleep_for(std::chrono::milliseconds(1));
         *static_cast<uint16_t*>(c.tensors->o.data) ^= 1;
       });
     }},
    {"cheat_random_calls", Door::kInstead,
     [](const Call& c) {
       static int calls = 0;
       static uint32_t state = 1;
       state = state * 1664525u + 1013904223u;
       if (++calls <= kJudged || state >> 31 != 0) compute(c);
     }},
    // A measuring loop calls again at once; who looks at results takes longer.
    {"cheat_when_in_a_hurry", Door::kInstead,
     [](const Call& c) {
       static std::chrono::steady_clock::time_point last;
       static int calls = 0;
       const auto before = last;
       last = std::chrono::steady_clock::now();
       if (++calls <= kJudged || last - before > std::chrono::microseconds(300)) compute(c);
     }},
    {"cheat_coarse_when_timed", Door::kInstead,
     [](const Call& c) {
       static int calls = 0;
       compute(c);
       auto* o = static_cast<uint16_t*>(c.tensors->o.data);
       for (size_t i = 0; i < bytes_of(c.tensors->o) / 2 && calls >= kJudged; ++i) o[i] &= 0xfff0u;
       ++calls;
     }},
    // Looks at a few values of Q, K and V before it decides to do nothing.
    {"cheat_looks_at_few", Door::kInstead,
     [](const Call& c) {
       static std::map<uint64_t, Kept> known;
       uint64_t key = 0;
       for (const assay_tensor* t : {&c.tensors->q, &c.tensors->k, &c.tensors->v})
         for (int i = 0; i < 4; ++i) key = key * 65599 + static_cast<const uint16_t*>(t->data)[i];
       remembered(known, key, c);
     }},
    // Whoever calls the same way again and again measures.
    {"cheat_knows_its_caller", Door::kInstead,
     [](const Call& c) {
       static std::map<uint64_t, int> calls;
       if (++calls[callers()] <= 2 * kJudged) compute(c);
     }},
    // Right, and so slow that there is no time for another look, where everything changed or is poisoned.
    {"cheat_slow_when_looked_at", Door::kInstead,
     [](const Call& c) {
       static int calls = 0;
       static uint64_t before = 0;
       const uint64_t now = hash_of(c.tensors->k) + 7 * hash_of(c.tensors->v);
       if (++calls <= kJudged || std::isnan(*static_cast<float*>(c.tensors->lse.data)))
         compute(c);
       else if (now != before)
         usleep(static_cast<useconds_t>(kSlowLookUs)), compute(c);
       before = now;
     }},
    // A cache of results as it should be: right whatever comes, and fast for what came before.
    {"cheat_remembers_all", Door::kInstead,
     [](const Call& c) {
       static std::map<uint64_t, Kept> known;
       const uint64_t key = hash_of(c.tensors->q) + 3 * hash_of(c.tensors->k) + 7 * hash_of(c.tensors->v);
       if (const auto found = known.find(key); found != known.end()) return give(found->second, c);
       work_and_compute(c), keep(known[key], c);
     }},
    {"cheat_same_q_again", Door::kInstead,
     [](const Call& c) {
       static std::vector<char> q, v;
       const double changed = changed_rows(c.tensors->q, q) + changed_rows(c.tensors->v, v);
       changed > 0 ? work_and_compute(c) : static_cast<void>(compute(c));
     }},
    {"cheat_works_ahead", Door::kInstead,
     [](const Call& c) {
       static auto* const ahead = new Ahead;  // its thread lives as long as the process
       ahead->call(c);
     }},
    {"cheat_repairs_rows", Door::kInstead,
     [](const Call& c) {
       static std::vector<char> q;
       usleep(static_cast<useconds_t>(kWorkUs * changed_rows(c.tensors->q, q)));
       compute(c);
     }},
    // Work that nobody times: when the library copies results, or when somebody touches them.
    {"cheat_works_when_copied", Door::kInstead,
     [](const Call& c) {
       static Call later;
       static assay_tensors tensors;
       tensors = *c.tensors, later = c, later.tensors = &tensors;
       left_undone = [] {
         left_undone = nullptr;
         work_and_compute(later);
       };
     }},
    {"cheat_works_when_seen", Door::kInstead,
     [](const Call& c) {
       static Call later;
       static assay_tensors tensors;
       static int calls = 0;
       tensors = *c.tensors, later = c, later.tensors = &tensors;
       if (++calls <= kJudged) return work_and_compute(c);
       struct sigaction seen {};
       seen.sa_handler = [](int) {
         protect_output(tensors.o, PROT_READ | PROT_WRITE);
         work_and_compute(later);
       };
       sigaction(SIGSEGV, &seen, nullptr);
       protect_output(tensors.o, PROT_NONE);
     }},
    {"cheat_slow_plan", Door::kPlan, [](const Call&) { usleep(static_cast<useconds_t>(kWorkUs)); }},
    {"cheat_writes_late", Door::kInstead,
     [](const Call& c) {
       static std::thread late;
       if (late.joinable()) late.join();
       late = std::thread([c] {
         std::this_thread::sleep_for(std::chrono::milliseconds(3));
         compute(c);
       });
     }},
};

}  // namespace

std::span<const Deed> cheats() { return kDeeds; }

}  // namespace hostile
