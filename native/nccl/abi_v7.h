// Descriptor of ncclProfiler_v7: NCCL 2.31 and 2.32.
#ifndef COMMINSIGHT_NCCL_ABI_V7_H
#define COMMINSIGHT_NCCL_ABI_V7_H
#include "abi.h"

namespace ci::nccl {

struct DescriptorV7 {
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
    const char* kernel_variant;
    bool is_symmetric;
    uint64_t user_tag;
  };
  struct P2p {
    const char* func;
    void* buff;
    const char* datatype;
    size_t count;
    int32_t peer;
    uint8_t n_channels;
    void* parent_group;
    uint64_t user_tag;
  };
  struct CollApi {
    const char* func;
    size_t count;
    const char* datatype;
    int32_t root;
    void* stream;
    bool is_captured;
    uint64_t user_tag;
  };
  struct P2pApi {
    const char* func;
    size_t count;
    const char* datatype;
    void* stream;
    bool is_captured;
    uint64_t user_tag;
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
    uint64_t user_tag;
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
    KernelPhasePart kernel_phase;
  };
};
static_assert(sizeof(DescriptorV7) == 136, "DescriptorV7");
CI_NCCL_COMMON(DescriptorV7);
CI_NCCL_COLL(DescriptorV7);
CI_NCCL_API(DescriptorV7);
CI_NCCL_CE(DescriptorV7);
CI_NCCL_AT(DescriptorV7, coll.kernel_variant, 112);
CI_NCCL_AT(DescriptorV7, coll.is_symmetric, 120);
CI_NCCL_AT(DescriptorV7, coll.user_tag, 128);
CI_NCCL_AT(DescriptorV7, p2p.user_tag, 72);
CI_NCCL_AT(DescriptorV7, coll_api.user_tag, 72);
CI_NCCL_AT(DescriptorV7, p2p_api.user_tag, 64);
CI_NCCL_AT(DescriptorV7, ce_coll.user_tag, 112);
CI_NCCL_AT(DescriptorV7, kernel_phase.channel_id, 24);
CI_NCCL_AT(DescriptorV7, kernel_phase.phase_id, 25);
CI_NCCL_AT(DescriptorV7, kernel_phase.phase_name, 32);
CI_NCCL_AT(DescriptorV7, kernel_phase.gpu_ns, 40);

using TableV7 = ProfilerTable<DescriptorV7, InitV5>;
static_assert(sizeof(TableV7) == 48, "TableV7");

}  // namespace ci::nccl
#endif
