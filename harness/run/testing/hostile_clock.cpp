// SPDX-License-Identifier: Apache-2.0
// Deeds: kernels that put a clock of their own in the place of the one the program reads.
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

#include "harness/run/testing/hostile.hpp"

namespace hostile {
namespace {

int64_t hidden_ns = 0;   // that have passed, and are not to be seen
int64_t hurries_ns = 0;  // since when everything takes ten times as long

int own_clock(clockid_t id, timespec* now) {
  const int status = clock_gettime(id, now);
  if (status != 0 || id != CLOCK_MONOTONIC) return status;
  int64_t ns = now->tv_sec * 1'000'000'000 + now->tv_nsec - hidden_ns;
  if (hurries_ns != 0) ns += 9 * (ns - hurries_ns);
  now->tv_sec = ns / 1'000'000'000, now->tv_nsec = ns % 1'000'000'000;
  return 0;
}

// The entries of an object by which it calls the function, of both tables that a linker may put them in.
void patch(const dl_phdr_info& object) {
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < object.dlpi_phnum; ++i)
    if (object.dlpi_phdr[i].p_type == PT_DYNAMIC)
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
  const char* strings = nullptr;
  const ElfW(Sym)* symbols = nullptr;
  const ElfW(Rela) * tables[2] = {};
  size_t bytes[2] = {};
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    const auto at = dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(at);
    if (dynamic->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(at);
    if (dynamic->d_tag == DT_JMPREL) tables[0] = reinterpret_cast<const ElfW(Rela)*>(at);
    if (dynamic->d_tag == DT_RELA) tables[1] = reinterpret_cast<const ElfW(Rela)*>(at);
    if (dynamic->d_tag == DT_PLTRELSZ) bytes[0] = dynamic->d_un.d_val;
    if (dynamic->d_tag == DT_RELASZ) bytes[1] = dynamic->d_un.d_val;
  }
  if (strings == nullptr || symbols == nullptr) return;
  for (int t = 0; t < 2; ++t)
    for (size_t i = 0; tables[t] != nullptr && i < bytes[t] / sizeof(ElfW(Rela)); ++i) {
      const ElfW(Rela)& entry = tables[t][i];
      const ElfW(Sym)& symbol = symbols[entry.r_info >> 32];
      if (std::strcmp(strings + symbol.st_name, "clock_gettime") != 0) continue;
      void** const slot = reinterpret_cast<void**>(object.dlpi_addr + entry.r_offset);
      const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
      void* const first = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) / page * page);
      if (mprotect(first, page, PROT_READ | PROT_WRITE) == 0) *slot = reinterpret_cast<void*>(&own_clock);
    }
}

void take_the_clock() {
  static bool taken = false;
  if (taken) return;
  taken = true;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void*) {
        const std::string_view name = object->dlpi_name;
        if (name.find("libassay_hostile") == std::string_view::npos &&
            name.find("vdso") == std::string_view::npos)
          patch(*object);
        return 0;
      },
      nullptr);
}

int64_t true_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

constexpr Deed kDeeds[] = {
    // Takes its time, and a twentieth of it is seen.
    {"cheat_own_clock", Door::kInstead,
     [](const Call& c) {
       take_the_clock();
       const int64_t start = true_ns();
       usleep(2000);
       compute(c);
       hidden_ns += (true_ns() - start) * 19 / 20;
     }},
    // Right, and slow in nobody's eyes; everybody behind it looks slower than they are.
    {"leaves_a_clock", Door::kAfter,
     [](const Call&) {
       take_the_clock();
       if (hurries_ns == 0) hurries_ns = true_ns();
     }},
};

}  // namespace

std::span<const Deed> clock_deeds() { return kDeeds; }

}  // namespace hostile
