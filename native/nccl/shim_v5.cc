// ncclProfiler_v5: NCCL 2.28, the first that tells the calls.
#include "abi_v5.h"
#include "shim.h"

namespace ci::nccl {
namespace {

void* start(void* context, const DescriptorV5& d) { return start_api<From5>(context, d, kTypesV5); }

}  // namespace
}  // namespace ci::nccl

CI_NCCL_TABLE(5, ci::nccl::init_since_5<5>, ci::nccl::start);
