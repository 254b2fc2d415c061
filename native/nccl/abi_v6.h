// Descriptor of ncclProfiler_v6: NCCL 2.29 and 2.30.
#ifndef COMMINSIGHT_NCCL_ABI_V6_H
#define COMMINSIGHT_NCCL_ABI_V6_H
#include "abi.h"

namespace ci::nccl {

struct DescriptorV6 {
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
  struct CeColl {
    uint64_t seq_number;
    const char* func;
    const void* send_buff;
    void* recv_buff;
    size_t count;
    int32_t root;
    const char* datatype;
    const char* sync_strategy;
    bool is_intra_batch;
    uint32_t batch_size;
    uint32_t n_batches;
    uint32_t ce_seq;
    void* stream;
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
    CeColl ce_coll;
    CeSyncPart ce_sync;
    CeBatchPart ce_batch;
  };
};
static_assert(sizeof(DescriptorV6) == 112, "DescriptorV6");
CI_NCCL_COMMON(DescriptorV6);
CI_NCCL_COLL(DescriptorV6);
CI_NCCL_API(DescriptorV6);
CI_NCCL_CE(DescriptorV6);

using TableV6 = ProfilerTable<DescriptorV6, InitV5>;
static_assert(sizeof(TableV6) == 48, "TableV6");

}  // namespace ci::nccl
#endif
