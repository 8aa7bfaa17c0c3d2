// SPDX-License-Identifier: Apache-2.0
// The list of the sm_90a kernels and the checks their entries share.
#include "kernels/sm90/sm90.hpp"

#include <cstdio>
#include <cstring>

#include "kernels/device/status.hpp"

namespace assay_sm90 {

std::vector<const assay_kernel*> sm90_kernels() {
  std::vector<const assay_kernel*> all;
  for (const auto& list : {decode_kernels(), mla_kernels(), prefill_kernels()})
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

int refuse(char* why, size_t size, const char* required, const char* supported, const char* missing) {
  assay_gpu::refuse(why, size, required, supported, missing);
  return ASSAY_UNSUPPORTED;
}

int common_supports(const assay_kernel* self, const assay_problem* p, const assay_device* device, char* why,
                    size_t size) {
  char text[96];
  if (p->op != self->op) return refuse(why, size, "another op", "that of the kernel", "this op");
  // The code is for this generation alone: sm_90a is no subset of what comes after it.
  if (device != nullptr && std::strncmp(device->arch, "sm_90", 5) != 0)
    return refuse(why, size, device->arch, "sm_90", "code for this device");
  if (p->heads_q < 1 || p->heads_kv < 1 || p->heads_q % p->heads_kv != 0) {
    std::snprintf(text, sizeof text, "%d query heads on %d KV heads", p->heads_q, p->heads_kv);
    return refuse(why, size, text, "a positive multiple", "the group size");
  }
  if (p->first_key != nullptr || p->positions != nullptr)
    return refuse(why, size, p->first_key != nullptr ? "a first key's position" : "positions of rows",
                  "keys from position 0, the last row at the last key", "masks by position");
  return ASSAY_OK;
}

int refuse_8_bit(const assay_problem& p, char* why, size_t size) {
  const bool fits = p.q_format == ASSAY_BF16 || p.q_format == ASSAY_FP16;
  if (fits && p.k_format == p.q_format && p.v_format == p.q_format && p.o_format == p.q_format &&
      p.q_scale_kind == ASSAY_SCALE_NONE && p.k_scale_kind == ASSAY_SCALE_NONE &&
      p.v_scale_kind == ASSAY_SCALE_NONE)
    return ASSAY_OK;
  using assay_kernels::format_name;
  char text[96];
  std::snprintf(text, sizeof text, "q %s, k %s, v %s, out %s", format_name(p.q_format),
                format_name(p.k_format), format_name(p.v_format), format_name(p.o_format));
  return refuse(why, size, text, "all bf16 or all fp16, without scales", "an instance of these formats");
}

bool scale_per_segment(int32_t kind) {
  return kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_TENSOR || kind == ASSAY_SCALE_HOST ||
         kind == ASSAY_SCALE_HEAD || kind == ASSAY_SCALE_REQUEST_HEAD;
}

void place_scale(const assay_kernels::ScaleView& s, const float*& data, int64_t& request, int64_t& head,
                 float& host) {
  data = s.data, request = head = 0;
  host = s.kind == ASSAY_SCALE_HOST ? s.host : 1.f;
  if (s.kind == ASSAY_SCALE_HEAD) head = s.stride[0];
  if (s.kind == ASSAY_SCALE_REQUEST_HEAD) request = s.stride[0], head = s.stride[1];
}

int refuse_slots(const assay_problem& p, char* why, size_t size) {
  if (p.table == ASSAY_TABLE_BLOCK || p.table == ASSAY_TABLE_CSR) return ASSAY_OK;
  return refuse(why, size, "a table of slots", "block tables and CSR", "a page per token");
}

int invalid(char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) std::snprintf(error, size, "%s", text);
  return ASSAY_INVALID_ARGUMENT;
}

bool rows_of(const assay_tensor& t, int32_t element_bytes, int32_t elements) {
  if (t.data == nullptr) return true;  // nothing will be read
  bool fits = reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(element_bytes * elements) == 0;
  for (int i = 0; i < t.rank; ++i)
    fits = fits && (t.shape[i] <= 1 || (i + 1 == t.rank ? t.stride[i] == 1 : t.stride[i] % elements == 0));
  return fits;
}

}  // namespace assay_sm90
