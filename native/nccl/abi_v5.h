// Descriptor of ncclProfiler_v5: NCCL 2.28.
#ifndef COMMINSIGHT_NCCL_ABI_V5_H
#define COMMINSIGHT_NCCL_ABI_V5_H
#include "abi.h"

namespace ci::nccl {

struct DescriptorV5 {
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
    void* parent_group;
  };
  struct P2p {
    const char* func;
    void* buff;
    const char* datatype;
    size_t count;
    int32_t peer;
    uint8_t n_channels;
    void* parent_group;
  };
  struct CollApi {
    const char* func;
    size_t count;
    const char* datatype;
    int32_t root;
    void* stream;
    bool is_captured;
  };
  struct P2pApi {
    const char* func;
    size_t count;
    const char* datatype;
    void* stream;
    bool is_captured;
  };

  uint64_t type;
  void* parent;
  int32_t rank;
  union {
    Coll coll;
    P2p p2p;
    ProxyOpPart proxy_op;
    ProxyStepPart proxy_step;
    KernelChPart kernel_ch;
    NetPluginPart net_plugin;
    GroupApiPart group_api;
    CollApi coll_api;
    P2pApi p2p_api;
    KernelLaunchPart kernel_launch;
  };
};
static_assert(sizeof(DescriptorV5) == 112, "DescriptorV5");
CI_NCCL_COMMON(DescriptorV5);
CI_NCCL_COLL(DescriptorV5);
CI_NCCL_API(DescriptorV5);

using TableV5 = ProfilerTable<DescriptorV5, InitV5>;
static_assert(sizeof(TableV5) == 48, "TableV5");

}  // namespace ci::nccl
#endif
