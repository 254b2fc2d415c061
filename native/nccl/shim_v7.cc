// ncclProfiler_v7: NCCL 2.31 and 2.32, with user tags and symmetric kernels.
#include "abi_v7.h"
#include "shim.h"

namespace ci::nccl {
namespace {

void* start(void* context, const DescriptorV7& d) {
  return d.type == kCeColl ? start_ce_coll<From7>(context, d) : start_api<From7>(context, d, kTypesV7);
}

}  // namespace
}  // namespace ci::nccl

CI_NCCL_TABLE(7, ci::nccl::init_since_5<7>, ci::nccl::start);
