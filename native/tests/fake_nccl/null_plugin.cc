// A plugin that does nothing but answer: the baseline of measurements, and the subject of this program's own tests.
// NEWEST leaves out newer tables; FORGETS leaves handles unwritten, as a plugin must not.
#include <stdlib.h>

#include "nccl/abi_v4.h"
#include "nccl/abi_v5.h"
#include "nccl/abi_v6.h"
#include "nccl/abi_v7.h"

#ifndef NEWEST
#define NEWEST 7
#endif
#ifndef FORGETS
#define FORGETS 0
#endif

namespace {
using namespace ci::nccl;

void* const kSomething = reinterpret_cast<void*>(uintptr_t{16});

int32_t mask() {
  const char* value = getenv("FAKE_NCCL_NULL_MASK");
  return value != nullptr ? static_cast<int32_t>(strtol(value, nullptr, 0)) : static_cast<int32_t>(kMaskLight | kGroup);
}

Result init_v4(void** context, int32_t* out, const char*, uint64_t, int32_t, int32_t, int32_t, Logger) {
  *context = kSomething;
  __atomic_store_n(out, mask(), __ATOMIC_RELAXED);
  return kSuccess;
}
Result init_v5(void** context, uint64_t, int32_t* out, const char*, int32_t, int32_t, int32_t, Logger) {
  *context = kSomething;
  __atomic_store_n(out, mask(), __ATOMIC_RELAXED);
  return kSuccess;
}
template <class D>
Result start(void*, void** handle, D*) {
  if (!FORGETS) *handle = kSomething;
  return kSuccess;
}
Result stop(void*) { return kSuccess; }
Result state(void*, int32_t, StateArgs*) { return kSuccess; }

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))
EXPORTED const TableV4 ncclProfiler_v4 = {"null", init_v4, start<DescriptorV4>, stop, state, stop};
EXPORTED const TableV5 ncclProfiler_v5 = {"null", init_v5, start<DescriptorV5>, stop, state, stop};
#if NEWEST > 5
EXPORTED const TableV6 ncclProfiler_v6 = {"null", init_v5, start<DescriptorV6>, stop, state, stop};
EXPORTED const TableV7 ncclProfiler_v7 = {"null", init_v5, start<DescriptorV7>, stop, state, stop};
#endif
