// Stops and states: the handle tells what they belong to.
#include "door.h"

namespace ci::nccl {

void* start_known() { return void_token(kIgnored); }

void* start_unknown() {
  Door* d = door();
  return d != nullptr ? note_unknown(*d) : void_token(kIgnored);
}

void* start_proxy_op(void*, void*, const ProxyOpPart&) { return void_token(kIgnored); }
void* start_proxy_step(void*, const ProxyStepPart&) { return void_token(kIgnored); }

void stop(void* handle) {
  Door* d = handle != nullptr ? door() : nullptr;
  if (d == nullptr) return;
  const Token token = token_of(handle);
  switch (token.type) {
    case kCallToken:
      if (ci_slot* slot = find_op(*d, token)) raise_flags(*slot, CI_SLOTFLAG_API_RETURNED);
      return;
    case kTaskToken:
    case kCopyToken: return stop_task(*d, token);
    case kChannelToken: return stop_channel(*d, token, 0);
    case kGroupToken: return leave_group_call(*d, token);
    case kLaunchToken: return stop_launch(*d, token);
    case kPlanToken:
    case kVoidToken: return;
  }
  note_unknown(*d);
}

void record_state(void* handle, int32_t state, const StateArgs* args) {
  Door* d = handle != nullptr ? door() : nullptr;
  if (d == nullptr) return;
  const Token token = token_of(handle);
  if (token.type == kVoidToken) return;
  if (token.type == kChannelToken && state == kKernelChStop)
    return stop_channel(*d, token, args != nullptr ? static_cast<int64_t>(args->gpu_ns) : 0);
  if (token.type == kGroupToken && state == kGroupEndApiStart) return end_group_call(*d, token);
  if (token.type == kGroupToken && state == kGroupStartApiStop) return;
  note_unknown(*d);
}

}  // namespace ci::nccl
