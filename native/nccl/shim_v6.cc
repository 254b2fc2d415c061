// ncclProfiler_v6: NCCL 2.29 and 2.30, with copy engine collectives.
#include "abi_v6.h"
#include "shim.h"

namespace ci::nccl {
namespace {

void* start(void* context, const DescriptorV6& d) {
  return d.type == kCeColl ? start_ce_coll<From5>(context, d) : start_api<From5>(context, d, kTypesV6);
}

}  // namespace
}  // namespace ci::nccl

CI_NCCL_TABLE(6, ci::nccl::init_since_5<6>, ci::nccl::start);
