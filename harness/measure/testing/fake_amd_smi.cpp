// SPDX-License-Identifier: Apache-2.0
// AMD SMI for tests: one device, at 0001:c1:02.3, whose graphics clock steps down by 10 MHz per question.
#include <cstdint>

extern "C" {
int amdsmi_init(uint64_t flags) { return flags == 2 ? 0 : 1; }
int amdsmi_get_processor_handle_from_bdf(uint64_t address, void** device) {
  static int one;
  *device = &one;
  return address == (uint64_t{1} << 16 | 0xc1 << 8 | 2 << 3 | 3) ? 0 : 31;
}
struct Info {
  uint32_t clk, min_clk, max_clk;
  uint8_t clk_locked, clk_deep_sleep;
  uint32_t reserved[4];
};
int amdsmi_get_clock_info(void*, int kind, Info* info) {
  static uint32_t questions = 0;
  if (kind != 0) return 2;
  *info = {2100 - 10 * ++questions, 132, 2100, 0, 0, {}};
  return 0;
}
}
