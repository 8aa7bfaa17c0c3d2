// SPDX-License-Identifier: Apache-2.0
// A management library for tests: one device, "GPU-one", whose clock steps down by 10 MHz per question and
// which is too hot at every third.
extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  static int one;
  *device = &one;
  return uuid[0] == 'G' && uuid[4] == 'o' ? 0 : 6;
}
static unsigned questions = 0;
int nvmlDeviceGetClockInfo(void*, int kind, unsigned* mhz) {
  if (kind != 1) return 2;
  *mhz = 2000 - 10 * ++questions;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = questions % 3 == 0 ? 0x20 : 0x4;  // too hot, or at the power cap
  return 0;
}
}
