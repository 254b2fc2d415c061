// Descriptor of ncclProfiler_v4: NCCL 2.27.
#ifndef COMMINSIGHT_NCCL_ABI_V4_H
#define COMMINSIGHT_NCCL_ABI_V4_H
#include "abi.h"

namespace ci::nccl {

struct DescriptorV4 {
  struct Coll {
    uint64_t seq_number;
    const char* func;
    const void* send_buff;
    void* recv_buff;
    size_t count;
    int32_t root;
    const char* datatype;
    uint8_t n_channels;
    uint8_t n_warps;
    const char* algo;
    const char* proto;
  };
  struct P2p {
    const char* func;
    void* buff;
    const char* datatype;
    size_t count;
    int32_t peer;
    uint8_t n_channels;
  };

  uint8_t type;
  void* parent;
  int32_t rank;
  union {
    Coll coll;
    P2p p2p;
    ProxyOpPart proxy_op;
    ProxyStepPart proxy_step;
    KernelChPart kernel_ch;
    NetPluginPart net_plugin;
  };
};
static_assert(sizeof(DescriptorV4) == 104, "DescriptorV4");
CI_NCCL_COMMON(DescriptorV4);
CI_NCCL_COLL(DescriptorV4);

using TableV4 = ProfilerTable<DescriptorV4, InitV4>;
static_assert(sizeof(TableV4) == 48, "TableV4");

}  // namespace ci::nccl
#endif
