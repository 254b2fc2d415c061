#include "guard.h"

#include "abi.h"
#include "atomics.h"

namespace ci::nccl {
namespace {

constexpr int64_t kWindowNs = 1000000000;
constexpr uint32_t kWindowsAbove = 3;
constexpr uint32_t kDefaultBudgetPpm = 20000;

constexpr uint32_t kBeyondNet = kProxyStep | kProxyCtrl | kNetPlugin | kKernelPhase;
constexpr uint32_t kBeyondLight = kProxyOp | kCeSync | kCeBatch;

}  // namespace

uint32_t lower_mask_of(uint32_t mask) {
  if ((mask & kBeyondNet) != 0) return mask & ~kBeyondNet;
  if ((mask & kBeyondLight) != 0) return mask & ~kBeyondLight;
  return mask & ~kMaskApi & ~uint32_t{kGroup} ? kMaskApi : mask;
}

void Guard::set_budget(uint32_t ppm) {
  budget_ppm_ = ppm;
  has_budget_ = true;
}

void Guard::sample(int64_t callback_ns, uint32_t n_callbacks) {
  const int64_t own_ns = callback_ns - int64_t{n_callbacks} * reading_ns_;
  if (own_ns > 0) add(callback_ns_, own_ns);
}

int64_t measured_clock_ns() {
  int64_t least = kWindowNs;
  for (int i = 0; i < 32; i++) {
    const int64_t before = mono_ns();
    const int64_t after = mono_ns();
    if (after - before < least) least = after - before;
  }
  return least;
}

int64_t Guard::callback_ns() const { return load_relaxed(callback_ns_); }

bool Guard::round(int64_t now_ns, uint32_t mask, uint32_t* lower_mask) {
  const int64_t elapsed_ns = now_ns - window_start_ns_;
  if (window_start_ns_ != 0 && elapsed_ns < kWindowNs) return false;
  const int64_t sampled_ns = callback_ns() - window_callback_ns_;
  const bool has_window = window_start_ns_ != 0;
  const double spent_ns = has_window ? static_cast<double>(sampled_ns * kSampledOf) : 0;
  const double share = spent_ns / static_cast<double>(elapsed_ns);
  window_start_ns_ = now_ns;
  window_callback_ns_ += sampled_ns;
  const uint32_t budget_ppm = has_budget_ ? budget_ppm_ : kDefaultBudgetPpm;
  n_above_ = budget_ppm != 0 && share * 1e6 > budget_ppm ? n_above_ + 1 : 0;
  if (n_above_ < kWindowsAbove) return false;
  n_above_ = 0;
  *lower_mask = lower_mask_of(mask);
  return *lower_mask != mask;
}

}  // namespace ci::nccl
