// The GPU and the NCCL of this thread, asked from what the process has loaded already: nothing is linked or loaded.
#ifndef COMMINSIGHT_NCCL_DEVICE_H
#define COMMINSIGHT_NCCL_DEVICE_H
#include <cstdint>

namespace ci::nccl {

struct DeviceFacts {
  uint32_t device_number;  // CUDA ordinal + 1; 0: unknown
  char pci_bus_id[16];     // "0000:3b:00.0"; empty: unknown
  uint32_t nccl_version;   // as ncclGetVersion; 0: unknown
};

// For `init` only: takes the loader's lock. During it the calling thread's device is the communicator's.
DeviceFacts device_facts();

}  // namespace ci::nccl
#endif
