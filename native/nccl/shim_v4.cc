// ncclProfiler_v4: NCCL 2.27, and later ones behind a shim of NCCL's own that drops the calls.
#include "abi_v4.h"
#include "shim.h"

namespace ci::nccl {
namespace {

Result init(void** context, int32_t* mask, const char* name, uint64_t comm_hash, int32_t n_nodes, int32_t n_ranks,
            int32_t rank, Logger) {
  void* opened = open_context({comm_hash, name, n_nodes, n_ranks, rank, 4}, mask);
  if (context != nullptr) *context = opened;
  return kSuccess;
}

void* start(void* context, const DescriptorV4& d) { return start_common<Before5>(context, d, kTypesV4); }

}  // namespace
}  // namespace ci::nccl

CI_NCCL_TABLE(4, ci::nccl::init, ci::nccl::start);
