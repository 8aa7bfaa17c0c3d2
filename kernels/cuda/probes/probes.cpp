// SPDX-License-Identifier: Apache-2.0
// The instructions of a CUDA device as calibration sees them: a list that depends on the compute capability,
// and the calls of the C table. Operands are floats that are values of the format; the device encodes them.
#include "kernels/cuda/probes/probes.hpp"

#include <vector>

#include "kernels/device/host.hpp"
#include "kernels/device/library.hpp"

namespace assay_gpu {
namespace {

enum class Family { kMma, kWgmma, kFunction };

struct Entry {
  assay_instruction shown;
  Family family;
  Function function;
  int first_capability, last_capability;  // major * 10 + minor
};

constexpr Entry products(const char* name, Family family, int32_t format, int32_t count, int first,
                         int last) {
  return {{sizeof(assay_instruction), name, ASSAY_INSTRUCTION_PRODUCTS, format, count, ASSAY_FUNCTION_NONE},
          family,
          Function{},
          first,
          last};
}
constexpr Entry function(const char* name, int32_t what, Function f) {
  return {{sizeof(assay_instruction), name, ASSAY_INSTRUCTION_FUNCTION, ASSAY_FORMAT_NONE, 0, what},
          Family::kFunction,
          f,
          0,
          999};
}

constexpr Entry kEntries[] = {
    products("mma.sync bf16", Family::kMma, ASSAY_BF16, 16, 80, 999),
    products("mma.sync fp16", Family::kMma, ASSAY_FP16, 16, 80, 999),
    products("mma.sync fp8_e4m3", Family::kMma, ASSAY_FP8_E4M3, 32, 89, 999),
    products("mma.sync fp8_e5m2", Family::kMma, ASSAY_FP8_E5M2, 32, 89, 999),
    products("mma.sync int8", Family::kMma, ASSAY_INT8, 32, 80, 999),
    products("wgmma bf16", Family::kWgmma, ASSAY_BF16, 16, 90, 90),
    products("wgmma fp16", Family::kWgmma, ASSAY_FP16, 16, 90, 90),
    products("wgmma fp8_e4m3", Family::kWgmma, ASSAY_FP8_E4M3, 32, 90, 90),
    products("wgmma fp8_e5m2", Family::kWgmma, ASSAY_FP8_E5M2, 32, 90, 90),
    products("wgmma int8", Family::kWgmma, ASSAY_INT8, 32, 90, 90),
    function("ex2.approx.ftz", ASSAY_FUNCTION_EXP2, Function::kEx2Approx),
    function("lg2.approx.ftz", ASSAY_FUNCTION_LOG2, Function::kLg2Approx),
    function("rcp.approx.ftz", ASSAY_FUNCTION_RECIPROCAL, Function::kRcpApprox),
    function("tanh.approx", ASSAY_FUNCTION_TANH, Function::kTanhApprox),
    function("exp2f", ASSAY_FUNCTION_EXP2, Function::kExp2f),
    function("log2f", ASSAY_FUNCTION_LOG2, Function::kLog2f),
    function("tanhf", ASSAY_FUNCTION_TANH, Function::kTanhf),
};

const Entry* entry_of(const assay_instruction* shown) {
  for (const Entry& e : kEntries)
    if (&e.shown == shown) return &e;
  return nullptr;
}

int unknown(char* error, size_t size) {
  return fail(ASSAY_INVALID_ARGUMENT, error, size,
              "not an instruction of this backend's list, or not of this kind");
}

gpu::Status to_device(Memory& memory, const float* from, int64_t count) {
  if (memory.status != GPU_API(Success)) return memory.status;
  return GPU_API(Memcpy)(memory.data, from, static_cast<size_t>(count) * sizeof(float),
                         GPU_API(MemcpyHostToDevice));
}

int instructions(const assay_instruction* const** list, int32_t* count, char* error, size_t size) {
  if (list == nullptr || count == nullptr)
    return fail(ASSAY_INVALID_ARGUMENT, error, size, "instructions needs places for the list and its length");
  int device = 0, major = 0, minor = 0;
  if (const int bad = answer(GPU_API(GetDevice)(&device), "instructions", error, size)) return bad;
  if (const int bad =
          answer(GPU_API(DeviceGetAttribute)(&major, GPU_API(DevAttrComputeCapabilityMajor), device),
                 "instructions", error, size))
    return bad;
  if (const int bad =
          answer(GPU_API(DeviceGetAttribute)(&minor, GPU_API(DevAttrComputeCapabilityMinor), device),
                 "instructions", error, size))
    return bad;
  static std::vector<const assay_instruction*> present;
  present.clear();
  for (const Entry& e : kEntries)
    if (e.first_capability <= major * 10 + minor && major * 10 + minor <= e.last_capability)
      present.push_back(&e.shown);
  *list = present.data();
  *count = static_cast<int32_t>(present.size());
  return ASSAY_OK;
}

int run_products(const assay_instruction* shown, int64_t count, const float* a, const float* b,
                 const float* c, float* d, char* error, size_t size) {
  const Entry* e = entry_of(shown);
  if (e == nullptr || e->family == Family::kFunction) return unknown(error, size);
  if (count <= 0) return ASSAY_OK;
  const int64_t elements = count * shown->products;
  Memory values(elements * 4), codes_a(elements * 4), codes_b(elements * 4), sums(count * 4), out(count * 4);
  gpu::Status status = codes_a.status;
  const auto then = [&](gpu::Status next) {
    if (status == GPU_API(Success)) status = next;
  };
  then(codes_b.status), then(out.status);
  const auto encode = [&](const float* from, Memory& to) {
    then(to_device(values, from, elements));
    if (status == GPU_API(Success))
      then(launch_encode(shown->format, static_cast<const float*>(values.data), elements,
                         static_cast<uint32_t*>(to.data), nullptr));
  };
  encode(a, codes_a), encode(b, codes_b);
  then(to_device(sums, c, count));
  if (status == GPU_API(Success))
    then((e->family == Family::kMma ? launch_mma_products : launch_wgmma_products)(
        shown->format, count, static_cast<const uint32_t*>(codes_a.data),
        static_cast<const uint32_t*>(codes_b.data), static_cast<const float*>(sums.data),
        static_cast<float*>(out.data), nullptr));
  if (status == GPU_API(Success))
    then(GPU_API(Memcpy)(d, out.data, static_cast<size_t>(count) * sizeof(float),
                         GPU_API(MemcpyDeviceToHost)));
  return answer(status, shown->name, error, size);
}

int run_function(const assay_instruction* shown, uint32_t first, int64_t count, float* out, char* error,
                 size_t size) {
  const Entry* e = entry_of(shown);
  if (e == nullptr || e->family != Family::kFunction) return unknown(error, size);
  if (count <= 0) return ASSAY_OK;
  Memory values(count * 4);
  gpu::Status status = values.status;
  if (status == GPU_API(Success))
    status = launch_function(e->function, first, count, static_cast<float*>(values.data), nullptr);
  if (status == GPU_API(Success))
    status = GPU_API(Memcpy)(out, values.data, static_cast<size_t>(count) * sizeof(float),
                             GPU_API(MemcpyDeviceToHost));
  return answer(status, shown->name, error, size);
}

int measure_rate(const assay_instruction* shown, double* flops, char* error, size_t size) {
  const Entry* e = entry_of(shown);
  if (e == nullptr || e->family == Family::kFunction || flops == nullptr) return unknown(error, size);
  Memory sink(4);
  if (const int bad = answer(sink.status, shown->name, error, size)) return bad;
  double seconds = 0, done = 0;
  const auto launch = e->family == Family::kMma ? launch_mma_rate : launch_wgmma_rate;
  const int bad = best_seconds(
      [&] {
        return launch(shown->format, 10000, multiprocessors * 4, static_cast<float*>(sink.data), &done,
                      nullptr);
      },
      &seconds, error, size);
  if (bad == ASSAY_OK) *flops = done / seconds;
  return bad;
}

}  // namespace

const Probes kCudaProbes{instructions, run_products, run_function, measure_rate};

}  // namespace assay_gpu
